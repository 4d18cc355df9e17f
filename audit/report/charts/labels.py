"""Where labels go beside their marks so that they do not cover each other.

Vega-Lite has no such thing, and with a known domain it is arithmetic: each label tries a few places
round its mark and takes the first free one. A label that finds none is left out; its mark stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

CHARACTER, LINE = 5.9, 12.0
"""Size of a character of a 10-pixel label, in pixels, with some room."""
_GAP = 7.0
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Plane:
    """A chart's area: its domains and its size in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: float
    height: float

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Place of a point in pixels from the lower left corner."""
        return (
            (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width,
            (y - self.y[0]) / (self.y[1] - self.y[0]) * self.height,
        )

    def value(self, across: float, up: float) -> tuple[float, float]:
        """The point at a place in pixels."""
        return (
            self.x[0] + across / self.width * (self.x[1] - self.x[0]),
            self.y[0] + up / self.height * (self.y[1] - self.y[0]),
        )


def place_labels(frame: pd.DataFrame, plane: Plane, obstacles: Sequence[Box]) -> pd.DataFrame:
    """Rows `label`, `family`, `lx`, `ly` (the centre, in values) for the labels that fit.

    Args:
        frame: columns x, y, label and family; the first rows choose first.
        obstacles: what no label may cover, in pixels; see `obstacles_of`.
    """
    taken = list(obstacles)
    placed = []
    columns = (frame[name] for name in ("x", "y", "label", "family"))
    for x, y, label, family in zip(*columns, strict=True):
        size = len(label) * CHARACTER, LINE
        for centre in _candidates(*plane.pixel(x, y), *size):
            box = _box(*centre, *size)
            if _inside(box, plane) and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                placed.append((label, family, *plane.value(*centre)))
                break
    return pd.DataFrame(placed, columns=["label", "family", "lx", "ly"])


def obstacles_of(frame: pd.DataFrame, plane: Plane) -> list[Box]:
    """The marks of a frame and, where known, their intervals."""
    boxes = []
    for row in frame.to_dict("records"):
        x, y = plane.pixel(row["x"], row["y"])
        boxes.append((x - 5, y - 5, x + 5, y + 5))
        for axis, other in (("x", y), ("y", x)):
            found = (row.get(f"{axis}_{end}") for end in ("low", "high"))
            ends = [end for end in found if isinstance(end, float) and math.isfinite(end)]
            if len(ends) < 2:
                continue
            low, high = (plane.pixel(end, end)[axis == "y"] for end in ends)
            thin = (low, other - 1, high, other + 1)
            boxes.append(thin if axis == "x" else (thin[1], thin[0], thin[3], thin[2]))
    return boxes


def _candidates(x: float, y: float, width: float, height: float) -> Iterator[tuple[float, float]]:
    """Centres to try: right, left, above, below, and further out along the diagonals."""
    across, up = _GAP + width / 2, _GAP + height / 2
    yield from ((x + across, y), (x - across, y), (x, y + up), (x, y - up))
    for step in (0.7, 1.4, 2.1, 2.8):
        for side in (1, -1):
            for way in (1, -1):
                yield x + side * across, y + way * up * step


def _box(x: float, y: float, width: float, height: float) -> Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _inside(box: Box, plane: Plane) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= plane.width and box[3] <= plane.height


def _overlap(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
