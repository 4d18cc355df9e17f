"""What the verifier's files tell of states that came without it: head, norm, layers, hashes.

Nothing of the model is run; its head and norm are read as for any audit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from audit.blocks import layer_count
from audit.errors import MismatchError
from audit.files import open_container
from audit.heads import Head, HeadOptions, load_head
from audit.heads.vocabulary import tokenizer_hash
from audit.provenance import sha256_files


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """The verifier, as far as a dump needs it."""

    head: Head
    name: str
    """As `audit capture` names it: the folder or the file without its suffix."""
    sha256: str
    """Of its weight files, the same as in a captured trace."""
    tokenizer_sha256: str | None
    vocabulary: int
    """Ids below this are the tokenizer's."""
    depth: int | None
    """Number of layers, where the configuration says."""


def open_model(path: Path) -> Model:
    """The verifier from a Hugging Face folder, a safetensors file or a GGUF.

    Raises:
        AuditError: it can not be read, or has no head with a row for every id.
    """
    container = open_container(path)
    head = load_head(path, HeadOptions())
    if not head.is_full:
        raise MismatchError(
            f"{path} has a trimmed head of {len(head.ids):,} rows for {head.vocabulary:,} ids",
            hint="give the target model itself with --model, not a draft",
            where=path,
        )
    known = head.vocabulary if head.valid is None else min(head.valid, head.vocabulary)
    return Model(
        head=head,
        name=path.stem if path.is_file() else path.resolve().name,
        sha256=sha256_files(list(container.files)),
        tokenizer_sha256=tokenizer_hash(container),
        vocabulary=known,
        depth=layer_count(container),
    )
