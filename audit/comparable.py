"""Do these traces belong together, and to this reference? Asked before anything is multiplied.

Hashes decide, and one that is missing decides nothing: whether states fit the head is then for the
anchor to find out. A reference of another width can not be multiplied at all, so that is refused
where it is found (`measure`), by force too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.errors import BadUsageError, MismatchError
from audit.files import open_container
from audit.heads import Head
from audit.heads.vocabulary import tokenizer_hash
from audit.records import Finding
from audit.traces import Trace
from audit.traces.repeats import repeated

_TOKENIZER_HINT = "ids of two tokenizers name different words: capture with the reference's own"


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """One thing that differs."""

    code: str
    sentence: str
    hint: str


def check_belonging(ref: Head, traces: Sequence[Trace], *, force: bool = False) -> list[Finding]:
    """What was forced, what imported traces leave open, and texts that repeat (REPEATED_TEXT).

    Args:
        force: let mismatches pass; each becomes a FORCED_MISMATCH warning in the run.

    Raises:
        BadUsageError: two traces of one corpus.
        MismatchError: MODELS_DIFFER, TOKENIZER_DIFFERS or SAME_TEXT, without `force`.
    """
    _check_names(traces)
    found = [*_of_traces(traces), *_of_reference(ref, traces)]
    if found and not force:
        first = found[0]
        raise MismatchError(
            first.sentence,
            hint=f"{first.hint}; `audit compare --force` goes on and marks the run",
            where=ref.record.path,
            code=first.code,
        )
    forced = [
        Finding(
            code="FORCED_MISMATCH",
            severity="warning",
            subject="traces",
            sentence=f"{mismatch.code}, let pass by --force: {mismatch.sentence}",
        )
        for mismatch in found
    ]
    again = [finding for trace in traces for finding in repeated(trace)]
    return forced + _unchecked(traces) + again


def _check_names(traces: Sequence[Trace]) -> None:
    """Each corpus once: pooling a corpus with itself would only feign more evidence."""
    seen: dict[str, Trace] = {}
    for trace in traces:
        if seen.setdefault(trace.info.corpus, trace) is not trace:
            raise BadUsageError(
                f"two traces are of corpus {trace.info.corpus}",
                hint="give each corpus once, or capture with another --corpus name",
                where=trace.path or "",
            )


def _of_traces(traces: Sequence[Trace]) -> list[_Mismatch]:
    found = []
    models = _by(traces, lambda trace: trace.info.model_sha256)
    if len(models) > 1:
        names = ", ".join(f"{group[0].info.model} ({_corpora(group)})" for group in models)
        sentence = f"the traces are of {len(models)} different models: {names}"
        found.append(_Mismatch("MODELS_DIFFER", sentence, "audit one verifier at a time"))
    tokenizers = _by(traces, lambda trace: trace.info.tokenizer_sha256)
    if len(tokenizers) > 1:
        sentence = f"the traces have {len(tokenizers)} tokenizers: " + " against ".join(
            _corpora(group) for group in tokenizers
        )
        found.append(_Mismatch("TOKENIZER_DIFFERS", sentence, _TOKENIZER_HINT))
    for group in _by(traces, lambda trace: trace.info.corpus_sha256):
        if len(group) > 1:
            sentence = f"{_corpora(group)} are the same text under {len(group)} names"
            hint = "give each text once: pooling it with itself would only feign more evidence"
            found.append(_Mismatch("SAME_TEXT", sentence, hint))
    return found


def _of_reference(ref: Head, traces: Sequence[Trace]) -> list[_Mismatch]:
    """The tokenizer beside the reference; a GGUF's may be spelled otherwise and decides nothing."""
    known = [trace for trace in traces if trace.info.tokenizer_sha256]
    if not known or ref.record.container != "safetensors":
        return []
    own = tokenizer_hash(open_container(Path(ref.record.path)))
    others = [trace for trace in known if own and trace.info.tokenizer_sha256 != own]
    if not others:
        return []
    sentence = (
        f"the tokenizer beside {ref.record.name} is not that of the traces of {_corpora(others)}"
    )
    return [_Mismatch("TOKENIZER_DIFFERS", sentence, _TOKENIZER_HINT)]


def _unchecked(traces: Sequence[Trace]) -> list[Finding]:
    """Imported traces of which nobody has shown that states and tokens belong together."""
    found = []
    for trace in traces:
        alignment = trace.info.settings.get("alignment")
        status = alignment.get("status") if isinstance(alignment, dict) else None
        if status in ("unchecked", "forced"):
            sentence = (
                f"this imported trace's alignment of states and tokens is {status}; import it "
                "again with --model to have it checked"
            )
            found.append(
                Finding(
                    code="ALIGNMENT_UNCHECKED",
                    severity="warning",
                    subject=trace.info.corpus,
                    sentence=sentence,
                )
            )
    return found


def _by(traces: Sequence[Trace], key: Callable[[Trace], str | None]) -> list[list[Trace]]:
    """Traces grouped by a hash that they have, in the order of the first of each group."""
    groups: dict[str, list[Trace]] = {}
    for trace in traces:
        if value := key(trace):
            groups.setdefault(value, []).append(trace)
    return list(groups.values())


def _corpora(traces: Sequence[Trace]) -> str:
    return ", ".join(trace.info.corpus for trace in traces)
