"""AWQ as AutoAWQ's GEMM kernel stores it: 4 bits, packed along the output in an order of its own.

Word w of input k holds outputs 8w to 8w + 7, output 8w + i in nibble [0, 4, 1, 5, 2, 6, 3, 7][i].
Zero points are packed the same way and stored as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from audit.heads.packed.codes import integers
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.gptq import is_awq
from audit.heads.packed.module import Module
from audit.heads.packed.rows import Groups, PackedRows, Pick, Source, columns_of, mapped, numbers

_PLACE = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
_BITS = 4


class Awq(PackedFormat):
    """W[n, k] = scales[k // g, n] * (code - zero[k // g, n])."""

    name = "AWQ"
    variants = "GEMM, 4 bits, any group size"
    verified = "independent writer; exact"
    methods = frozenset({"awq"})
    primary = "qweight"

    def stored(self, module: Module) -> bool:
        """int32 words, eight outputs in each."""
        return module.has("qweight") and is_awq(module)

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """See the class."""
        module.check_type("qweight", "I32")
        version = str(module.declared.settings.get("version") or "gemm").lower()
        if version != "gemm":
            raise module.refuse(f"is AWQ for the {version} kernel; only gemm's layout is read")
        bits = module.declared.number("bits", "w_bit")
        if bits not in (None, _BITS):
            raise module.contradiction(f"{bits} bits", "the words hold eight codes of 4 bits")
        for leaf, what in (("scales", "scales"), ("qzeros", "zero points")):
            module.need(leaf, what)
        columns, words = module.shape("qweight")
        shape, groups = (8 * words, columns), module.shape("scales")[0]
        size = _size(module, columns, groups)
        module.check_shape("qzeros", (groups, words))
        scales = mapped(columns_of(module.wide_floats("scales")), Tensor.float)
        zeros = mapped(outputs_of(module.raw(module.check_type("qzeros", "I32"))), Tensor.float)
        rows = PackedRows(
            shape, outputs_of(module.raw("qweight")), integers(8), Groups(scales, size, zeros)
        )
        return rows, f"AWQ-4 g{size}"


def _size(module: Module, columns: int, groups: int) -> int:
    declared = module.declared.number("group_size", "q_group_size")
    if declared is not None and declared <= 0:
        declared = columns
    size = declared or -(-columns // max(groups, 1))
    if -(-columns // size) != groups or (declared is None and columns % size):
        raise module.contradiction(
            f"groups of {size}" if declared else "nothing",
            f"{module.name('scales')} has {groups} groups of {columns} columns",
        )
    return size


def outputs_of(raw: Tensor) -> Source:
    """Codes of picked outputs, uint8 [n, inputs], from raw uint8 [inputs, 4 * words]."""

    def source(pick: Pick) -> Tensor:
        row = numbers(pick)
        place = _PLACE[row % 8]
        byte = row // 8 * 4 + place // 2
        if isinstance(pick, slice) and len(row):
            # Two codes per byte are turned round and taken apart at once, then put in order.
            first, stop = pick.start // 8 * 4, (pick.stop + 7) // 8 * 4
            both = raw[:, first:stop].t().contiguous()
            codes = torch.cat([both & 0x0F, both >> _BITS])
            return codes.index_select(0, place % 2 * len(both) + byte - first)
        both = raw.index_select(1, byte).t().contiguous()
        return (both >> (place % 2 * _BITS).to(torch.uint8).unsqueeze(1)) & 0x0F

    return source
