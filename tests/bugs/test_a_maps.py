"""Section A: vocabulary maps and trimming."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from audit.table import read_positions
from tests.bugs.use import (
    audit,
    compare,
    inspect,
    matrix,
    model,
    refused,
    tokenizer,
    told,
    trace,
    values,
    write,
)

V, H = 16, 8


def trimmed(folder: Path, kept: list[int], vocabulary: int = V, **more: torch.Tensor) -> Path:
    """A folder with some rows of `matrix(V, H)` and the size of their target's vocabulary."""
    rows = matrix(vocabulary, H)[kept]
    return model(folder, {"vocab_size": vocabulary}, lm_head__weight=rows, **more)


def listed(folder: Path, ids: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ids.json"
    path.write_text(json.dumps(list(ids)))
    return path


def test_bug_01_a_map_that_was_never_saved(tmp_path: Path) -> None:
    head = trimmed(tmp_path / "m", [1, 5, 9, 13])
    code, document = audit("inspect", head)
    error = document["error"]
    assert code == 2
    assert error["message"].startswith("MAP_MISSING: 4 rows < 16 ids and no d2t, t2d or token_map")
    assert all(way in error["hint"] for way in ("--map", "d2t", "--trim"))
    found = inspect(head, "--map", listed(tmp_path, [1, 5, 9, 13]))
    assert found["head"]["rows"] == 4 and found["head"]["vocabulary"] == V


def test_bug_02_offsets_read_as_absolute_ids_or_the_reverse(tmp_path: Path) -> None:
    """d2t = 0..5 of 8 ids: as offsets it would run to 10, so it can only be absolute."""
    head = trimmed(tmp_path / "a", [*range(6)], vocabulary=8, d2t=torch.arange(6))
    assert "absolute, the only reading that fits" in inspect(head)["head"]["map_source"]
    both = trimmed(tmp_path / "b", [0, 1, 4], d2t=torch.tensor([0, 1, 4]))
    message = refused("inspect", both)  # as ids 0, 1, 4; as offsets 0, 2, 6
    assert message.startswith("MAP_AMBIGUOUS")
    assert inspect(both, "--d2t-convention", "offset")["head"]["map_source"].startswith("d2t read")
    kept = torch.zeros(V, dtype=torch.bool).index_fill(0, torch.tensor([0, 2, 6]), True)
    decided = trimmed(tmp_path / "c", [0, 2, 6], d2t=torch.tensor([0, 1, 4]), t2d=kept)
    assert "offset, which t2d confirms" in inspect(decided)["head"]["map_source"]
    outside = trimmed(tmp_path / "d", [0, 1], d2t=torch.tensor([17, 17]))
    assert "MAP_RANGE: 2 of 2 map entries are outside 0..15, the first at row 0: 17" in refused(
        "inspect", outside
    )


def test_bug_03_a_map_of_zeros(tmp_path: Path) -> None:
    whole = trimmed(tmp_path / "whole", [*range(V)], d2t=torch.zeros(V, dtype=torch.int64))
    assert inspect(whole)["head"]["map_source"]  # offsets of zero are the identity
    head = trimmed(tmp_path / "cut", [0, 1, 2, 3], d2t=torch.zeros(4, dtype=torch.int64))
    assert refused("inspect", head).startswith("MAP_ZERO: d2t is all zeros for 4 rows of 16 ids")
    allowed = inspect(head, "--d2t-convention", "offset")
    ((severity, sentence),) = told(allowed, "MAP_ZERO")
    assert severity == "warning" and "the first 4 ids" in sentence


def test_bug_04_accuracy_inside_the_trimmed_vocabulary(tmp_path: Path) -> None:
    """The verifier never says an id below 8, the draft knows only those: inside its slice it is
    always right, and no draft is ever accepted."""
    weight = matrix(V, H)
    states = matrix(400, H, 3)
    outside = (states @ weight.T).argmax(1) >= 8
    path = write(tmp_path / "ref.safetensors", lm_head__weight=weight)
    states = states[outside][:160]
    place = trace(tmp_path / "traces/code.trace.safetensors", weight, states)
    cut = listed(tmp_path, range(8))
    run = compare(path, "--trim", cut, "--trace", place, folder=tmp_path)
    found = values(run)
    assert found["acceptance_cand"] == 0 == found["vocabulary_ceiling"]
    assert found["acceptance_ref"] == 1
    table = read_positions(next((tmp_path / "ledger").glob("runs/*/positions.parquet")))
    within = (states @ weight[:8].T).argmax(1)
    assert (table["cand"].to_numpy() == within.numpy()).all()  # 100 % in the slice
    assert "0.00 %" in run["candidates"][0]["verdict"]["sentence"]


@pytest.fixture(scope="module")
def two_domains(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, torch.Tensor]:
    """A verifier that on `code` mostly says low ids and on `de` mostly high ones."""
    folder = tmp_path_factory.mktemp("domains")
    weight = matrix(64, H)
    ref = write(folder / "ref.safetensors", lm_head__weight=weight)
    for number, (name, register, low) in enumerate(
        (("code", "in_distribution", True), ("de", "domain_shift", False))
    ):
        states = matrix(4000, H, 10 + number)
        said = (states @ weight.T).argmax(1)
        wanted = said < 32 if low else said >= 32
        mixed = torch.cat([states[wanted][:360], states[~wanted][:40]])
        place = folder / f"traces/{name}.trace.safetensors"
        trace(place, weight, mixed, corpus=name, register=register)
    return ref, folder / "traces", weight


def test_bug_06_the_ceiling_is_the_vocabularys(
    tmp_path: Path, two_domains: tuple[Path, Path, torch.Tensor]
) -> None:
    ref, traces, _ = two_domains
    card = listed(tmp_path, range(32))
    run = compare(ref, "--trim", card, "--trace", traces, folder=tmp_path)
    assert values(run, "code")["vocabulary_ceiling"] == pytest.approx(0.9)
    assert values(run, "de")["vocabulary_ceiling"] == pytest.approx(0.1)
    sentence = run["candidates"][0]["verdict"]["sentence"]
    assert "acceptance ceiling from vocabulary: 10.00 % on de" in sentence
    assert run["candidates"][0]["verdict"]["kind"] == "vocabulary"


def test_bug_07_a_map_made_on_another_corpus(
    tmp_path: Path, two_domains: tuple[Path, Path, torch.Tensor]
) -> None:
    """Map by domain: each of two maps is good on its own text and bad on the other's."""
    ref, traces, _ = two_domains
    code, german = listed(tmp_path / "code", range(32)), listed(tmp_path / "de", range(32, 64))
    run = compare(ref, "--trim", code, "--trim", german, "--trace", traces, folder=tmp_path)
    ceilings = [
        [values(run, corpus, which)["vocabulary_ceiling"] for corpus in ("code", "de")]
        for which in (0, 1)
    ]
    assert ceilings == [pytest.approx([0.9, 0.1]), pytest.approx([0.1, 0.9])]


def test_bug_08_extra_stop_ids_are_lost(tmp_path: Path) -> None:
    words = [chr(97 + i) for i in range(V)]
    folder = model(
        tmp_path / "m", {"vocab_size": V, "eos_token_id": [3, 9]}, lm_head__weight=matrix(V, H)
    )
    tokenizer(folder, words, {3: "</s>", 9: "<|im_end|>", 12: "<tool>"})
    place = trace(tmp_path / "traces/code.trace.safetensors", matrix(V, H))
    card = listed(tmp_path, [0, 1, 2, 3, 4, 5])
    run = compare(folder, "--trim", card, "--trace", place, folder=tmp_path)
    ((severity, sentence),) = told(run, "STOP_LOST")
    assert (severity, sentence) == ("warning", "1 of 2 stop tokens have no row (ids 9)")
    assert "ids 9, 12" in told(run, "SPECIAL_LOST")[0][1]
    policy = tmp_path / "policy.toml"
    policy.write_text(
        'schema = 1\nname = "drafts"\n[[require]]\nname = "stops"\nno_findings = ["STOP_LOST"]\n'
        'reason = "a draft must be able to end"\ndate = 2026-01-01\n'
    )
    args = ("compare", folder, "--trim", card, "--trace", place, "--ledger", tmp_path / "ledger")
    code, gated = audit(*args, "--gate", policy)
    assert code == 1, gated
    assert gated["candidates"][0]["gate"]["outcome"] == "fail"


def test_bug_10_every_id_is_of_the_target_vocabulary(tmp_path: Path) -> None:
    """Row 0 of the draft is id 13: what is proposed is said as 13, never as 0."""
    weight = matrix(V, H)
    kept = torch.tensor([13, 2, 7, 5])
    draft = write(tmp_path / "d.safetensors", lm_head__weight=weight[kept], token_map=kept)
    ref = write(tmp_path / "ref.safetensors", lm_head__weight=weight)
    place = trace(tmp_path / "t/code.trace.safetensors", weight)
    run = compare(ref, draft, "--trace", place, folder=tmp_path)
    table = read_positions(next((tmp_path / "ledger").glob("runs/*/positions.parquet")))
    assert set(table["cand"]) <= set(kept.tolist()) and 13 in set(table["cand"])
    subset = next(c for c in run["controls"] if c["name"] == "row subset")
    assert subset["passed"] and subset["observed"] == 0
    assert values(run)["disagreement_covered"] == 0  # an exact subset of rows


def test_bug_11_sizes_that_differ_by_padding_only(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(12)]
    for name, rows in (("ref", 16), ("cand", 14)):
        folder = model(tmp_path / name, {"vocab_size": rows}, lm_head__weight=matrix(16, H)[:rows])
        tokenizer(folder, words)
    place = trace(tmp_path / "t/code.trace.safetensors", matrix(16, H)[:12])
    run = compare(tmp_path / "ref", tmp_path / "cand", "--trace", place, folder=tmp_path)
    assert values(run)["disagreement"] == 0
    assert "6 padding rows beyond id 11 masked" in [text for _, text in told(run, "PADDING")]
    tokenizer(tmp_path / "cand", [f"v{i}" if i > 4 else f"w{i}" for i in range(12)])
    message = refused("compare", tmp_path / "ref", tmp_path / "cand", "--trace", place)
    assert message.startswith("TOKENS_DIFFER: 7 ids of the candidate's tokenizer")
    assert [f"{i}: 'w{i}' and 'v{i}'" in message for i in range(5, 11)] == [True] * 5 + [False]


def test_bug_13_special_ids_of_the_untrimmed_model(tmp_path: Path) -> None:
    config = {"vocab_size": 8, "eos_token_id": 151645, "bos_token_id": 1}
    folder = model(tmp_path / "cut", config, lm_head__weight=matrix(8, H))
    (folder / "generation_config.json").write_text('{"pad_token_id": 9}')
    outside = told(inspect(folder), "SPECIAL_ID_OUTSIDE")
    assert [text.partition(",")[0] for _, text in outside] == [
        "eos_token_id is 151645", "pad_token_id is 9",
    ]  # fmt: skip
    words = ["a", "b", "c", "</s>", "d", "e", "f", "g"]
    for name, stop in (("ref", 3), ("cand", 4)):
        place = model(
            tmp_path / name, {"vocab_size": 8, "eos_token_id": stop}, lm_head__weight=matrix(8, H)
        )
        tokenizer(place, words)
    states = trace(tmp_path / "t/code.trace.safetensors", matrix(8, H))
    run = compare(tmp_path / "ref", tmp_path / "cand", "--trace", states, folder=tmp_path)
    ((severity, sentence),) = told(run, "SPECIAL_ID_CHANGED")
    assert severity == "warning" and "eos_token_id is 4 ('d')" in sentence and "'</s>'" in sentence
