"""What must hold of every block: sequences apart, nothing from the future, batches irrelevant."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.blocks import load_block_head
from audit.blocks.block import sequence_batches
from audit.errors import BadUsageError
from audit.files import open_container
from audit.heads.options import HeadOptions
from audit.traces import Trace

from .test_eagle3 import LAYERS, draft_tensors, speculators_folder
from .test_mtp_layouts import qwen
from .tiny import H, make_trace, near, random_trace, save_model, tiny_model

FEW = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
lengths = st.lists(st.integers(1, 12), min_size=1, max_size=6).filter(lambda found: max(found) > 1)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """One block of each kind that attends, sliding windows included."""
    base = tmp_path_factory.mktemp("blocks")
    gemma = tiny_model(
        "gemma3_text", sliding_window=4, sliding_window_pattern=2, query_pre_attn_scalar=8
    )
    paths = {
        "mtp": qwen(base / "mtp")[0],
        "eagle3": speculators_folder(base / "eagle3", draft_tensors()),
        "exit:2:2-3": save_model(gemma, base / "exit"),
    }
    return {
        name: load_block_head(open_container(path), name, HeadOptions()).block
        for name, path in paths.items()
    }


KINDS = ["mtp", "eagle3", "exit:2:2-3"]


def pick(trace: Trace, rows: torch.Tensor, counts: list[int]) -> Trace:
    states = {int(name[6:]): state[rows] for name, state in trace.states.items()}
    return make_trace(trace.hidden[rows], counts, trace.token[rows], states)


@pytest.mark.parametrize("kind", KINDS)
@given(counts=lengths, batch=st.integers(1, 7), seed=st.integers(0, 99))
@FEW
def test_batch_size_does_not_matter(blocks, kind, counts, batch, seed):
    trace = random_trace(counts, LAYERS, seed=seed)
    assert near(blocks[kind].run(trace, batch=batch), blocks[kind].run(trace, batch=8))


@pytest.mark.parametrize("kind", KINDS)
@given(counts=lengths, data=st.data())
@FEW
def test_order_of_sequences_does_not_matter(blocks, kind, counts, data):
    trace = random_trace(counts, LAYERS)
    order = data.draw(st.permutations(range(len(counts))))
    starts = torch.tensor([0, *counts]).cumsum(0)
    rows = torch.cat([torch.arange(starts[i], starts[i] + counts[i]) for i in order])
    moved = pick(trace, rows, [counts[i] for i in order])
    assert near(blocks[kind].run(moved), blocks[kind].run(trace)[rows])


@pytest.mark.parametrize("kind", KINDS)
@given(length=st.integers(2, 14), data=st.data())
@FEW
def test_truncation_never_changes_earlier_positions(blocks, kind, length, data):
    cut = data.draw(st.integers(1, length))
    trace = random_trace([length], LAYERS)
    ahead = 0 if kind.startswith("exit") else 1
    short = pick(trace, torch.arange(cut), [cut])
    if cut <= ahead:
        return
    kept = cut - ahead
    assert near(blocks[kind].run(short)[:kept], blocks[kind].run(trace)[:kept])


@pytest.mark.parametrize("kind", KINDS)
def test_other_sequences_are_not_seen(blocks, kind):
    trace = random_trace((6, 6), LAYERS)
    other = random_trace((6, 6), LAYERS, seed=2)
    rows = torch.arange(6)

    def join(first: Trace, second: Trace) -> Trace:
        states = {
            layer: torch.cat([t.states[f"layer_{layer}"][rows] for t in (first, second)])
            for layer in LAYERS
        }
        hidden = torch.cat([t.hidden[rows] for t in (first, second)])
        return make_trace(
            hidden, (6, 6), torch.cat([t.token[rows] for t in (first, second)]), states
        )

    alone = blocks[kind].run(join(trace, trace))[:6]
    assert near(blocks[kind].run(join(trace, other))[:6], alone)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_repeats_bit_for_bit_and_needs_no_gradient(blocks, kind):
    trace = random_trace(layers=LAYERS)
    first = blocks[kind].run(trace)
    assert torch.equal(first, blocks[kind].run(trace))
    assert first.shape == (trace.positions, H) and first.dtype == torch.float32
    assert not any(value.requires_grad for value in blocks[kind].modules.parameters())
    assert all(value.dtype == torch.float32 for value in blocks[kind].modules.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_names_its_tensor(blocks, kind):
    block = blocks[kind]
    names = [name for name, _ in block.modules.named_parameters()]
    assert sorted(names) == sorted(block.tensors) == sorted(block.names)
    assert all(name in block.container.entries for name in block.tensors.values())
    assert all(not value.is_meta for value in block.modules.parameters())


@given(counts=lengths, batch=st.integers(1, 4), ahead=st.integers(0, 2))
@FEW
def test_batches_cover_every_usable_row_once(counts, batch, ahead):
    sequence = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    seen = []
    for rows, real in sequence_batches(sequence, batch, ahead):
        assert rows.shape == real.shape and len(rows) <= batch
        assert bool((sequence[rows] == sequence[rows[:, :1]]).all())
        seen += rows[real].tolist()
    starts = [sum(counts[:i]) for i in range(len(counts))]
    usable = [s + i for s, n in zip(starts, counts, strict=True) for i in range(n - ahead)]
    assert sorted(seen) == usable


def test_batch_must_be_positive(blocks):
    with pytest.raises(BadUsageError, match="batch is 0"):
        blocks["mtp"].run(random_trace(), batch=0)
