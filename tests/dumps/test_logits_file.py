"""The oracle out of a file of llama-perplexity, against the logits that were put into it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.dumps import writers
from tests.dumps.conftest import MODEL
from tests.dumps.writers import Real

CONTEXT, FIRST = 64, 32
BOS = 0


@dataclass(frozen=True)
class Base:
    """Three chunks: the dump's texts begin with BOS, the file keeps the first token as it was."""

    real: Real
    stored: list[list[int]]
    logits: list[np.ndarray]


@pytest.fixture(scope="module")
def base(real: Real) -> Base:
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    stored, texts, states, logits = [], [], [], []
    for text in real.tokens:
        chunk = text[:CONTEXT]
        run = torch.cat([torch.tensor([BOS]), chunk[1:]])
        with torch.no_grad():
            logits.append(model(run[None]).logits[0].numpy())
            states.append(model.model(run[None]).last_hidden_state[0])
        stored.append(chunk.tolist())
        texts.append(run)
    cut = replace(real, tokens=texts, post=states, masks=[torch.ones(CONTEXT)] * 3)
    return Base(cut, stored, logits)


Imported = Callable[..., tuple[Any, dict[str, str]]]
Refused = Callable[..., dict[str, str]]


def write(place: Path, base: Base, logits: list[np.ndarray] | None = None) -> tuple[Path, Path]:
    dump = writers.eagle(place / "d", base.real)
    file = writers.logits_file(place / "base.kld", base.stored, logits or base.logits)
    return dump, file


@pytest.mark.parametrize("more", [("--model", MODEL), ("--stage", "post_norm")])
def test_the_second_half_of_each_chunk_has_an_oracle(
    place: Path, base: Base, imported: Imported, more: tuple[object, ...]
) -> None:
    dump, file = write(place, base)
    trace, found = imported(dump, "--oracle-from", file, *more)
    for i, oracle in enumerate(trace.oracle.split(CONTEXT)):
        wanted = torch.full((CONTEXT,), -1)
        wanted[FIRST : CONTEXT - 1] = torch.from_numpy(base.logits[i].argmax(1))[FIRST:-1]
        assert torch.equal(oracle, wanted)
    settings = trace.info.settings["oracle"]
    rows = np.concatenate([chunk[FIRST:-1] for chunk in base.logits])
    quantum = np.minimum(rows.max(1) - rows.min(1), 16).max() / 65535
    assert settings["half_quantum_nats"] == pytest.approx(quantum / 2, rel=1e-5)
    assert settings["half_quantum_nats"] <= 16 / 65535 / 2 < 1.2208e-4
    assert (settings["positions"], settings["ties"], settings["bos"]) == (93, 0, BOS)
    assert trace.info.oracle == "verifier_greedy" and settings["source"] == "logits_file"
    assert "second half" in found["LOGITS_16_BIT"] and "BOS (0)" in found["LOGITS_16_BIT"]


def test_ties_within_a_quantum_have_no_oracle(place: Path, base: Base, imported: Imported) -> None:
    """Within half a quantum of the best the codes are equal; three quanta below they are not."""
    logits = [chunk.copy() for chunk in base.logits]
    row = logits[0][40]
    best, other = int(row.argmax()), 17
    row[other] = row[best] - 0.2 * 16 / 65535
    far = logits[1][41]
    far_best = int(far.argmax())
    far[18] = far[far_best] - 3 * 16 / 65535
    trace, found = imported(*write(place, base, logits)[:1], "--oracle-from", place / "base.kld",
                            "--model", MODEL)  # fmt: skip
    assert int(trace.oracle[40]) == -1 and int(trace.oracle[CONTEXT + 41]) == far_best
    assert trace.info.settings["oracle"]["ties"] == 1 and "; 1 tied" in found["LOGITS_16_BIT"]


def test_only_where_the_tokens_match(place: Path, base: Base, imported: Imported) -> None:
    """From the first token that differs, and for a text that is no chunk, there is no oracle."""
    texts = [text.clone() for text in base.real.tokens]
    texts[1][50] += 1
    texts[2] = texts[2].flip(0)
    changed = replace(base, real=replace(base.real, tokens=texts))
    dump, file = write(place, changed)
    trace, _ = imported(dump, "--oracle-from", file, "--stage", "post_norm")
    one, two, three = (trace.oracle >= 0).split(CONTEXT)
    rows = torch.arange(CONTEXT)
    assert torch.equal(one, (rows >= FIRST) & (rows < CONTEXT - 1))
    assert torch.equal(two, (rows >= FIRST) & (rows < 50))
    assert not bool(three.any())


def test_no_text_in_common(place: Path, base: Base, refused: Refused) -> None:
    other = replace(base, stored=[[5] * CONTEXT] * 3)
    dump, file = write(place, other)
    error = refused(dump, "--oracle-from", file, "--model", MODEL)
    assert "TOKENS_DIFFER" in error["message"]


def test_first_tokens_that_are_not_one_bos(place: Path, base: Base, refused: Refused) -> None:
    texts = [text.clone() for text in base.real.tokens]
    texts[1][0] = 9
    dump, file = write(place, replace(base, real=replace(base.real, tokens=texts)))
    error = refused(dump, "--oracle-from", file, "--model", MODEL)
    assert "not by one BOS" in error["message"]


def test_logits_one_row_off(place: Path, base: Base, refused: Refused) -> None:
    shifted = [np.roll(chunk, 1, axis=0) for chunk in base.logits]
    dump, file = write(place, base, shifted)
    error = refused(dump, "--oracle-from", file, "--stage", "post_norm")
    assert error["message"].startswith("ALIGNMENT: the oracle fits the text better shifted by -1")


def test_logits_alone_are_no_trace(place: Path, base: Base, refused: Refused) -> None:
    _, file = write(place, base)
    assert "NO_STATES" in refused(file, "--model", MODEL)["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[:-3], "FILE_CUT"),
        (lambda data: data[:15], "FILE_CUT"),
        (lambda data: data + b"\0\0", "bytes more"),
        (lambda data: b"_logitz_" + data[8:], "not a logits file"),
        (lambda data: data[:8] + struct.pack("<i", -1) + data[12:], "claims a context of -1"),
        (lambda data: data[:16] + struct.pack("<i", 2**31 - 1) + data[20:], "FILE_CUT"),
    ],
)
def test_damaged_logits_files(
    place: Path,
    base: Base,
    refused: Refused,
    change: Callable[[bytes], bytes],
    words: str,
) -> None:
    dump, file = write(place, base)
    file.write_bytes(change(file.read_bytes()))
    message = refused(dump, "--oracle-from", file, "--stage", "post_norm")["message"]
    assert words in message


def test_a_scale_that_is_not_a_number(place: Path, base: Base, refused: Refused) -> None:
    """The last row of the file begins 4 + 8192 codes before its end."""
    dump, file = write(place, base)
    data, start = file.read_bytes(), -2 * (8192 + 4)
    file.write_bytes(data[:start] + struct.pack("<f", float("inf")) + data[start + 4 :])
    message = refused(dump, "--oracle-from", file, "--stage", "post_norm")["message"]
    assert "NON_FINITE" in message


def test_an_odd_vocabulary_is_padded_to_even(tmp_path: Path) -> None:
    from audit.dumps.logits_file import LogitsFile

    logits = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    file = LogitsFile(writers.logits_file(tmp_path / "x", [list(range(8))], [logits]))
    wanted = torch.full((8,), -1)
    wanted[4:7] = torch.from_numpy(logits.argmax(1))[4:7]
    assert torch.equal(file.oracle(torch.arange(8)), wanted)
    padded = LogitsFile(tmp_path / "x", valid=2).oracle(torch.arange(8))
    assert torch.equal(padded[4:7], torch.from_numpy(logits[:, :2].argmax(1))[4:7])
