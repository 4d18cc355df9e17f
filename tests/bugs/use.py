"""How the tests of reported faults use the product: the command line on small files."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from audit.cli import main
from audit.records import TraceInfo
from audit.traces import Trace, write_trace

Document = dict[str, Any]


def audit(*args: object) -> tuple[int, Document]:
    """Exit code, and the one JSON document of `audit ... --json`."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as stop,
    ):
        main([*map(str, args), "--json"])
    assert "Traceback" not in err.getvalue()
    return int(str(stop.value.code)), json.loads(out.getvalue())


def inspect(path: Path, *args: object) -> Document:
    code, document = audit("inspect", path, *args)
    assert code == 0, document
    return document


def refused(*args: object) -> str:
    """The message of a refusal: exit 2, an error with a hint, and no number beside it."""
    code, document = audit(*args)
    assert code == 2 and set(document) == {"error"}, document
    assert document["error"]["hint"]
    return str(document["error"]["message"])


def compare(ref: Path, *cands: object, folder: Path) -> Document:
    """A run, of which the ledger lies in `folder`."""
    fast = ("--resamples", 200, "--ledger", folder / "ledger")
    code, document = audit("compare", ref, *cands, *fast)
    assert code == 0, document
    return document


def told(document: Document, code: str) -> list[tuple[str, str]]:
    """Severity and sentence of every finding of that code."""
    found = document["preflight"]
    return [(f["severity"], f["sentence"]) for f in found if f["code"] == code]


def values(document: Document, corpus: str | None = "code", which: int = 0) -> dict[str, Any]:
    """Measure -> value, over all tokens of one corpus."""
    return {
        e["measure"]: e["value"]
        for e in document["candidates"][which]["estimates"]
        if e["corpus"] == corpus and e["token_class"] is None
    }


def matrix(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def write(path: Path, **tensors: Tensor) -> Path:
    """A safetensors file; names have __ for a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {name.replace("__", "."): value.contiguous() for name, value in tensors.items()}
    save_file(named, path)
    return path


def model(folder: Path, config: Document, **tensors: Tensor) -> Path:
    """A Hugging Face folder."""
    write(folder / "model.safetensors", **tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def tokenizer(folder: Path, words: list[str], added: dict[int, str] | None = None) -> None:
    """A tokenizer.json: one piece per id, and special tokens on top."""
    special = [{"id": i, "content": text, "special": True} for i, text in (added or {}).items()]
    vocab = {word: i for i, word in enumerate(words)}
    content = {"model": {"type": "BPE", "vocab": vocab}, "added_tokens": special}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def trace(
    path: Path,
    weight: Tensor,
    states: Tensor | None = None,
    *,
    corpus: str = "code",
    register: str = "in_distribution",
    oracle: Tensor | None = None,
    length: int = 20,
    stage: str = "post_norm",
) -> Path:
    """A trace of 200 random states or these; its oracle is this head's own greedy token."""
    hidden = matrix(200, weight.shape[1], seed=1) if states is None else states
    rows = torch.arange(len(hidden))
    info = TraceInfo.model_validate(
        {
            "model": "tiny", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
            "corpus": corpus, "register": register, "language": None, "stage": stage,
            "oracle": "verifier_greedy", "captured_by": "test",
        }
    )  # fmt: skip
    said = (hidden @ weight.T).argmax(1) if oracle is None else oracle
    path.parent.mkdir(parents=True, exist_ok=True)
    write_trace(Trace(info, hidden, said.roll(1), said, rows // length, rows % length), path)
    return path
