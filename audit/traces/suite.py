"""Several texts become a folder of traces, and only what is not there already is captured.

Nothing is kept beside the traces: each says itself what it was made from, and a trace is up to
date when it says what would be said of the one made now. So a suite that was interrupted goes on
where it stopped, and a model, a text, a setting or a version that changed is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from audit.atomic import remove_leftovers
from audit.errors import AuditError
from audit.records import TraceInfo
from audit.traces.metadata import read_info
from audit.traces.model_files import Identity
from audit.traces.recipe import Recipe, Source, describe

Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""
_ONLY_THE_MODEL_KNOWS = {"tokenizer_sha256", "vocabulary"}


@dataclass(frozen=True, slots=True)
class Job:
    """One text, and where its trace belongs."""

    source: Source
    path: Path


@dataclass(frozen=True, slots=True)
class Suite:
    """Everything that is asked for."""

    model: Path
    identity: Identity
    """The model's, as `identify` gives it."""
    jobs: Sequence[Job]
    recipe: Recipe
    device: str = "cpu"
    dtype: str = "float32"
    """Name of a torch type."""


class State(StrEnum):
    """What is at a job's place."""

    THERE = "there"
    MISSING = "missing"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a job's place before anything is captured."""

    job: Job
    state: State
    differs: tuple[str, ...] = ()
    """For a changed one, what differs: fields of its description."""


def look(suite: Suite) -> list[Found]:
    """What is there already. The model is not opened."""
    return [_look_at(job, suite) for job in suite.jobs]


def capture_suite(
    suite: Suite, progress: Progress | None = None, *, again: bool = False
) -> list[Found]:
    """Capture what is missing or changed; each trace appears whole.

    Args:
        again: also capture what is there.

    Returns:
        What was found at each place beforehand.

    Raises:
        AuditError: the model can not be run, a setting is out of range, or a trace can not be
            written. Traces that were complete by then stay.
    """
    suite.recipe.check()
    report = progress or (lambda what, done, total: None)
    for job in suite.jobs:
        remove_leftovers(job.path)
    found = look(suite)
    wanted = [one.job for one in found if again or one.state != State.THERE]
    if wanted:
        report("loading the model", 0, 1)
        verifier = _open(suite)
        for number, job in enumerate(wanted, start=1):
            which = f"{job.source.corpus} ({number}/{len(wanted)})" if len(suite.jobs) > 1 else ""
            # Another process may have made it meanwhile.
            if again or _look_at(job, suite).state != State.THERE:
                _capture(verifier, job, suite.recipe, which, report)
    return found


def _open(suite: Suite) -> Any:
    import torch

    from audit.traces.verifier import load_verifier

    return load_verifier(suite.model, suite.device, getattr(torch, suite.dtype), suite.identity)


def _capture(verifier: Any, job: Job, recipe: Recipe, which: str, report: Progress) -> None:
    from audit.traces.capture import capture
    from audit.traces.trace import write_trace

    trace = capture(
        verifier,
        job.source,
        recipe,
        lambda what, done, total: report(f"{what} {which}".strip(), done, total),
    )
    write_trace(trace, job.path)


def _look_at(job: Job, suite: Suite) -> Found:
    if not job.path.exists():
        return Found(job, State.MISSING)
    try:
        said = _comparable(read_info(job.path))
    except AuditError:
        return Found(job, State.CHANGED, ("all of it: it is no readable trace",))
    kind = suite.device.partition(":")[0]
    wanted = _comparable(
        describe(suite.identity, job.source, suite.recipe, device=kind, dtype=suite.dtype)
    )
    fields = said.keys() | wanted.keys()
    names = sorted(name for name in fields if said.get(name, ...) != wanted.get(name, ...))
    return Found(job, State.CHANGED if names else State.THERE, tuple(names))


def _comparable(info: TraceInfo) -> dict[str, Any]:
    """A description's fields, those of its settings beside the others."""
    fields = info.model_dump(by_alias=True, mode="json", exclude=_ONLY_THE_MODEL_KNOWS)
    settings = fields.pop("settings")
    return fields | {f"settings.{name}": value for name, value in settings.items()}
