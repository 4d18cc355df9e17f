"""Labels never cover a mark, an interval or each other, and stay inside the chart."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.report.charts.labels import CHARACTER, LINE, Plane, obstacles_of, place_labels

PLANE = Plane((0.0, 2.0), (-1.0, 1.0), 640, 340)
point = st.tuples(st.floats(0, 2), st.floats(-1, 1), st.text("abcdef", min_size=1, max_size=20))


@given(st.lists(point, max_size=25))
def test_no_two_labels_and_no_mark_overlap(points: list[tuple[float, float, str]]) -> None:
    frame = pd.DataFrame(points, columns=["x", "y", "label"]).assign(family="noise")
    obstacles = obstacles_of(frame, PLANE)
    placed = place_labels(frame, PLANE, obstacles)
    boxes = list(obstacles)
    for row in placed.to_dict("records"):
        x, y = PLANE.pixel(row["lx"], row["ly"])
        half, up = CHARACTER * len(row["label"]) / 2, LINE / 2
        box = (x - half, y - up, x + half, y + up)
        assert box[0] >= -1e-6 and box[2] <= 640 + 1e-6 and box[1] >= -1e-6 and box[3] <= 340 + 1e-6
        for other in boxes:
            apart = (box[2] - other[0], other[2] - box[0], box[3] - other[1], other[3] - box[1])
            assert min(apart) <= 1e-6
        boxes.append(box)


def test_a_lonely_label_stands_to_the_right_of_its_mark() -> None:
    frame = pd.DataFrame({"x": [1.0], "y": [0.0], "label": ["abcd"], "family": ["noise"]})
    placed = place_labels(frame, PLANE, obstacles_of(frame, PLANE))
    x, y = PLANE.pixel(placed["lx"].item(), placed["ly"].item())
    assert x == pytest.approx(320 + 7 + 2 * CHARACTER) and y == pytest.approx(170)


def test_intervals_are_obstacles() -> None:
    frame = pd.DataFrame({"x": [1.0], "y": [0.0], "x_low": [0.5], "x_high": [1.5],
                          "y_low": [None], "y_high": [0.5]})  # fmt: skip
    assert obstacles_of(frame, PLANE) == [(315, 165, 325, 175), (160, 169, 480, 171)]
