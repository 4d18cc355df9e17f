"""Small tiles and chunks, so that even a small head takes many of both."""

from __future__ import annotations

import pytest

from audit.lockstep import plan, running
from audit.logits import BLOCK


def cut_small(monkeypatch: pytest.MonkeyPatch, tile: int, chunk: int) -> None:
    """At most `tile` rows and `chunk` positions at a time; tiles are whole blocks."""
    monkeypatch.setattr(plan, "_TILE_ROWS", max(tile, BLOCK))
    monkeypatch.setattr(plan, "_CHUNK_ROWS", chunk)
    for module in (plan, running):
        monkeypatch.setattr(module, "NARROWEST", BLOCK)
