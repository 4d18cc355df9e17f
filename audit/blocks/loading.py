"""`load_block_head`: a file and a head's name become a head whose states its own block makes.

The projection is read by `audit.heads.lm`, as for a bare head; the block by the module of its kind.
A candidate may hold only one of the two: the other is then the reference's, and the record says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from audit.blocks.assembly import Origin
from audit.blocks.block import Block
from audit.blocks.eagle3 import build_eagle3
from audit.blocks.exits import build_exit
from audit.blocks.finding import holds_block, holds_projection
from audit.blocks.head_names import HeadName, parse_head_name
from audit.blocks.medusa import build_medusa, find_medusa
from audit.blocks.mtp import build_mtp
from audit.blocks.mtp_layouts import find_mtp
from audit.blocks.options import BlockOptions
from audit.blocks.presence import check_present
from audit.blocks.unread import unread_tensors
from audit.errors import MismatchError, NotFoundError
from audit.files import Container
from audit.files.depth import layer_numbers
from audit.files.made import made_by_forge
from audit.heads import names
from audit.heads.head import Head
from audit.heads.identity import head_hash
from audit.heads.lm import container_rules, lm_head
from audit.heads.options import HeadOptions
from audit.records import HeadRecord

_DEFAULTS = BlockOptions()


@dataclass(frozen=True, slots=True, eq=False)
class BlockHead(Head):
    """A head with a draft block; `lookahead` is the block's."""

    block: Block = field(kw_only=True)
    projection: HeadRecord = field(kw_only=True)
    """The rows alone; `record` speaks of rows and block together."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the rows as stored, without the block."""
        return self.projection.stored_bytes or 0


def load_block_head(
    container: Container,
    head_name: str | HeadName,
    options: HeadOptions,
    base: Head | None = None,
    block_options: BlockOptions = _DEFAULTS,
) -> Head:
    """The head `head_name` in `container`; a plain `Head` for `lm`, else a `BlockHead`.

    Args:
        container: all shards of the file or folder.
        options: what the user said of the projection.
        base: the reference, when this is a candidate.
        block_options: what the user said of the block, and the target model.

    Raises:
        AuditError: HEAD_ABSENT, MTP_DECLARED_ABSENT, DRAFT_HEAD_ABSENT, BLOCK_INCOMPLETE,
            BLOCK_SHAPE, SCALE_UNUSED and what `lm_head` raises.
    """
    name = parse_head_name(head_name) if isinstance(head_name, str) else head_name
    if name.kind == "lm":
        return lm_head(container, options, base)
    kin = base if isinstance(base, BlockHead) and base.block.name == str(name) else None
    own = None if options.tensor or options.factors else _own_projection(container, name, kin)
    named = bool(own or options.tensor or options.factors)
    ours = kin.block if kin else None
    check_present(container, name, ours, named or holds_projection(container, name))
    if own:
        head, notes = _own_rows(container, own, options, base)
    elif named or holds_projection(container, name):
        head, notes = lm_head(container, _with_vocabulary(container, options), base), ()
    else:
        head, notes = _borrowed_rows(container, name, kin or base, block_options)
    if holds_block(container, name):
        verifier = block_options.verifier
        norm = head.norm or (lm_head(verifier, HeadOptions(), None).norm if verifier else None)
        block = _build(Origin(container, block_options, ours, norm), name)
    else:
        assert ours is not None
        block = ours
        notes += ("no block in this file: the reference's block is used",)
    unread = (*head.unread, *unread_tensors(container, name, block))
    return replace(_join(container, head, block, notes), unread=tuple(dict.fromkeys(unread)))


def _build(origin: Origin, name: HeadName) -> Block:
    if name.kind == "mtp":
        return build_mtp(origin)
    if name.kind == "eagle3":
        return build_eagle3(origin)
    if name.kind == "medusa":
        return build_medusa(origin, name)
    return build_exit(origin, name)


def _join(container: Container, head: Head, block: Block, notes: tuple[str, ...]) -> BlockHead:
    """Projection and block as one head, if the one's width is the other's."""
    if head.hidden_size != block.hidden_size:
        raise MismatchError(
            f"the block of {block.name} gives states of width {block.hidden_size}, the projection "
            f"reads {head.hidden_size}",
            hint="block and projection are of different models",
            where=container.path,
            code="BLOCK_SHAPE",
        )
    record = head.record.model_copy(
        update={
            "name": container.path.name,
            "path": str(container.path),
            "kind": block.name,
            "sha256": head_hash([], {"projection": head.record.sha256, "block": block.sha256}),
            "stored_bytes": (head.record.stored_bytes or 0) + block.stored_bytes,
            "tensors": (*head.record.tensors, *dict.fromkeys(block.tensors.values())),
            "notes": (*head.record.notes, *notes, *block.notes),
        }
    )
    return BlockHead(
        record=record,
        rows=head.rows,
        ids=head.ids,
        hidden_size=head.hidden_size,
        bias=head.bias,
        adapt=head.adapt,
        norm=head.norm,
        post=head.post,
        valid=head.valid,
        lookahead=block.lookahead,
        block=block,
        projection=head.record,
    )


def _own_rows(
    container: Container, own: str, options: HeadOptions, base: Head | None
) -> tuple[Head, tuple[str, ...]]:
    """The rows that belong to the draft alone, with a note that names them."""
    head = lm_head(container, replace(options, tensor=own), base)
    # It was found, not named by the user.
    others = tuple(note for note in head.record.notes if "named by the user" not in note)
    record = head.record.model_copy(update={"notes": others})
    return replace(head, record=record), (f"the draft's own head: {own}",)


def _borrowed_rows(
    container: Container, name: HeadName, base: Head | None, block_options: BlockOptions
) -> tuple[Head, tuple[str, ...]]:
    """The rows that a block without any is run with, and a note on whose they are."""
    if isinstance(base, BlockHead) and base.block.name == str(name):
        theirs = replace(base, record=base.projection, unread=())
        return theirs, ("no projection in this file: the reference's is used",)
    if name.kind == "eagle3":
        _check_borrowing(container, name, block_options)
    verifier = block_options.verifier
    target = base
    if verifier:
        # A model may hold rows of this very head beside its own.
        target = lm_head(verifier, HeadOptions(_own_projection(verifier, name, None)), None)
    if target is None:
        raise _no_head(container, name, "and no target model was named")
    rows = replace(target, unread=())
    return rows, (f"the target's head is used: {target.record.path}",)


def _with_vocabulary(container: Container, options: HeadOptions) -> HeadOptions:
    """speculators nests the target vocabulary's size, which a trimmed draft's map needs."""
    nested = (container.config or {}).get("transformer_layer_config")
    size = nested.get("vocab_size") if isinstance(nested, Mapping) else None
    if options.vocabulary or not isinstance(size, int):
        return options
    return replace(options, vocabulary=size)


def _own_projection(container: Container, name: HeadName, ref: BlockHead | None) -> str | None:
    """A projection that belongs to the draft alone. Published case (memra): 0 of 248 accepted
    with the trunk's head in its place.

    A cut may hold it without its block; it is then known by the name that the reference gives it.
    """
    if name.kind == "medusa":
        medusa = find_medusa(container).get(int(name.detail))
        if medusa and medusa.head:
            return medusa.head
    mtp = find_mtp(container) if name.kind == "mtp" else None
    if mtp and mtp.head:
        return mtp.head
    theirs = ref.projection.tensors if ref else ()
    usual = {*names.LM_HEAD[container.format], *names.EMBEDDING[container.format]}
    same = len(theirs) == 1 and theirs[0] in container.entries
    return theirs[0] if same and names.plain(theirs[0]) not in usual else None


def _check_borrowing(container: Container, name: HeadName, block_options: BlockOptions) -> None:
    """An EAGLE-3 draft without a head takes the target's only when told so, and untrimmed."""
    trimmed = [name for name in names.MAPS if name in container.entries]
    config = container.config or {}
    vocabulary, draft = config.get("vocab_size"), config.get("draft_vocab_size")
    if trimmed or (draft and vocabulary and draft < vocabulary):
        what = trimmed[0] if trimmed else "draft_vocab_size"
        raise _no_head(container, name, f"and its {what} shows a vocabulary of its own")
    if not block_options.borrow_target_head:
        raise _no_head(container, name, "which some engines then fill with random numbers")


def _no_head(container: Container, name: HeadName, why: str) -> NotFoundError:
    """The error of a block that has no projection, with what would give it one."""
    if name.kind != "eagle3" and 0 in layer_numbers(container):
        untied = container_rules(container).tied is False
        lost = " though the configuration says that embeddings are not tied" if untied else ""
        return NotFoundError(
            f"this model lacks {names.LM_HEAD[container.format][0]}{lost}",
            hint="export it whole, or correct tie_word_embeddings; or --verifier MODEL for the "
            "model whose head it uses",
            where=container.path,
            code="HEAD_ABSENT",
        )
    made = made_by_forge(container.metadata) or {}
    whole = f"cut {made.get('reference')} itself, which holds the projection"
    if name.kind == "eagle3":
        hint = (
            "export the draft with its lm_head; where it was trained on the target's, say "
            "--borrow-target-head --verifier MODEL"
        )
    else:
        hint = "name the model whose head it uses: --verifier MODEL"
    if made.get("parts") == "block":
        why = f"for only the block of {made.get('reference')} was cut"
        hint = whole if name.kind == "eagle3" else f"{hint}; or {whole}"
    return NotFoundError(
        f"this draft holds no head of its own, {why}",
        hint=hint,
        where=container.path,
        code="DRAFT_HEAD_ABSENT",
    )
