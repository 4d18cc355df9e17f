"""Files from strangers: any tensor replaced by any other is decoded or refused, never a traceback.

The seeds are fixed, so that a failure can be repeated; `ROUNDS` more of them were run by hand.
"""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest
import torch

from audit.errors import AuditError
from audit.heads import load_head
from tests.packed.cases import CASES
from tests.packed.writers import Case

ROUNDS = 12
DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e8m0fnu,
    torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool, torch.float64,
)  # fmt: skip


def strange(rng: random.Random, like: torch.Tensor) -> torch.Tensor:
    """A tensor of another type, shape or content."""
    kind = rng.choice(DTYPES)
    choice = rng.randrange(4)
    shape = list(like.shape)
    if choice == 0:
        shape = [rng.choice((0, 1, 2, 3, 7, 16)) for _ in range(rng.randrange(4))]
    elif choice == 1 and shape:
        shape[rng.randrange(len(shape))] += rng.choice((-1, 1, 5))
    elif choice == 2:
        shape = shape[::-1]
        kind = like.dtype
    count = 1
    for n in shape:
        count *= max(n, 0)
    raw = torch.randint(0, 256, (count * kind.itemsize,), dtype=torch.uint8)
    raw = raw % 2 if kind == torch.bool else raw
    return raw.view(kind).view([max(n, 0) for n in shape])


def mutated(rng: random.Random, case: Case) -> Case:
    for _ in range(rng.randrange(1, 3)):
        leaf = rng.choice(sorted(case.tensors))
        if rng.random() < 0.15:
            del case.tensors[leaf]
        else:
            case.tensors[leaf] = strange(rng, case.tensors[leaf])
        if not case.tensors:
            break
    if rng.random() < 0.4:
        case.quantization = rng.choice(
            [None, {}, {"quant_method": 3}, {"quant_method": "gptq", "bits": "x", "group_size": 0},
             {"config_groups": {"a": {"targets": ["Linear"], "weights": {"group_size": -5}}}},
             {"quant_method": "modelopt", "quantized_layers": {"lm_head": 3}},
             {"weight_block_size": [0, 128]}]
        )  # fmt: skip
    return case


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_can_crash_the_reader(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    torch.manual_seed(len(name))
    for number in range(ROUNDS):
        case = mutated(rng, CASES[name]())
        folder = case.write(tmp_path / str(number))
        with contextlib.suppress(AuditError):
            rows = load_head(folder).rows
            tile = rows.tile(0, rows.count)
            assert tile.shape == (rows.count, rows.columns) and tile.dtype == torch.float32
            assert rows.gather(torch.tensor([rows.count - 1])).shape == (1, rows.columns)


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:(.*)*x", "re:(", "re:" + "a" * 999, "re:.*.*.*.*.*.*x"]
)
def test_patterns_that_could_run_for_years_are_refused(tmp_path: Path, pattern: str) -> None:
    case = CASES["ct-int4"]()
    assert case.quantization is not None
    case.quantization["ignore"] = [pattern]
    with pytest.raises(AuditError, match="pattern"):
        load_head(case.write(tmp_path))
