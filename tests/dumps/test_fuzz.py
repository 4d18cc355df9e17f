"""Damaged dumps of every tool: read, or refused with exit 2; never anything else."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.dumps import ImportRequest, import_dump
from audit.errors import AuditError
from tests.dumps import writers
from tests.dumps.writers import Real

WRITERS: dict[str, Callable[[Path, Real], Path]] = {
    "vllm": lambda p, r: writers.vllm(p / "d", r),
    "speculators": lambda p, r: writers.speculators(p / "d", r),
    "speculators-pt": lambda p, r: writers.speculators_pt(p / "d", r),
    "specforge": lambda p, r: writers.specforge(p / "d", r),
    "specforge-gz": lambda p, r: writers.specforge(p / "d", r, packed=True),
    "modelopt": lambda p, r: writers.modelopt(p / "d", r),
    "llama-json": lambda p, r: writers.llama_json(p / "d.json", r),
    "llama-raw": lambda p, r: writers.llama_raw(p / "d.txt", r),
    "llama-server": lambda p, r: writers.llama_server(p / "d.json", r),
    "llama-debug": lambda p, r: writers.llama_debug(p / "d", r),
}
TRIALS = 25


@pytest.mark.parametrize("name", WRITERS)
def test_damage_is_an_error_of_ours_or_harmless(name: str, place: Path, real: Real) -> None:
    small: Any = {field: [value[:12] for value in getattr(real, field)]
                  for field in ("tokens", "post", "pre", "greedy", "masks")}  # fmt: skip
    few = replace(real, **small, entering=[[s[:12] for s in states] for states in real.entering])
    dump = WRITERS[name](place, few)
    files = sorted(path for path in place.rglob("*") if path.is_file() and path.stat().st_size)
    rng = random.Random(name)
    for _ in range(TRIALS):
        path = rng.choice(files)
        data = path.read_bytes()
        path.write_bytes(_damaged(data, rng))
        try:
            found = import_dump(ImportRequest(dump, "x", stage="post_norm", layers=(1, 2, 3)))
            assert found.trace.positions > 0
        except AuditError as error:
            assert error.exit_code == 2 and error.message
        path.write_bytes(data)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut, or a few bytes changed near the start, the end or anywhere."""
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.choice((len(data), min(len(data), 300)))
        at = rng.randrange(place) if rng.random() < 0.8 else len(data) - rng.randint(1, place)
        changed[at] = rng.randrange(256)
    return bytes(changed)
