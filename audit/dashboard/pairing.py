"""Heads held against the first of them, by `diff`: kept per pair, since runs are immutable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from audit.dashboard import store
from audit.diff import Side, comparable_corpora, outcome_differences
from audit.errors import AuditError
from audit.paired import Difference
from audit.stats import Resampling

COLUMNS = (
    "candidate", "corpus", "register", "sequence", "position", "token", "oracle", "oracle_class",
    "ref", "ref_margin", "oracle_in_vocabulary", "ref_in_vocabulary", "disagree", "ref_accepts",
    "cand_accepts", "kl_nats",
)  # fmt: skip
"""Of the position table, what differences are made of."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One head beside the first, or why they can not be compared."""

    side: Side
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    refused: AuditError | None = None


def pairs(sides: Sequence[Side]) -> list[Pair]:
    """Each head after the first, held against it."""
    return [_pair(sides[0], side) for side in sides[1:]]


def same_traces(sides: Sequence[Side]) -> bool:
    """Whether all ran on exactly the same traces, so that their worst corpora may be compared."""
    return all(side.traces == sides[0].traces for side in sides)


def _pair(first: Side, other: Side) -> Pair:
    try:
        corpora = tuple(comparable_corpora(first, other))
        key = tuple((side.run.run, side.candidate.head.sha256) for side in (first, other))
        found, notes = _differences(first, other, store.open_here().where, key, corpora)
    except AuditError as error:
        return Pair(other, (), (), error)
    return Pair(other, found, notes)


@st.cache_data(max_entries=200, show_spinner="Comparing the same positions …")
def _differences(
    _a: Side, _b: Side, where: str, key: tuple[tuple[str, str], ...], corpora: tuple[str, ...]
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    tables = store.positions(_a.run, COLUMNS), store.positions(_b.run, COLUMNS)
    found, notes = outcome_differences(_a, _b, tables, corpora, Resampling())
    return tuple(found), tuple(notes)
