"""Traces of the bundled corpora for a whole model, captured once and kept in a cache."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path

from audit.cache import cache_folder
from audit.corpora import Corpus, corpus_documents, load_corpora
from audit.provenance import canonical_json
from audit.records import Register
from audit.traces.model_files import find_model, identify
from audit.traces.recipe import Recipe, Source
from audit.traces.suite import Job, Progress, Suite, capture_suite

POSITIONS = 2500
"""Positions per corpus: what the published study measured on."""
CONTEXT = 512


def whole_model(path: Path) -> Path | None:
    """The model that `path` is or lies in: a GGUF with layers, or a folder with a tokenizer."""
    if path.suffix == ".gguf":
        from audit.files import open_container

        entries = open_container(path).entries
        return path if any(name.startswith("blk.0.") for name in entries) else None
    folder = path if path.is_dir() else path.parent
    needed = ("config.json", "tokenizer.json")
    return folder if all((folder / name).is_file() for name in needed) else None


def source_of(
    corpus: Corpus, register: Register | None = None, language: str | None = None
) -> Source:
    """A corpus as the text of a trace, its documents checked or drawn.

    Args:
        register, language: instead of what its manifest says.

    Raises:
        AuditError: as `corpus_documents`.
    """
    manifest = corpus.manifest
    return Source(
        corpus=manifest.name,
        register=register or manifest.register_,
        language=language or manifest.language,
        documents=corpus_documents(corpus),
    )


def bundled_traces(
    model: Path, progress: Progress | None = None, *, layers: tuple[int, ...] = ()
) -> list[Path]:
    """One trace per bundled corpus, captured where the cache does not hold it yet.

    Traces of other models and settings lie side by side; what is used is up to date in every
    respect (see `suite`).

    Raises:
        AuditError: the model can not be run, or a corpus is damaged.
    """
    recipe = Recipe(context=CONTEXT, max_positions=POSITIONS, layers=layers)
    sources = [source_of(corpus) for corpus in load_corpora()]
    identity = identify(find_model(model))
    folder = cache_folder() / "traces" / identity.model_sha256[:16]
    key = hashlib.sha256(canonical_json(asdict(recipe)).encode()).hexdigest()[:8]
    jobs = [Job(one, folder / f"{one.corpus}-{key}.trace.safetensors") for one in sources]
    capture_suite(Suite(model, identity, jobs, recipe), progress)
    return [job.path for job in jobs]
