"""Reading what `audit chain -o` wrote. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from audit.chains.consistent import contradiction
from audit.chains.records import CHAIN_SCHEMA, ChainResult
from audit.figures import read_figures


def read_chain(path: Path) -> ChainResult:
    """The document in a file. Raises as `read_figures` does."""
    return read_figures(
        path, ChainResult, "chain", "write it with `audit chain REF CAND --slots K -o FILE`",
        lambda found: found.schema_, CHAIN_SCHEMA, contradiction,
    )  # fmt: skip
