"""Where corpora are found: those inside the package, external ones, or any folder.

Packaged are thirteen corpora with their text, and manifests of external ones, which name a source
and are drawn only when somebody asks for one by its name.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

from audit.corpora.manifest import FILE, Corpus, read_corpus
from audit.errors import BadUsageError, NotFoundError

PACKAGE = "audit_corpora"
"""Name under which the repository's `corpora/` folder is installed."""
EXTERNAL = "external"
"""Its folder of manifests without text."""


def bundled_folder() -> Path:
    """Where the bundled corpora lie. Raises NotFoundError when they were not installed."""
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        if Path(place).is_dir():
            return Path(place)
    raise NotFoundError(
        "the bundled corpora are not installed with this package",
        hint="install head-audit again, or give your own text with --text",
    )


def load_corpora(folder: Path | None = None) -> list[Corpus]:
    """All corpora in a folder, by name; the bundled ones by default.

    Raises:
        NotFoundError: there are none.
        UnreadableError: a manifest is malformed.
    """
    folder = folder or bundled_folder()
    found = [read_corpus(path.parent) for path in sorted(folder.glob(f"*/{FILE}"))]
    if not found:
        raise NotFoundError(
            f"there is no corpus in {folder}",
            hint=f"a corpus is a folder in it that holds {FILE}",
            where=folder,
        )
    return found


def external_corpora() -> list[Corpus]:
    """The packaged manifests that name a source. Nothing is fetched."""
    return load_corpora(bundled_folder() / EXTERNAL)


def find_corpus(name: str, folder: Path | None = None) -> Corpus:
    """The corpus of that name, or the folder with a `manifest.toml` that `name` is the path of.

    Args:
        name: a bundled or external corpus, or a path.
        folder: look among the corpora of this folder instead of the packaged ones.

    Raises:
        BadUsageError: there is none; the hint names what there is.
        UnreadableError: its manifest is malformed.
    """
    known = load_corpora(folder) if folder else [*load_corpora(), *external_corpora()]
    named = {corpus.manifest.name: corpus for corpus in known}
    if name in named:
        return named[name]
    if (Path(name) / FILE).is_file():
        return read_corpus(Path(name))
    near = get_close_matches(name, named, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise BadUsageError(
        f"there is no corpus {name!r}",
        hint=f"{hint}one of {', '.join(named)}; or the path of a folder with {FILE}; "
        "or your own text with --text",
    )
