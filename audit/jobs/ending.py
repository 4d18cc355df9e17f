"""What became of an audit, from what its process left: document, exit code, last complaint."""

from __future__ import annotations

import json
import signal
from typing import Any

from audit.jobs.records import JobError, JobState
from audit.provenance import now_utc

_BY_HAND = "run the same audit at the terminal to see more"


def ended(
    begun: JobState, told: bytes, complaint: str, exit_code: int | None, *, unwanted: bool
) -> JobState:
    """The last state of a job.

    A run that was told counts, whatever came after: then it is in the ledger.

    Args:
        told: stdout of `audit compare --json`.
        complaint: the last line of its stderr.
        exit_code: negative for a signal; None where nobody was there to see it.
        unwanted: someone asked for its end.
    """
    document = _document(told)
    last: dict[str, Any] = {"ended": now_utc(), "exit_code": exit_code}
    run = document.get("run")
    if isinstance(run, str) and run and "candidates" in document:
        return begun.model_copy(update={**last, "status": "done", "run": run})
    if unwanted:
        return begun.model_copy(update={**last, "status": "cancelled"})
    error = _error(document) or _silent(exit_code, complaint)
    return begun.model_copy(update={**last, "status": "failed", "error": error})


def _document(told: bytes) -> dict[str, Any]:
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(document: dict[str, Any]) -> JobError | None:
    """The error that the audit told."""
    found = document.get("error")
    if not isinstance(found, dict) or not found.get("message"):
        return None
    message, where = str(found["message"]), str(found.get("where") or "")
    told = message if where in message else f"{message} [{where}]"
    return JobError(message=told, hint=str(found.get("hint") or ""))


def _silent(exit_code: int | None, complaint: str) -> JobError:
    """Of an audit that ended without a word."""
    if exit_code is None:
        return JobError(
            message="the audit ended while nobody watched it, and left no result",
            hint="the machine was restarted, or the process was killed; start the audit again",
        )
    if exit_code == -signal.SIGKILL:
        return JobError(
            message="the audit was killed (SIGKILL), as a system does that runs out of memory",
            hint="compare fewer candidates at once, or free memory, and start it again",
        )
    if exit_code < 0:
        return JobError(message=f"the audit was ended by {_signal_name(-exit_code)}", hint=_BY_HAND)
    said = f": {complaint}" if complaint else " and said nothing"
    return JobError(message=f"the audit ended with exit code {exit_code}{said}", hint=_BY_HAND)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
