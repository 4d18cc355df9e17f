"""An LM head from a container: tensors found, rules read, map resolved, one `Head` built."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.files import Container
from audit.heads import adapters, names
from audit.heads.finding import FoundHead, find_head, find_norm
from audit.heads.head import Adapter, FinalNorm, Head
from audit.heads.identity import head_hash
from audit.heads.options import HeadOptions
from audit.heads.packed import PackedRows, check_declared_plain, weight_stem
from audit.heads.rows import Rows, SelectedRows
from audit.heads.rules import HeadRules, rules_of_config, rules_of_gguf
from audit.heads.stored import stored_matrix, stored_rows, stored_vector
from audit.heads.vocab_map import VocabMap, check_ids, read_id_list, resolve_d2t
from audit.records import HeadRecord


@dataclass(frozen=True, slots=True)
class _Parts:
    """What was read for one head, before it is put together."""

    rows: Rows
    hidden_size: int
    adapt: Adapter | None
    tensors: tuple[str, ...]
    extra_hash: tuple[tuple[str, str, Tensor], ...] = ()
    """Further inputs of the hash that are not tensors of the file."""


def lm_head(container: Container, options: HeadOptions, base: Head | None) -> Head:
    """The LM head in `container`.

    Args:
        container: all shards of the file or folder.
        options: what the user said of this head.
        base: the reference, when this is a candidate: a bare file without configuration takes
            its rules, and a trimmed one its vocabulary size.

    Raises:
        AuditError: see `finding`, `stored`, `vocab_map`; MAP_MISSING for a smaller head without a
            map.
    """
    rules = container_rules(container)
    found = find_head(container, options, rules.tied)
    parts = _read_parts(container, found, options, base)
    inherited = base is not None and not rules.known
    mapping, vocabulary = _vocabulary(container, parts.rows.count, rules, options, base)
    bias = _bias(container, found, parts.rows.count)
    rows, ids, bias = _ascending(parts.rows, mapping, bias)
    norm = _norm(container, rules, parts.hidden_size)
    record = _record(container, found, parts, rules, vocabulary, mapping, bias)
    head = Head(
        record=record,
        rows=rows,
        ids=ids,
        hidden_size=parts.hidden_size,
        bias=bias,
        adapt=parts.adapt,
        norm=norm,
        post=rules.post,
        valid=rules.valid,
        unread=_unread(container, parts.tensors),
    )
    return _inherit(head, base) if inherited and base else head


def _unread(container: Container, tensors: tuple[str, ...]) -> tuple[str, ...]:
    """What lies under the projection's own name and was not looked at, such as a scale."""
    stems = {f"{name.removesuffix('.weight')}." for name in tensors}
    return tuple(name for name in container.never_read() if name.startswith(tuple(stems)))


def container_rules(container: Container) -> HeadRules:
    """Rules from the configuration that lies with this container."""
    if container.format == "gguf":
        return rules_of_gguf(container.metadata, where=container.path)
    if container.config is None:
        return HeadRules()
    return rules_of_config(container.config, container.files[0].parent)


def _read_parts(
    container: Container, found: FoundHead, options: HeadOptions, base: Head | None
) -> _Parts:
    if found.factors:
        left, right = found.factors
        rows, adapter = adapters.low_rank(container, left, right)
        return _Parts(rows, adapter.columns, adapter, found.factors)
    assert found.weight is not None
    rows = stored_rows(container, found.weight)
    if not isinstance(rows, PackedRows):
        check_declared_plain(container, found.weight)
    if options.keep_index is None:
        return _Parts(rows, rows.columns, None, (found.weight,))
    index = read_id_list(options.keep_index)
    hidden = base.hidden_size if base else int(index.max()) + 1
    keep = adapters.keep_columns(index, rows.columns, hidden, options.keep_index)
    extra = (("keep_index", "I64", index),)
    return _Parts(rows, hidden, keep, (found.weight,), extra)


def _vocabulary(
    container: Container, count: int, rules: HeadRules, options: HeadOptions, base: Head | None
) -> tuple[VocabMap | None, int]:
    """The map, None when row i is id i, and the size of the target vocabulary."""
    t2d = _optional(container, "t2d")
    stated = options.vocabulary or (base.vocabulary if base else None)
    vocabulary = stated or (len(t2d) if t2d is not None else None) or rules.vocabulary or count
    if options.map:
        ids = read_id_list(options.map)
        ids = _as_many(ids, count, options.map)
        source = f"map from {options.map.name}"
        return VocabMap(check_ids(ids, vocabulary, options.map), source), vocabulary
    stored = _stored_map(container, t2d, count, vocabulary, options)
    if stored:
        return stored, vocabulary
    if count >= vocabulary or _only_padding_lacks(count, rules, base):
        return None, count
    raise MismatchError(
        f"{count} rows < {vocabulary} ids and no d2t, t2d or token_map in the file; "
        "which id a row stands for is never guessed",
        hint="give the list with --map FILE, use a file with its d2t tensor, "
        "or cut the reference itself with --trim FILE",
        where=container.path,
        code="MAP_MISSING",
    )


def _stored_map(
    container: Container,
    t2d: Tensor | None,
    count: int,
    vocabulary: int,
    options: HeadOptions,
) -> VocabMap | None:
    """The map that the file itself holds, if any."""
    for name in names.MAPS[:-1]:
        d2t = _optional(container, name)
        if d2t is None:
            continue
        _as_many(d2t, count, container.path)
        convention = options.d2t_convention
        if convention == "auto" and (container.format == "gguf" or name != "d2t"):
            convention = "absolute" if name != "draft_id_to_target_id" else "auto"
        return resolve_d2t(d2t, vocabulary, t2d, convention, container.path)
    if t2d is not None:
        kept = t2d.bool().nonzero().squeeze(1)
        _as_many(kept, count, container.path)
        return VocabMap(kept, "the ids that t2d keeps, ascending")
    return None


def _only_padding_lacks(count: int, rules: HeadRules, base: Head | None) -> bool:
    """True when the missing rows are all beyond the tokenizer's ids."""
    # A candidate's own tokenizer may have been cut with it, so the reference's decides.
    valid = base.valid if base else rules.valid
    return valid is not None and count >= valid


def _as_many(ids: Tensor, count: int, where: Path) -> Tensor:
    """Ids for exactly `count` rows; FR-Spec lists may carry appended stop ids beyond them."""
    if len(ids) > count and where.suffix == ".pt":
        return ids[:count]
    if len(ids) == count:
        return ids
    raise MismatchError(
        f"the map has {len(ids)} entries for a head of {count} rows",
        hint="use the map that was saved with this very head",
        where=where,
        code="MAP_RANGE",
    )


def _optional(container: Container, name: str) -> Tensor | None:
    return container.values(name).flatten() if name in container.entries else None


def _ascending(
    rows: Rows, mapping: VocabMap | None, bias: Tensor | None
) -> tuple[Rows, Tensor, Tensor | None]:
    """Rows, ids and bias in the order of ascending id, so that the first maximum is the lowest."""
    if mapping is None:
        return rows, torch.arange(rows.count), bias
    ids, order = mapping.ids.sort()
    if bool((order == torch.arange(len(order))).all()):
        return rows, ids, bias
    return SelectedRows(rows, order), ids, None if bias is None else bias[order]


def _bias(container: Container, found: FoundHead, count: int) -> Tensor | None:
    """The bias beside the head; a tied embedding has none of its own."""
    source = found.weight or (found.factors[0] if found.factors else "")
    stem = weight_stem(source)
    candidates = [f"{stem}.bias"]
    if found.tied:
        candidates = ["output.bias", "lm_head.bias"]
    for name in candidates:
        if name in container.entries and name != source:
            return stored_vector(container, name, count)
    return None


def _norm(container: Container, rules: HeadRules, hidden: int) -> FinalNorm | None:
    """The final norm, if the file holds it and the configuration tells its convention."""
    stem = find_norm(container)
    if stem is None or not rules.known or rules.norm_eps is None:
        return None
    gain = stored_vector(container, f"{stem}.weight", hidden)
    bias = f"{stem}.bias"
    shift = stored_vector(container, bias, hidden) if bias in container.entries else None
    return FinalNorm(gain + 1.0 if rules.norm_plus_one else gain, rules.norm_eps, shift)


def _record(
    container: Container,
    found: FoundHead,
    parts: _Parts,
    rules: HeadRules,
    vocabulary: int,
    mapping: VocabMap | None,
    bias: Tensor | None,
) -> HeadRecord:
    matrices = [stored_matrix(container, name) for name in parts.tensors]
    stored = sum(matrix.stored_bytes for matrix in matrices)
    weights = sum(matrix.rows.count * matrix.rows.columns for matrix in matrices)
    raw = [("rows", *part) for matrix in matrices for part in matrix.raw]
    raw += list(parts.extra_hash)
    raw += [("map", "I64", mapping.ids)] if mapping else []
    raw += [("bias", "F32", bias)] if bias is not None else []
    fixed: dict[str, Any] = {"scale": rules.post.scale, "softcap": rules.post.softcap}
    encodings = "+".join(dict.fromkeys(matrix.encoding for matrix in matrices))
    one = len(matrices) == 1
    return HeadRecord(
        name=container.path.name,
        path=str(container.path),
        kind="lm",
        container=container.format,
        encoding=encodings,
        rows=parts.rows.count,
        columns=parts.rows.columns,
        vocabulary=vocabulary,
        stored_bytes=stored,
        bits_per_weight=matrices[0].bits_per_weight if one else 8 * stored / weights,
        sha256=head_hash(raw, fixed | {"tensor_scale": parts.rows.scale}),
        tensors=tuple(name for matrix in matrices for name in matrix.tensors),
        tied=found.tied,
        bias=bias is not None,
        softcap=rules.post.softcap,
        logit_scale=rules.post.scale if rules.post.scale != 1.0 else None,
        map_source=mapping.source if mapping else None,
        notes=tuple(note for note in (found.note, *rules.notes, _map_note(mapping)) if note),
    )


def _map_note(mapping: VocabMap | None) -> str:
    if mapping is None or not mapping.is_zero:
        return ""
    return (
        f"MAP_ZERO: the map is all zeros and was read as the first {len(mapping.ids)} ids, as "
        "asked; if it was never filled, every token is wrong"
    )


def _inherit(head: Head, base: Head) -> Head:
    """A bare file's head under the reference's rules, said so in its record."""
    note = "no configuration with this file: the reference's post-head rule is used"
    record = head.record.model_copy(
        update={
            "softcap": base.record.softcap,
            "logit_scale": base.record.logit_scale,
            "notes": (*head.record.notes, note),
        }
    )
    valid = base.valid if head.valid is None else head.valid
    return replace(head, record=record, post=base.post, norm=head.norm or base.norm, valid=valid)
