"""Every variant that is read, at shapes that do not divide evenly where the format allows it."""

from __future__ import annotations

from collections.abc import Callable

from tests.packed.bits import spaced
from tests.packed.more_writers import awq, bnb4, bnb8, gptq, hqq, torchao
from tests.packed.writers import Case, ct_ints, fp4_case, fp8, int8, mo_int4, mxfp8

CASES: dict[str, Callable[[], Case]] = {
    **{f"ct-int{b}": lambda b=b: ct_ints(19, 70, b, 0) for b in range(2, 9)},
    **{f"ct-int{b}-padded": lambda b=b: ct_ints(19, 70, b, 14, pack=spaced) for b in (3, 5, 6, 7)},
    **{f"ct-int{b}-zeros": lambda b=b: ct_ints(21, 70, b, 14, zeros=True) for b in (3, 4, 8)},
    "ct-int6-padded-zeros": lambda: ct_ints(21, 70, 6, 14, zeros=True, pack=spaced),
    "ct-int4-ragged": lambda: ct_ints(19, 70, 4, 32),
    "ct-int4-order": lambda: ct_ints(19, 64, 4, 16, order=True, zeros=True),
    "ct-nvfp4": lambda: fp4_case(19, 80, "ct-nvfp4"),
    "ct-nvfp4-ragged": lambda: fp4_case(19, 72, "ct-nvfp4"),
    "ct-mxfp4": lambda: fp4_case(19, 96, "ct-mxfp4"),
    "mo-nvfp4": lambda: fp4_case(19, 80, "mo-nvfp4"),
    "mo-int4": lambda: mo_int4(18, 64, 32),
    "mo-int4-ragged": lambda: mo_int4(18, 70, 32),
    "mo-int4-smooth": lambda: mo_int4(18, 64, 32, smooth=True),
    "fp8-tensor": lambda: fp8(19, 70, "weight_scale", (), config="modelopt"),
    "fp8-one": lambda: fp8(19, 70, "weight_scale", (1,)),
    "fp8-row": lambda: fp8(19, 70, "weight_scale", (19, 1)),
    "fp8-row-flat": lambda: fp8(19, 70, "weight_scale", (19,), config="modelopt"),
    "fp8-group": lambda: fp8(19, 70, "weight_scale", (19, 7)),
    "fp8-block": lambda: fp8(
        300, 200, "weight_scale_inv", (3, 2), block=(128, 128), config="block"
    ),
    "fp8-block-v4": lambda: fp8(130, 200, "scale", (2, 2), block=(128, 128), config=""),
    "fp8-mistral": lambda: fp8(19, 70, "qscale_weight", (), config=""),
    "fp8-e5m2": lambda: fp8(19, 70, "weight_scale", (19, 1), five=True),
    "mxfp8": lambda: mxfp8(19, 96),
    "int8-row": lambda: int8(19, 70, 0),
    "int8-group": lambda: int8(19, 70, 14),
    "int8-zeros": lambda: int8(19, 70, 14, zeros=True),
    **{f"gptq-{b}": lambda b=b: gptq(32, 96, b, 32) for b in (2, 3, 4, 8)},
    **{f"gptq-{b}-v2": lambda b=b: gptq(32, 96, b, 32, version=2) for b in (2, 3, 4, 8)},
    "gptq-4-order": lambda: gptq(24, 96, 4, 32, order=True),
    "gptq-3-order": lambda: gptq(32, 96, 3, 32, order=True, version=2),
    "gptq-4-column": lambda: gptq(24, 96, 4, -1, sym=True),
    "gptq-4-ragged": lambda: gptq(24, 96, 4, 40),
    "awq": lambda: awq(24, 70, 35),
    "awq-ragged": lambda: awq(24, 70, 32),
    "bnb-nf4": lambda: bnb4(19, 128, 64, "nf4"),
    "bnb-fp4": lambda: bnb4(19, 128, 64, "fp4"),
    "bnb-straddling": lambda: bnb4(19, 70, 64, "nf4"),
    "bnb-nested": lambda: bnb4(300, 64, 64, "nf4", nested=True),
    "bnb-nested-straddling": lambda: bnb4(301, 70, 64, "fp4", nested=True),
    "bnb-int8": lambda: bnb8(19, 70),
    **{
        f"torchao-{kind}": lambda kind=kind: torchao(19, 96, kind)
        for kind in (
            "Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor", "Int4Tensor", "NVFP4Tensor",
            "MXTensor",
        )
    },
    **{f"hqq-{b}": lambda b=b: hqq(24, 64, b, 16) for b in (1, 2, 3, 4, 8)},
    "hqq-3-odd": lambda: hqq(19, 64, 3, 16),
    "hqq-4-axis0": lambda: hqq(24, 64, 4, 16, axis=0),
    "hqq-4-straddling": lambda: hqq(24, 60, 4, 40),
}  # fmt: skip
