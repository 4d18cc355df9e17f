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
from dataclasses import dataclass

import streamlit as st

from audit.calibration import Calibration
from audit.ledger import Judgement, Ledger, RunFilter, RunList, open_ledger
from audit.ledger.keep import CALIBRATIONS, kept
from audit.prediction import Prediction
from audit.records import Estimate, Review, Run
from audit.report import wording
from audit.report.tables import pooled
from audit.table import Frame

_KEPT_LEDGERS, _KEPT_RUNS, _KEPT_TABLES, _KEPT_FACTS = 8, 128, 16, 5_000
_ENVIRONMENT = ("AUDIT_LEDGER", "AUDIT_DB_URL")


@dataclass(frozen=True, slots=True)
class Loss:
    """A head's loss under shift as foretold from text in distribution, and as measured."""

    predicted: Prediction | None
    measured: Estimate | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What a run's document says that the index does not."""

    losses: dict[str, Loss]
    """By the candidate's hash."""
    reference_bytes: int | None


NO_FACTS = Facts({}, None)


def ledger_argument(arguments: Sequence[str] | None = None) -> str | None:
    """What `--ledger` says after the `--` of `streamlit run app.py -- --ledger DIR`."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--ledger")
    known, _ = parser.parse_known_args(sys.argv[1:] if arguments is None else arguments)
    return known.ledger or None


def open_here() -> Ledger:
    """The ledger that `--ledger`, AUDIT_LEDGER and AUDIT_DB_URL name; touches nothing."""
    return _open(ledger_argument(), tuple(os.environ.get(name) for name in _ENVIRONMENT))


@st.cache_resource(max_entries=_KEPT_LEDGERS, show_spinner=False)
def _open(given: str | None, environment: tuple[str | None, ...]) -> Ledger:
    return open_ledger(given)


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


def whole_table(found: Run) -> Frame:
    """All columns of a run's position table, for a report; not kept."""
    return open_here().load_positions(found)


def facts(run_id: str) -> Facts:
    """What the list of heads needs beyond the index. The run's table is not checked for it."""
    ledger = open_here()
    return _facts(ledger, ledger.where, run_id)


def reviews(run_id: str) -> list[Review]:
    """All reviews of a run, the first one first."""
    return open_here().reviews_of(run_id)


def judgements(run_id: str) -> list[Judgement]:
    """The gate's answers on a run, the first one first."""
    return open_here().judgements_of(run_id)


def studied() -> list[str]:
    """Beginnings of the hashes of all references that were studied."""
    names = kept(open_here().store, CALIBRATIONS)
    return sorted({name.rpartition("/")[2].partition(".")[0] for name in names})


def calibration(reference: str) -> Calibration | None:
    """The newest study of the reference with this hash, or beginning of it."""
    return open_here().load_calibration(reference)


@st.cache_data(max_entries=_KEPT_RUNS, show_spinner="Reading the run …")
def _run(_ledger: Ledger, where: str, run_id: str) -> Run:
    return _ledger.load_run(run_id)


@st.cache_data(max_entries=_KEPT_TABLES, show_spinner="Reading the table of positions …")
def _positions(
    _ledger: Ledger, _run: Run, where: str, run_id: str, columns: tuple[str, ...]
) -> Frame:
    frame = _ledger.load_positions(_run, columns)
    words = [name for name in ("candidate", "corpus", "register", "oracle_class") if name in frame]
    return frame.astype(dict.fromkeys(words, "category"))


@st.cache_data(max_entries=_KEPT_FACTS, show_spinner=False)
def _facts(_ledger: Ledger, where: str, run_id: str) -> Facts:
    found = _ledger.files.document(run_id)
    losses = {
        one.head.sha256: Loss(
            predicted=wording.predictions_of(one).get("shift_loss"),
            measured=pooled(one.estimates, "shift_loss", "domain_shift"),
        )
        for one in found.candidates
    }
    return Facts(losses, found.reference.stored_bytes)
