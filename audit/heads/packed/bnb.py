"""bitsandbytes: NF4 and FP4 over the flattened matrix, and LLM.int8's int8 rows.

Four bits: element i of the flattened matrix is in byte i // 2, the high nibble first (the other way
round from every other format here), and its scale is absmax[i // blocksize]. Nested files hold
absmax itself as bytes: nested_quant_map[byte] * nested_absmax[block // nested_blocksize] + offset.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError
from audit.heads.packed.codes import nibbles, signed_bytes
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Pick, Source, mapped, numbers, rows_of

_KINDS = ("nf4", "fp4")
_INT8_STEPS = 127.0


class BitsAndBytes4(PackedFormat):
    """W[i] = quant_map[code i] * absmax[i // blocksize], i over the flattened matrix."""

    name = "bitsandbytes 4-bit"
    variants = "NF4 and FP4, plain and nested (double quantization), any block size"
    verified = "independent writer and the bitsandbytes library; exact in float32"
    methods = frozenset({"bitsandbytes"})

    def stored(self, module: Module) -> bool:
        """A weight with its own quant_state or absmax beside it."""
        return bool(_kinds(module)) or module.has("weight.absmax")

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        kinds = _kinds(module)
        if not kinds:
            raise module.missing("weight.quant_state.bitsandbytes__nf4", "quantization state")
        state = module.json(f"weight.quant_state.bitsandbytes__{kinds[0]}")
        if module.declared.settings.get("load_in_8bit") is True:
            raise module.contradiction("8 bits", f"{module.name('weight')} is packed as {kinds[0]}")
        shape, block = _state_shape(module, state), _state_number(module, state, "blocksize")
        if shape[1] % 2:
            raise module.refuse("has rows of an odd number of 4-bit codes, which share bytes")
        weight = module.raw("weight").reshape(-1)
        if len(weight) * 2 != shape[0] * shape[1]:
            raise _mismatch(module, "weight", len(weight), shape[0] * shape[1] // 2)
        absmax = _absmax(module, state, -(-shape[0] * shape[1] // block))
        rows = PackedRows(
            shape,
            rows_of(weight.view(shape[0], -1)),
            nibbles(_code_map(module, "weight.quant_map", 16), high_first=True),
            _flat_groups(absmax, shape[1], block),
        )
        nested = " nested" if module.has("weight.nested_absmax") else ""
        return rows, f"BNB-{kinds[0].upper()} g{block}{nested}"


def _kinds(module: Module) -> list[str]:
    return [k for k in _KINDS if module.has(f"weight.quant_state.bitsandbytes__{k}")]


def _state_shape(module: Module, state: dict[str, Any]) -> tuple[int, int]:
    shape = state.get("shape")
    if isinstance(shape, list) and len(shape) == 2 and all(type(n) is int and n > 0 for n in shape):
        return shape[0], shape[1]
    raise module.refuse(f"has a quantization state with the shape {shape!r:.60}, not a matrix's")


def _state_number(module: Module, state: dict[str, Any], key: str) -> int:
    value = state.get(key)
    if type(value) is int and value > 0:
        return value
    raise module.refuse(f"has a quantization state whose {key} is {value!r:.40}")


def _code_map(module: Module, leaf: str, count: int) -> Tensor:
    return module.floats(module.check_shape(module.need(leaf, "code values"), (count,)))


def _mismatch(module: Module, leaf: str, have: int, want: int) -> MismatchError:
    return MismatchError(
        f"{module.name(leaf)} has {have} values where its quantization state needs {want}",
        hint="the tensors of this layer do not belong together: export the head again",
        where=module.container.path,
        code="SCALE_SHAPE",
    )


def _absmax(module: Module, state: dict[str, Any], blocks: int) -> Tensor:
    """float32 [blocks], one per `blocksize` elements; four bytes for 64 or more weights."""
    leaf = module.need("weight.absmax")
    have = module.shape(leaf)
    if have != (blocks,):
        raise _mismatch(module, leaf, have[0] if len(have) == 1 else -1, blocks)
    if module.entry(leaf).encoding != "U8":
        return module.floats(leaf)
    size = _state_number(module, state, "nested_blocksize")
    offset = state.get("nested_offset")
    if not isinstance(offset, float | int) or not -1e30 < offset < 1e30:
        raise UnreadableError(
            f"{module.stem} has nested absmax without a finite nested_offset",
            hint="export the head again",
            where=module.container.path,
        )
    values = _code_map(module, "weight.nested_quant_map", 256)
    nested = module.floats(module.need("weight.nested_absmax"))
    if nested.shape != (-(-blocks // size),):
        raise _mismatch(module, "weight.nested_absmax", nested.numel(), -(-blocks // size))
    scales = nested.repeat_interleave(size)[:blocks]
    return values[module.tensor(leaf).int()].mul_(scales).add_(float(offset))


def _flat_groups(absmax: Tensor, columns: int, block: int) -> Groups:
    """Scales of a row: whole groups where blocks do not straddle rows, else one per column."""
    if columns % block == 0:
        return Groups(rows_of(absmax.view(-1, columns // block)), block)

    def source(pick: Pick) -> Tensor:
        start = numbers(pick).unsqueeze(1) * columns
        return absmax[(start + torch.arange(columns)) // block]

    return Groups(source, 1)


class BitsAndBytes8(PackedFormat):
    """W[n, k] = code * SCB[n] / 127."""

    name = "bitsandbytes LLM.int8"
    variants = "row-major int8 with `SCB`"
    verified = "independent writer; exact in float32"
    methods = frozenset({"bitsandbytes"})

    def stored(self, module: Module) -> bool:
        """An int8 weight with SCB, or with whatever else shows that it should have it."""
        if not module.has("weight") or module.entry("weight").encoding != "I8":
            return False
        hints = module.first("SCB", "weight_format")
        return hints is not None or module.declared.method == "bitsandbytes"

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        module.need("SCB")
        if module.declared.settings.get("load_in_4bit") is True:
            raise module.contradiction("4 bits", f"{module.name('weight')} is int8 with SCB")
        stored = module.shape("weight")
        if len(stored) != 2 or 0 in stored:
            raise module.refuse(f"has codes of shape {list(stored)}, not [rows, columns]")
        if module.has("weight_format") and bool(module.integers("weight_format").any()):
            raise module.refuse("is int8 in a kernel's own order (weight_format is not 0)")
        module.check_shape("SCB", (stored[0],), (stored[0], 1))
        largest = module.floats("SCB").reshape(-1, 1)
        scales: Source = mapped(rows_of(largest), lambda scb: scb / _INT8_STEPS)
        rows = PackedRows(
            (stored[0], stored[1]),
            rows_of(module.raw("weight")),
            signed_bytes,
            Groups(scales, stored[1]),
        )
        return rows, "BNB-INT8 row"
