"""Bytes that a draft step reads, from the head's files as stored: block, projection, map.

A step reads all three whole, but of routed experts only those that its tokens need. The one row of
the token embedding that it looks up is left out: some kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from audit.blocks import Block, BlockHead
from audit.cost.machine import Work
from audit.cost.records import HeadCost
from audit.cost.tensors import expert_share, kv_layers, layer_kinds, sizes_of, text_fields
from audit.errors import BadUsageError
from audit.files import open_container, row_bytes
from audit.heads import Head, names
from audit.heads.stored import matrix_shape

_MAP_ENTRY = 8
"""Bytes of one id of a map that is in no file of the head: I64."""


def head_cost(head: Head, ref: HeadCost | None = None) -> HeadCost:
    """One loaded head's bytes; ratios against `ref`, or 1 for the reference itself."""
    record = head.record
    projection = head.projection if isinstance(head, BlockHead) else record
    block = head.block.stored_bytes if isinstance(head, BlockHead) else 0
    parts = (block, projection.stored_bytes or 0, _map_bytes(head))
    about = (record.name, record.kind, record.encoding, record.sha256)
    return _cost(about, parts, head.rows.count, ref)


def planned_cost(
    ref: Head, rows: int, encoding: str | None, base: HeadCost, *, rows_only: bool = False
) -> HeadCost:
    """The size of a trim of `ref` to so many rows, its block and rows in `encoding`.

    Without an encoding everything stays as the reference stores it; with `rows_only` its block
    does.

    Raises:
        BadUsageError: more rows than the reference has.
        AuditError: the encoding is not known, or its blocks do not fit the columns.
    """
    if rows > ref.rows.count:
        raise BadUsageError(
            f"{rows:,} rows were asked for, {ref.record.name} has {ref.rows.count:,}",
            hint="a trim keeps rows of the reference",
        )
    block = base.block_bytes
    projection = round(base.projection_bytes / max(ref.rows.count, 1) * rows)
    if encoding:
        projection = rows * row_bytes(encoding, ref.rows.columns)
        if isinstance(ref, BlockHead) and not rows_only:
            block = planned_block(block_shapes(ref.block), encoding)
    ids = rows * _MAP_ENTRY if rows < ref.rows.count else base.map_bytes
    name = f"{rows:,} rows" + (f" in {encoding}" if encoding else "")
    about = (name, base.kind, encoding or base.encoding, None)
    return _cost(about, (block, projection, ids), rows, base)


def planned_block(shapes: Iterable[tuple[int, ...]], encoding: str) -> int:
    """Bytes of a block whose matrices are in `encoding` and whose vectors are float32."""
    return sum(
        prod(shape[:-1]) * row_bytes(encoding if len(shape) > 1 else "F32", shape[-1])
        for shape in shapes
    )


def block_shapes(block: Block) -> list[tuple[int, ...]]:
    """The shape of every tensor of a block, packed ones as what they stand for."""
    stored = dict.fromkeys(block.tensors.values())
    return [matrix_shape(block.container, name) or (1,) for name in stored]


def draft_work(head: Head, cost: HeadCost) -> Work:
    """What one draft step of a head, or of a cut of it that costs so much, reads and multiplies."""
    columns = head.rows.columns
    if not isinstance(head, BlockHead):
        return Work(weight_bytes=cost.bytes_per_step, parameters=cost.rows * columns)
    block = head.block
    sizes = sizes_of(block.container, block.tensors.values())
    experts = min(sizes.expert_bytes, cost.block_bytes)
    return Work(
        weight_bytes=cost.bytes_per_step - experts,
        parameters=sizes.parameters + cost.rows * columns,
        expert_bytes=experts,
        expert_parameters=sizes.expert_parameters,
        expert_share=expert_share(block.config),
        kv=kv_layers(_as_run(block)),
    )


def _as_run(block: Block) -> Mapping[str, Any]:
    """The block's configuration; of an early exit, with the layers that it runs.

    A block keeps only what differs from its architecture's defaults; its file's says the rest.
    """
    fields: dict[str, Any] = {**text_fields(block.container.config), **block.config}
    run = block.conventions.get("layers_run")
    if run is None:
        return fields
    first, _, last = str(run).partition("-")
    wanted = slice(int(first), int(last or first) + 1)
    kinds = layer_kinds(fields)
    fields["num_hidden_layers"] = wanted.stop - wanted.start
    return fields | ({} if kinds is None else {"layer_types": kinds[wanted]})


def _cost(
    about: tuple[str, str, str, str | None],
    parts: tuple[int, int, int],
    rows: int,
    ref: HeadCost | None,
) -> HeadCost:
    name, kind, encoding, sha256 = about
    block, projection, ids = parts
    total = sum(parts)
    return HeadCost(
        name=name,
        kind=kind,
        encoding=encoding,
        sha256=sha256,
        block_bytes=block,
        projection_bytes=projection,
        map_bytes=ids,
        bytes_per_step=total,
        rows=rows,
        row_ratio=ref.rows / rows if ref else 1.0,
        bytes_ratio=total / ref.bytes_per_step if ref else 1.0,
    )


def _map_bytes(head: Head) -> int:
    """Bytes of the map as stored; of one that lies elsewhere, as if it were in the file."""
    record = head.projection if isinstance(head, BlockHead) else head.record
    if record.map_source is None:
        return 0
    if record.container in ("safetensors", "gguf"):
        entries = open_container(Path(record.path)).entries
        for name in names.MAPS:
            if name in entries:
                return entries[name].nbytes or 0
    return head.rows.count * _MAP_ENTRY
