"""The one place that reads the ledger for the dashboard.

Runs and their tables are immutable, so ledger and id are the whole key of what is kept of them.
Lists, reviews and judgements change and are read anew each time. Raises what the ledger raises;
`states.guarded` shows it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import streamlit as st

from audit.calibration import Calibration
from audit.ledger import Judgement, Ledger, RunFilter, RunList, open_ledger
from audit.records import Review, Run
from audit.table import Frame

_KEPT_RUNS, _KEPT_TABLES = 128, 16


def ledger_argument(arguments: Sequence[str] | None = None) -> str | None:
    """What `--ledger` says after the `--` of `streamlit run app.py -- --ledger DIR`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--ledger")
    known, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    return known.ledger or None


def open_here() -> Ledger:
    """The ledger that `--ledger`, AUDIT_LEDGER and AUDIT_DB_URL name; touches nothing."""
    return open_ledger(ledger_argument())


def runs(wanted: RunFilter) -> RunList:
    """Runs that fit a filter, the newest first."""
    return open_here().runs(wanted)


def run(wanted: str) -> Run:
    """A run by its id, a unique beginning of it, or `latest`."""
    ledger = open_here()
    return _run(ledger, ledger.where, ledger.resolve_id(wanted))


def positions(found: Run, columns: tuple[str, ...]) -> Frame:
    """Some columns of a run's position table."""
    ledger = open_here()
    return _positions(ledger, found, ledger.where, found.run, columns)


def reviews(run_id: str) -> list[Review]:
    """All reviews of a run, the first one first."""
    return open_here().reviews_of(run_id)


def judgements(run_id: str) -> list[Judgement]:
    """The gate's answers on a run, the first one first."""
    return open_here().judgements_of(run_id)


def calibration(reference: str) -> Calibration | None:
    """The newest study of the reference with this hash."""
    return open_here().load_calibration(reference)


@st.cache_data(max_entries=_KEPT_RUNS, show_spinner="Reading the run …")
def _run(_ledger: Ledger, where: str, run_id: str) -> Run:
    return _ledger.load_run(run_id)


@st.cache_data(max_entries=_KEPT_TABLES, show_spinner="Reading the table of positions …")
def _positions(
    _ledger: Ledger, _run: Run, where: str, run_id: str, columns: tuple[str, ...]
) -> Frame:
    return _ledger.load_positions(_run, columns)


def database_named() -> bool:
    """Whether the index lies in a database of its own, which may be away."""
    return bool(os.environ.get("AUDIT_DB_URL"))
