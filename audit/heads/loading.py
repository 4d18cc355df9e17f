"""`load_head(path)`: a file becomes a `Head`. Read this first; every step is a module of its own.

files.open_container -> finding (which tensors) -> rules (what the configuration says) -> vocab_map
(which ids) -> lm (put together). Candidates may also be proposals, a LoRA adapter on the reference,
or the reference's own rows under a ranks card.
"""

from __future__ import annotations

from pathlib import Path

from audit.errors import BadUsageError, MismatchError
from audit.files import Container, open_container
from audit.heads.adapters import lora_head
from audit.heads.finding import find_lora
from audit.heads.head import Head, trim_rows
from audit.heads.identity import head_hash
from audit.heads.lm import lm_head
from audit.heads.options import HeadOptions
from audit.heads.proposals import Proposals, is_proposals, read_proposals
from audit.heads.vocab_map import check_ids, drop_duplicates, read_id_list
from audit.words import count

_DEFAULTS = HeadOptions()


def load_head(path: Path, options: HeadOptions = _DEFAULTS, *, base: Head | None = None) -> Head:
    """The LM head in a safetensors file, sharded index, Hugging Face folder or GGUF (any shard).

    Args:
        path: the file or folder.
        options: what the user says of it; by default everything is read from the file.
        base: the reference, when `path` is a candidate.

    Raises:
        AuditError: the file is missing, damaged, of a format that is not read, holds no head, or
            holds one that can not be understood without guessing.
    """
    container = open_container(path)
    if is_proposals(container):
        raise BadUsageError(
            "this file holds proposals, not a head", hint="give it as a candidate", where=path
        )
    head = _head_in(container, options, base)
    if options.vocabulary and head.rows.count > options.vocabulary:
        raise MismatchError(
            f"the head has {head.rows.count} rows, more than the {options.vocabulary} ids of "
            "--vocabulary",
            hint="--vocabulary is the size of a trimmed head's target; a full head needs none",
            where=path,
            code="VOCABULARY",
        )
    return head


def load_candidate(path: Path, options: HeadOptions, ref: Head) -> Head | Proposals:
    """A candidate for `ref`: any head, a LoRA adapter on `ref`, or a proposals file.

    Raises:
        AuditError: as `load_head`; MismatchError when it can not run beside `ref`.
    """
    container = open_container(path)
    if is_proposals(container):
        _check_unread(options, path)
        return read_proposals(container, ref.vocabulary)
    head = _head_in(container, options, ref)
    if head.hidden_size != ref.hidden_size:
        raise MismatchError(
            f"{head.record.name} reads {head.hidden_size} hidden channels, "
            f"{ref.record.name} reads {ref.hidden_size}",
            hint="a pruned head needs the list of channels it kept: --keep-index FILE",
            where=path,
        )
    return check_vocabulary(head, ref)


def _check_unread(options: HeadOptions, path: Path) -> None:
    """Refuse options about weights for a file that holds none, instead of ignoring them."""
    given = {
        "--map": options.map,
        "--factors": options.factors,
        "--keep-index": options.keep_index,
    }
    useless = [name for name, value in given.items() if value is not None]
    if useless:
        raise BadUsageError(
            f"{useless[0]} is about weights, and this file holds proposals",
            hint="proposals are ids of the target vocabulary already",
            where=path,
        )


def trim_reference(ref: Head, card: Path) -> Head:
    """The reference's own rows under a ranks card: a trimmed candidate without a second file.

    Raises:
        AuditError: the card can not be read, or names ids that the reference has no row for.
    """
    listed = read_id_list(card)
    ids = drop_duplicates(listed)
    check_ids(ids, ref.vocabulary, card)
    notes: tuple[str, ...] = (f"the reference's rows for {count(len(ids), 'id')} of {card.name}",)
    if len(ids) < len(listed):
        notes += (f"repeated in the card and dropped: {len(listed) - len(ids)}",)
    beside = (ref.record.stored_bytes or 0) - ref.row_bytes
    record = ref.record.model_copy(
        update={
            "name": card.name,
            "path": str(card),
            "container": "trim",
            "rows": len(ids),
            "stored_bytes": beside + round(ref.row_bytes / max(ref.rows.count, 1) * len(ids)),
            "sha256": head_hash([("ids", "I64", ids.sort().values)], {"base": ref.record.sha256}),
            "map_source": f"ids of {card.name}",
            "notes": notes,
        }
    )
    return trim_rows(ref, ids, record)


def _head_in(container: Container, options: HeadOptions, base: Head | None) -> Head:
    pair = None if options.tensor else find_lora(container.entries)
    if pair is None:
        return lm_head(container, options, base)
    if base is None:
        raise BadUsageError(
            "this is a LoRA adapter, which is no head without the model it adapts",
            hint="give the model as the reference and the adapter as the candidate",
            where=container.path,
        )
    return lora_head(container, pair, base, container.files[0].parent / "adapter_config.json")


def check_vocabulary(head: Head, ref: Head) -> Head:
    """Refuse a candidate with more ids than the reference, unless the rest is padding."""
    if head.vocabulary <= ref.vocabulary:
        return head
    valid = [v for v in (head.valid, ref.valid) if v is not None]
    if valid and min(valid) <= ref.vocabulary:
        return head
    raise MismatchError(
        f"{head.record.name} has {head.vocabulary} rows, {ref.record.name} has "
        f"{ref.vocabulary}, and nothing says that the rest is padding",
        hint="heads of one vocabulary can be compared; if the rest is padding, put the tokenizer "
        "beside the head",
        where=head.record.path,
        code="VOCABULARY",
    )
