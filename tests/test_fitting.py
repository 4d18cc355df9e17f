"""Calibrated cuts are fitted to states that are shown to be the reference's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.errors import MismatchError
from audit.files import open_container
from audit.fitting import fit_cuts
from audit.forge import block_moments, parse_cut, second_moment_of
from audit.heads import HeadOptions, load_head
from audit.measure import states_for
from audit.pair import PairOptions, choose_head, load_ref
from audit.traces import Trace, lookahead_rows, write_trace
from tests.audit_files import head_weight, make_trace, write_head
from tests.forge.real_heads import SAMPLE, sample_trace

LOW, PRUNED = parse_cut("lowrank:0.25:calibrated"), parse_cut("prune:0.5:activation")


@pytest.fixture(scope="module")
def trace() -> Trace:
    return sample_trace()


@pytest.fixture(scope="module")
def mtp():
    choice = choose_head(SAMPLE, [], "mtp")
    return load_ref(SAMPLE, choice, HeadOptions(), PairOptions().block)


def written(trace: Trace, path: Path, **info: object) -> Path:
    changed = trace.info.model_copy(update=info)
    write_trace(replace(trace, info=changed), path)
    return path


def test_the_moments_are_those_of_the_states(mtp, trace, tmp_path):
    path = written(trace, tmp_path / "code.trace.safetensors")
    fit = fit_cuts(mtp, [PRUNED, LOW, parse_cut("q4_0")], [path])
    assert fit.projection is None and fit.notes == ()
    whole = block_moments(mtp.block, [trace])
    assert fit.block is not None and fit.block.keys() == whole.keys()
    assert all(torch.equal(fit.block[name], moment) for name, moment in whole.items())
    diagonal = fit_cuts(mtp, [PRUNED], [path]).block
    assert diagonal is not None and {moment.ndim for moment in diagonal.values()} == {1}
    rows, _ = lookahead_rows(trace, 2)
    rows_only = fit_cuts(mtp, [LOW], [path], only="projection")
    assert rows_only.projection is not None and rows_only.block is None
    assert torch.equal(rows_only.projection, second_moment_of(states_for(mtp, trace, rows)))
    assert fit_cuts(mtp, [parse_cut("q4_0")], [path]).block is None


def test_states_of_another_model_are_refused(mtp, trace, tmp_path):
    """The same width, the same tokens, and nothing of this model in them."""
    states = torch.randn(trace.hidden.shape, generator=torch.Generator().manual_seed(0))
    for digest in ("5" * 64, None):
        path = tmp_path / "x.trace.safetensors"
        written(replace(trace, hidden=states), path, model_sha256=digest)
        with pytest.raises(MismatchError, match=r"model reproduces 0\.. % .* 99 % are needed"):
            fit_cuts(mtp, [PRUNED], [path])
    lm = load_head(SAMPLE, HeadOptions())
    with pytest.raises(MismatchError, match=r"STATES_NOT_FOR_THIS_HEAD|ANTI_CORRELATED"):
        fit_cuts(lm, [LOW], [path])


def test_an_lm_head_must_reproduce_its_verifier(tmp_path):
    ref = load_head(write_head(tmp_path / "ref.safetensors", head_weight()), HeadOptions())
    weight = head_weight() + 0.1 * head_weight(7)  # a sibling: often right, not always
    path = make_trace(tmp_path / "t.trace.safetensors", weight)
    with pytest.raises(MismatchError, match="99 % are needed"):
        fit_cuts(ref, [LOW], [path])
    assert fit_cuts(ref, [LOW], [path], anchor_min=0.5).projection is not None
    own = make_trace(tmp_path / "own.trace.safetensors", head_weight(), model_sha256=None)
    with pytest.raises(MismatchError, match="different models"):
        fit_cuts(ref, [LOW], [own, path], anchor_min=0.5)


def test_other_weights_are_warned_of_where_they_are_known(mtp, trace, tmp_path):
    path = written(trace, tmp_path / "a.trace.safetensors", model_sha256="5" * 64)
    [note] = fit_cuts(mtp, [PRUNED], [path]).notes
    assert note.startswith("warning: code was recorded with other weights (555555555555)")
    unknown = written(trace, tmp_path / "b.trace.safetensors", model_sha256=None)
    assert fit_cuts(mtp, [PRUNED], [unknown]).notes == ()
    model = open_container(SAMPLE)
    [note] = fit_cuts(mtp, [PRUNED], [path], model=model).notes
    assert trace.info.model_sha256[:12] in note
    bare = load_head(write_head(tmp_path / "ref.safetensors", head_weight()), HeadOptions())
    own = make_trace(tmp_path / "own.trace.safetensors", head_weight())
    assert fit_cuts(bare, [LOW], [own]).notes == ()
