"""Traces of the bundled corpora for a whole model, captured once and kept in a cache."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from audit.corpora import Corpus, corpus_documents, load_corpora, verify
from audit.provenance import canonical_json, sha256_files

ENVIRONMENT = "AUDIT_CACHE"
POSITIONS = 2500
"""Positions per corpus: what the published study measured on."""
CONTEXT = 512

Progress = Callable[[str, int, int], None]


def cache_folder() -> Path:
    """AUDIT_CACHE, or head-audit in the user's cache folder."""
    given = os.environ.get(ENVIRONMENT)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(base) / "head-audit"


def whole_model(path: Path) -> Path | None:
    """The model that `path` is or lies in: a GGUF with layers, or a folder with a tokenizer."""
    if path.suffix == ".gguf":
        from audit.files import open_container

        entries = open_container(path).entries
        return path if any(name.startswith("blk.0.") for name in entries) else None
    folder = path if path.is_dir() else path.parent
    needed = ("config.json", "tokenizer.json")
    return folder if all((folder / name).is_file() for name in needed) else None


def bundled_traces(
    model: Path, progress: Progress | None = None, *, layers: tuple[int, ...] = ()
) -> list[Path]:
    """One trace per bundled corpus, captured where the cache does not hold it yet.

    The cache is keyed by the model's weights, the corpus and the settings, so nothing stale is
    ever used.

    Raises:
        AuditError: the model can not be run, or a corpus is damaged.
    """
    corpora = load_corpora()
    weights = [model] if model.is_file() else sorted(model.glob("*.safetensors"))
    folder = cache_folder() / "traces" / sha256_files(weights)[:16]
    paths = [folder / f"{_key(corpus, layers)}.trace.safetensors" for corpus in corpora]
    missing = [(c, p) for c, p in zip(corpora, paths, strict=True) if not p.exists()]
    if missing:
        _capture(model, missing, progress, layers)
    return paths


def _key(corpus: Corpus, layers: tuple[int, ...]) -> str:
    settings = {
        "sha256": corpus.manifest.sha256,
        "positions": POSITIONS,
        "context": CONTEXT,
        "layers": list(layers),
    }
    digest = hashlib.sha256(canonical_json(settings).encode()).hexdigest()[:8]
    return f"{corpus.manifest.name}-{digest}"


def _capture(
    model: Path,
    missing: list[tuple[Corpus, Path]],
    progress: Progress | None,
    layers: tuple[int, ...],
) -> None:
    from audit.traces.capture import capture
    from audit.traces.trace import write_trace
    from audit.traces.verifier import load_verifier

    for corpus, _ in missing:
        verify(corpus)
    verifier = load_verifier(model)
    for corpus, path in missing:
        manifest = corpus.manifest

        def report(done: int, total: int, name: str = manifest.name) -> None:
            if progress:
                progress(f"capture {name}", done, total)

        trace = capture(
            verifier,
            corpus_documents(corpus),
            corpus=manifest.name,
            register=manifest.register_,
            language=manifest.language,
            context=CONTEXT,
            max_positions=POSITIONS,
            layers=layers,
            progress=report,
        )
        write_trace(trace, path)
