"""Which texts `audit capture` runs over, and where their traces go, from its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from audit.cli.naming import check_names
from audit.errors import BadUsageError
from audit.outputs import unwritable

if TYPE_CHECKING:
    from audit.corpora import Corpus
    from audit.traces.recipe import Generation, Source
    from audit.traces.suite import Job

STANDARD = "standard"
_GENERATED = "-generated"


@dataclass(frozen=True, slots=True)
class Jobs:
    """What is asked for."""

    jobs: list[Job]
    is_suite: bool
    """A folder of traces, of which those that are up to date are kept."""
    max_positions: int | None


def jobs_of(
    options: dict[str, Any], output: Path, model: Path, generation: Generation | None
) -> Jobs:
    """The texts that the options name, and the places of their traces, which are tried.

    Raises:
        BadUsageError: options that contradict each other, or a place that can not be written.
        AuditError: a text can not be read.
    """
    from audit.traces.suite import Job

    is_suite = options["suite"] is not None or (
        not options["texts"] and len(options["corpora"]) > 1
    )
    _check_options(options, is_suite)
    named = options["corpora"][0] if options["texts"] and options["corpora"] else None
    check_names(named, options["language"])
    if not is_suite:
        check_output(output, model, options["texts"])
        return Jobs(
            [Job(_only_source(options, generation), output)], False, options["max_positions"]
        )
    from audit.traces import bundled
    from audit.traces.find import SUFFIX

    corpora = _corpora(options)
    places = [output / f"{_name(c.manifest.name, generation)}{SUFFIX}" for c in corpora]
    for place in places:
        check_output(place, model, ())
    jobs = [
        Job(_renamed(bundled.source_of(corpus), generation), place)
        for corpus, place in zip(corpora, places, strict=True)
    ]
    return Jobs(jobs, True, options["max_positions"] or bundled.POSITIONS)


def _check_options(options: dict[str, Any], is_suite: bool) -> None:
    """Refuse what would be ignored or would mean two things."""
    if options["texts"] and (options["suite"] or len(options["corpora"]) > 1):
        raise BadUsageError(
            "a suite is made of corpora, and --text is none",
            hint="capture the text alone, with at most one --corpus to name it",
        )
    for name in () if options["texts"] else ("field", "split"):
        if options[name]:
            raise BadUsageError(
                f"--{name} is about --text files, and none was given", hint="leave it out"
            )
    for name in ("register", "language") if is_suite else ():
        if options[name]:
            raise BadUsageError(
                f"--{name} would be said of every corpus of the suite",
                hint="leave it out: each manifest has its own; or capture one corpus alone",
            )


def _corpora(options: dict[str, Any]) -> list[Corpus]:
    """The corpora of a suite, each once, in the order given."""
    from audit.corpora import find_corpus, load_corpora

    given = [name.strip() for name in (options["suite"] or "").split(",")]
    if options["suite"] is not None and not all(given):
        raise BadUsageError(
            f"--suite {options['suite']!r} leaves a name out", hint="--suite standard, or NAME,NAME"
        )
    found: list[Corpus] = []
    for name in [*filter(None, given), *options["corpora"]]:
        found += load_corpora() if name == STANDARD else [find_corpus(name)]
    by_name: dict[str, Corpus] = {}
    for corpus in found:
        if by_name.setdefault(corpus.manifest.name, corpus).folder != corpus.folder:
            raise BadUsageError(
                f"two corpora are named {corpus.manifest.name}",
                hint="their traces would be one file: capture them into two folders",
                where=corpus.folder,
            )
    return list(by_name.values())


def _only_source(options: dict[str, Any], generation: Generation | None) -> Source:
    """The one text that was named."""
    from audit.corpora import find_corpus, own_documents
    from audit.report.wording import clean
    from audit.traces.bundled import source_of
    from audit.traces.recipe import Source

    register, language, names = options["register"], options["language"], options["corpora"]
    if options["texts"]:
        name = names[0] if names else _name(options["texts"][0].stem, generation)
        documents = own_documents(
            options["texts"], split_blank_lines=options["split"], field=options["field"]
        )
        return Source(clean(name), register or "in_distribution", language, documents)
    if not names:
        raise BadUsageError(
            "there is no text to run over",
            hint="give --text FILE, --corpus NAME (audit corpora), or --suite standard",
        )
    return _renamed(source_of(find_corpus(names[0]), register, language), generation)


def _renamed(source: Source, generation: Generation | None) -> Source:
    """A text that is continued is another text, and may stand beside the plain one."""
    return replace(source, corpus=_name(source.corpus, generation))


def _name(corpus: str, generation: Generation | None) -> str:
    return corpus + _GENERATED if generation else corpus


def check_output(output: Path, model: Path, texts: Sequence[Path]) -> None:
    """Raises BadUsageError unless a trace can be written there without loss of anything else."""
    why = unwritable(output) or _in_use(output, model, texts)
    if why:
        raise BadUsageError(
            f"the trace cannot be written: {why}", hint="choose another place with -o", where=output
        )


def _in_use(output: Path, model: Path, texts: Sequence[Path]) -> str:
    """What else the file is or would become; empty for a trace and for nothing."""
    from audit.traces.find import SUFFIX
    from audit.traces.metadata import is_trace

    if output.exists():
        if any(text.exists() and output.samefile(text) for text in texts):
            return "this is a text to run over"
        return "" if is_trace(output) else "this file is there already and is not a trace"
    inside = output.absolute().parent.resolve() == model.resolve()
    if inside and not output.name.endswith(SUFFIX):
        return f"only *{SUFFIX} may lie among the model's files"
    return ""
