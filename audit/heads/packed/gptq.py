"""GPTQ: 2, 3, 4 or 8 bits packed along the input, transposed; zero points along the output.

`qweight` int32 [K*b/32, N]: column n is a stream of words, field k its bits k*b to k*b + b - 1 (the
11/10/11 split of three bits is just that). `qzeros` int32 [groups, N*b/32] the same along n.
Version 1 stores every zero point less one, version 2 as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.errors import MismatchError
from audit.heads.packed.codes import integers
from audit.heads.packed.compressed import dense_words, unpacked
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Source, columns_of, mapped

_BITS = (2, 3, 4, 8)


class Gptq(PackedFormat):
    """W[n, k] = scales[g_idx[k], n] * (code - zero[g_idx[k], n])."""

    name = "GPTQ"
    variants = "v1 and v2; 2, 3, 4 and 8 bits; groups, whole columns, act-order (`g_idx`)"
    verified = "independent writer; exact"
    methods = frozenset({"gptq"})
    primary = "qweight"

    def stored(self, module: Module) -> bool:
        """int32 words with fewer rows than AWQ's, which has one row per input."""
        if not module.has("qweight") or module.entry("qweight").encoding != "I32":
            return False
        return not is_awq(module)

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        for leaf, what in (("scales", "scales"), ("qzeros", "zero points")):
            module.need(leaf, what)
        if module.declared.settings.get("checkpoint_format") in ("gptq_p", "marlin", "bitblas"):
            raise module.refuse("is in a kernel's own layout of GPTQ (checkpoint_format)")
        shape, bits = _shape_and_bits(module)
        groups, count = module.shape("scales")[0], shape[0]
        module.check_shape("scales", (groups, count))
        module.check_shape("qzeros", (groups, dense_words(count, bits)))
        size, order, moved = _groups(module, shape[1], groups)
        zeros, version = _zeros(module, bits, count)
        scales = mapped(columns_of(module.wide_floats("scales")), Tensor.float)
        words = columns_of(module.tensor("qweight"))
        rows = PackedRows(
            shape,
            mapped(words, lambda w: w.view(torch.uint8)),
            integers(bits),
            Groups(scales, size, zeros, of_column=order),
        )
        said = "row" if groups == 1 else f"g{size}"
        return rows, f"GPTQ-{bits} {said}{' act-order' if moved else ''} v{version}"


def is_awq(module: Module) -> bool:
    """AWQ packs along the output: eight scales, and one word of zero points, per word of codes."""
    words = module.shape("qweight")
    for leaf, per_word in (("scales", 8), ("qzeros", 1)):
        if module.has(leaf):
            other = module.shape(leaf)
            return len(words) == len(other) == 2 and other[1] == per_word * words[1] > 0
    return module.declared.method == "awq"


def _shape_and_bits(module: Module) -> tuple[tuple[int, int], int]:
    """[N, K] and bits, from `g_idx` or the configuration, checked against the words."""
    stored = module.shape("qweight")
    if len(stored) != 2 or 0 in stored or len(module.shape("scales")) != 2:
        raise module.refuse(f"has words of shape {list(stored)}, not [words, rows]")
    words, count = stored
    declared = module.declared.number("bits", "w_bit")
    index = module.shape("g_idx") if module.has("g_idx") else ()
    per_row = module.shape("qzeros")[1] if len(module.shape("qzeros")) == 2 else 0
    bits = declared
    if bits is None:
        fitting = [
            b
            for b in _BITS
            if dense_words(count, b) == per_row and (not index or dense_words(index[0], b) == words)
        ]
        bits = fitting[0] if len(fitting) == 1 else None
    if bits not in _BITS or 32 * words % bits:
        said = "no number of bits fits" if bits is None else f"{bits} bits do not fit"
        raise module.refuse(f"has {words} words per column and {said}", "put config.json beside it")
    columns = index[0] if len(index) == 1 else 32 * words // bits
    if dense_words(columns, bits) != words or dense_words(count, bits) != per_row:
        raise module.contradiction(
            f"{bits} bits" if declared else "nothing",
            f"{module.name('qweight')} is {list(stored)} for {columns} columns, "
            f"{module.name('qzeros')} {list(module.shape('qzeros'))}",
        )
    return (count, columns), bits


def _groups(module: Module, columns: int, groups: int) -> tuple[int, Tensor | None, bool]:
    """Columns per group, the group of each column where not in order, and whether it is so."""
    size = module.declared.number("group_size")
    if size is None or size <= 0:
        size = columns if size is not None else -(-columns // groups)
    if -(-columns // size) != groups:
        raise module.contradiction(
            f"groups of {size}", f"{module.name('scales')} has {groups} of {columns} columns"
        )
    if not module.has("g_idx"):
        if module.declared.flag("desc_act"):
            raise module.missing("g_idx", "order of columns")
        return size, None, False
    index = module.integers(module.check_shape("g_idx", (columns,), code="PACKED_SHAPE"))
    if int(index.min()) < 0 or int(index.max()) >= groups:
        raise MismatchError(
            f"{module.name('g_idx')} names groups {int(index.min())} to {int(index.max())}, there "
            f"are {groups}",
            hint="the tensors of this layer do not belong together: export the head again",
            where=module.container.path,
            code="PACKED_SHAPE",
        )
    in_order = torch.equal(index, torch.arange(columns) // size)
    return (size, None, False) if in_order else (size, index, True)


def _zeros(module: Module, bits: int, count: int) -> tuple[Source, int]:
    """Zero points [n, groups] and the version that says how they are stored."""
    raw = module.raw(module.check_type("qzeros", "I32"))
    stored = unpacked(raw, integers(bits), count)
    version = _version(module, stored, bits)
    add = 1 if version == 1 else 0
    return mapped(columns_of(stored), lambda zeros: zeros.float().add_(add)), version


def _version(module: Module, stored: Tensor, bits: int) -> int:
    """1 or 2, by the configuration; without one, by symmetric zero points, which tell.

    Symmetric weights have the zero point 2^(b-1), stored as it is by version 2 and less one by
    version 1. A file of the one that claims to be the other would be off by a whole step.
    """
    declared = {"gptq": 1, "gptq_v2": 2}.get(
        str(module.declared.settings.get("checkpoint_format") or "")
    )
    if declared is None and module.declared.method == "gptq":
        declared = 1
    middle = 1 << (bits - 1)
    values = torch.unique(stored)
    told = {middle - 1: 1, middle: 2}.get(int(values[0])) if len(values) == 1 else None
    if declared is None and told is None:
        raise module.refuse(
            "has zero points that do not tell GPTQ version 1 from 2, which differ by one step",
            "put the model's config.json or quantize_config.json beside the file",
        )
    symmetric = module.declared.flag("sym") is True
    if declared and told and symmetric and told != declared:
        raise module.contradiction(
            f"symmetric weights and checkpoint_format of version {declared}",
            f"every zero point in {module.name('qzeros')} is {int(values[0])}: version {told}",
        )
    return declared or told or 1
