"""Generated and counted rows: kept in the file, checked on reading, honoured by every count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from audit.errors import MismatchError, UnreadableError
from audit.heads import HeadOptions
from audit.measure import measure_trace
from audit.pair import PairOptions, choose_head, load_ref
from audit.records import ExtraState
from audit.table import COLUMNS
from audit.traces import lookahead_rows, read_trace, write_trace

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"


def mark(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool)


def test_marks_survive_the_file_and_are_bytes_of_it(trace, tmp_path):
    marked = replace(trace, generated=mark(0, 1, 1, 0, 1), counted=mark(0, 1, 0, 0, 1))
    paths = [tmp_path / f"{name}.trace.safetensors" for name in "abc"]
    written = write_trace(marked, paths[0])
    back = read_trace(paths[0])
    assert back.generated is not None and torch.equal(back.generated, marked.generated)
    assert back.counted is not None and torch.equal(back.counted, marked.counted)
    assert back.record() == written.record() and back.record().counted == 2
    write_trace(back, paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()
    plain = read_trace(write_trace(trace, paths[2]).path)
    assert plain.generated is plain.counted is plain.record().counted is None


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"counted": torch.tensor([0, 1, 1, 0, 1])}, "`counted` is int64, not bool"),
        ({"generated": mark(0, 1, 1, 0)}, "`generated` has 4 rows, `hidden` has 5"),
        ({"generated": mark(0, 1, 1, 0, 1)[:, None]}, "`generated` has the shape"),
        ({"counted": mark(0, 0, 0, 0, 0)}, "`counted` leaves out every position"),
    ],
)
def test_bad_marks_are_refused(trace, tmp_path, bad, message):
    with pytest.raises(UnreadableError, match=message):
        write_trace(replace(trace, **bad), tmp_path / "t.trace.safetensors")


def test_no_state_may_take_the_name_of_a_mark(trace, tmp_path):
    """Else a state of floats would be read as the mask."""
    info = trace.info.model_copy(update={"states": (ExtraState(tensor="counted", layer=1),)})
    named = replace(trace, info=info, states={"counted": torch.ones(5, 2)})
    with pytest.raises(UnreadableError, match="the name of a tensor of the format"):
        write_trace(named, tmp_path / "t.trace.safetensors")


def test_counted_rows_by_hand(trace):
    """Sequences (0, 1, 2) and (3, 4), oracles at 1 and 4 count, and row 2 has none.

    L = 1 asks at the rows themselves; L = 2 one row before: the same two oracles.
    """
    counted = replace(trace, counted=mark(0, 1, 1, 0, 1))
    assert [part.tolist() for part in lookahead_rows(counted, 1)] == [[1, 4], [1, 4]]
    assert [part.tolist() for part in lookahead_rows(counted, 2)] == [[0, 3], [1, 4]]
    alone = replace(trace, counted=mark(1, 0, 0, 0, 0))
    assert lookahead_rows(alone, 1)[0].tolist() == [0]
    with pytest.raises(MismatchError, match=r"no position .* that counts 2 tokens ahead"):
        lookahead_rows(alone, 2)


@pytest.mark.parametrize(("head", "lookahead"), [("lm", 1), ("mtp", 2)])
def test_uncounted_rows_are_run_and_not_counted(head, lookahead):
    """Against a count over the rows of the whole trace, one by one.

    The first 100 rows of each sequence do not count. What the MTP block says behind them must be
    what it says when they do: it still reads them.
    """
    whole = read_trace(SAMPLE / "traces" / "python-code.trace.safetensors")
    counted = whole.position >= 100
    pair = PairOptions(head=head)
    choice = choose_head(SAMPLE / "model", [], pair.head)
    ref = load_ref(SAMPLE / "model", choice, HeadOptions(), pair.block)
    assert ref.lookahead == lookahead
    full = measure_trace(ref, [ref], whole)
    part = measure_trace(ref, [ref], replace(whole, counted=counted, generated=counted))
    wanted = [
        (place, row)
        for place, row in enumerate(full.rows.tolist())
        if whole.position[row] + lookahead - 1 >= 100
    ]
    places = torch.tensor([place for place, _ in wanted])
    assert part.rows.tolist() == [row for _, row in wanted] and 0 < len(wanted) < len(full.rows)
    assert torch.equal(part.oracle, full.oracle[places])
    assert torch.equal(part.ref.proposal, full.ref.proposal[places])
    assert torch.allclose(part.ref.margin, full.ref.margin[places], atol=1e-4)
    accepted = sum(
        int(full.ref.proposal[place]) == int(whole.oracle[row + lookahead - 1])
        for place, row in wanted
    )
    frame = part.frames[0]
    assert int(frame["ref_accepts"].sum()) == accepted > 0
    assert list(frame.columns) == list(COLUMNS) and bool(frame["generated"].all())
    assert full.frames[0]["generated"].isna().all()


def test_the_table_tells_generated_oracles_apart():
    """Marked rows from position 50 on, none left out: the mark stands at the oracle's row."""
    whole = read_trace(SAMPLE / "traces" / "german.trace.safetensors")
    pair = PairOptions(head="mtp")
    choice = choose_head(SAMPLE / "model", [], pair.head)
    ref = load_ref(SAMPLE / "model", choice, HeadOptions(), pair.block)
    frame = measure_trace(ref, [ref], replace(whole, generated=whole.position >= 50)).frames[0]
    assert (frame["generated"] == (frame["position"] + 1 >= 50)).all()
    assert 0 < frame["generated"].sum() < len(frame)
