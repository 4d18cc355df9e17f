"""Several traces for one audit: read, ordered by register, and fit to stand together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from audit.errors import BadUsageError, MismatchError
from audit.samples import REGISTERS
from audit.traces.trace import Trace, read_trace


def read_traces(paths: Iterable[Path], *, check: bool = True) -> list[Trace]:
    """Read traces of one verifier, those in distribution first, then by corpus.

    Args:
        check: refuse those of several verifiers or of one corpus; an audit asks `comparable`.

    Raises:
        AuditError: as `read_trace`; BadUsageError for two traces of one corpus, MismatchError for
            traces of different models.
    """
    traces = sorted(
        (read_trace(path) for path in paths),
        key=lambda trace: (REGISTERS.index(trace.info.register_), trace.info.corpus),
    )
    if check:
        _check_corpora(traces)
    return traces


def _check_corpora(traces: Sequence[Trace]) -> None:
    """Each corpus once: pooling a corpus with itself would only feign more evidence."""
    seen: dict[str, Trace] = {}
    for trace in traces:
        other = seen.setdefault(trace.info.corpus, trace)
        if other is not trace:
            raise BadUsageError(
                f"two traces are of corpus {trace.info.corpus}",
                hint="give each corpus once, or capture with another --corpus name",
                where=trace.path or "",
            )
    models = {trace.info.model_sha256 for trace in traces}
    if len(models) > 1:
        raise MismatchError(
            f"the traces are of {len(models)} different models: "
            f"{', '.join(sorted({trace.info.model for trace in traces}))}",
            hint="audit one verifier at a time",
        )
