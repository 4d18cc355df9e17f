"""REF and CAND from files: which head is meant, and both loaded so that they can be compared.

Without `--head` it is the one that all candidates say they were forged as; else the only head that
all files hold, and where they hold several, the LM head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from audit.blocks import (
    BlockHead,
    BlockOptions,
    HeadName,
    check_read,
    heads_in,
    load_block_head,
    parse_head_name,
)
from audit.errors import BadUsageError, MismatchError
from audit.files import Container, open_container
from audit.files.made import made_by_forge
from audit.files.paths import check_is_file
from audit.heads import Head, HeadOptions, Proposals, load_candidate, load_head
from audit.heads.finding import find_lora
from audit.heads.loading import check_vocabulary
from audit.heads.proposals import is_proposals


@dataclass(frozen=True, slots=True)
class HeadChoice:
    """Which head is audited, and which others all the files hold too."""

    name: HeadName
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PairOptions:
    """What a user may say about the pair as a whole."""

    head: str | None = None
    """`--head`; None to choose from what the files hold."""
    block: BlockOptions = field(default_factory=BlockOptions)


def choose_head(ref: Path, cands: Sequence[Path], asked: str | None) -> HeadChoice:
    """The head to audit.

    Early exits are never chosen unasked: every file with layers holds them.

    Raises:
        BadUsageError: `asked` names no kind of head.
        NotFoundError: one of the files is not there; told before any is read.
    """
    for path in (ref, *cands):
        if not path.is_dir():
            check_is_file(path)
    if asked:
        return HeadChoice(parse_head_name(asked))
    forged = {_forged_as(path) for path in cands}
    if len(forged) == 1 and (name := forged.pop()):
        return HeadChoice(name)
    common = _held(open_container(ref))
    for path in cands:
        found = _held(open_container(path))
        common = [name for name in common if name in found]
    if len(common) == 1:
        return HeadChoice(parse_head_name(common[0]))
    return HeadChoice(parse_head_name("lm"), tuple(name for name in common if name != "lm"))


def load_ref(path: Path, choice: HeadChoice, options: HeadOptions, block: BlockOptions) -> Head:
    """The reference.

    Raises:
        AuditError: as `load_head`, `load_block_head` and `check_read` do.
    """
    check_read(block, choice.name.kind)
    if choice.name.kind == "lm":
        return load_head(path, options)
    return load_block_head(open_container(path), choice.name, options, None, block)


def load_cand(
    path: Path, choice: HeadChoice, options: HeadOptions, block: BlockOptions, ref: Head
) -> Head | Proposals:
    """One candidate for `ref`.

    Raises:
        AuditError: as `load_candidate` and `load_block_head` do; MismatchError when it drafts
            another number of tokens ahead.
    """
    container = open_container(path)
    bare = choice.name.kind == "lm" or is_proposals(container) or find_lora(container.entries)
    if bare:
        return load_candidate(path, options, ref)
    head = load_block_head(container, choice.name, options, ref, block)
    if head.lookahead != ref.lookahead:
        raise MismatchError(
            f"{head.record.name} proposes {head.lookahead} tokens ahead, {ref.record.name} "
            f"{ref.lookahead}",
            hint="compare heads of one kind",
            where=path,
        )
    return check_vocabulary(head, ref)


def same_block(cand: Head, ref: Head) -> bool:
    """True when the same states enter both projections."""
    if isinstance(cand, BlockHead) and isinstance(ref, BlockHead):
        return cand.block.sha256 == ref.block.sha256
    return not isinstance(cand, BlockHead) and not isinstance(ref, BlockHead)


def same_parameters(cand: Head, ref: Head) -> bool:
    """Two blocks whose every weight decodes to the same number, however they are stored."""
    if not isinstance(cand, BlockHead) or not isinstance(ref, BlockHead):
        return False
    ours, theirs = (head.block.modules.state_dict() for head in (cand, ref))
    return ours.keys() == theirs.keys() and all(
        torch.equal(value, theirs[name]) for name, value in ours.items()
    )


def _forged_as(path: Path) -> HeadName | None:
    """The head that `audit forge` cut into this file; None where it does not say a known one."""
    about = made_by_forge(open_container(path).metadata) or {}
    try:
        return parse_head_name(str(about.get("head")))
    except BadUsageError:
        return None


def _held(container: Container) -> list[str]:
    """Heads of a file without its early exits; a lone matrix or proposals count as an LM head."""
    found = [name for name in heads_in(container) if not name.startswith("exit:")]
    return found or ["lm"]
