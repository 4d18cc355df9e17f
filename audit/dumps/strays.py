"""Is every single text of a dump aligned? One of ten may be shifted, or its rows in any order,
and all together still fit.

Each text is held against other alignments of its own, and against what the others show. Errors
are counted once for the whole dump (Bonferroni), in Student's t, since texts are short. Texts that
are too short to tell are judged together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from scipy import special
from torch import Tensor

from audit.dumps.alignment import FAR, SHIFTS, Alignment, standard_errors
from audit.errors import MismatchError

_SURE = 3.0
_ERROR = float(special.ndtr(-_SURE))
"""Chance of refusing an honest dump, on either account."""
_SOMETHING = 2.0
"""Standard errors by which an unknown language still shows that it is aligned."""
_FEWEST = 8
"""Rows below which a text tells nothing."""
_SHARE = 0.5
"""Of what the others show. A text that shows less, yet something, passes by that."""


@dataclass(frozen=True, slots=True)
class Strays:
    """What each text says."""

    shown: int = 0
    untold: int = 0
    """Texts too short, or too little known to the model, to tell."""
    shifted: Mapping[int, int] = field(default_factory=dict)
    """Sequence -> the shift that fits clearly better than none."""
    astray: tuple[int, ...] = ()
    """Sequences that fit nowhere near what the others show."""


def find_strays(found: Alignment) -> Strays:
    """Judge each text of the evidence, and those that are too short together."""
    if found.text is None or len(found.text) == 0:
        return Strays()
    numbers, counts = torch.unique_consecutive(found.text, return_counts=True)
    parts = {shift: gain.split(counts.tolist()) for shift, gain in found.gains.items()}
    texts = [{shift: part[i] for shift, part in parts.items()} for i in range(len(numbers))]
    shown, untold = 0, []
    shifted: dict[int, int] = {}
    astray: list[int] = []
    for i, text in enumerate(texts):
        if shift := _shift(text, len(texts)):
            shifted[int(numbers[i])] = shift
        elif _shown(text):
            shown += 1
        elif _astray(text, found.gains, len(texts)):
            astray.append(int(numbers[i]))
        else:
            untold.append(i)
    if len(untold) > 1:
        together = {shift: torch.cat([part[i] for i in untold]) for shift, part in parts.items()}
        which = [int(numbers[i]) for i in untold]
        if shift := _shift(together, len(texts)):
            shifted |= dict.fromkeys(which, shift)
            untold = []
        elif not _shown(together) and _astray(together, found.gains, len(texts)):
            astray += which
            untold = []
    return Strays(shown, len(untold), shifted, tuple(sorted(astray)))


def require_no_strays(strays: Strays, names: Sequence[str], dump: Path, *, force: bool) -> None:
    """Refuse a dump in which some texts are not aligned.

    Args:
        names: the file of each sequence.

    Raises:
        MismatchError: ALIGNMENT where some fit better shifted; MISALIGNED where some fit nowhere,
            which `force` silences.
    """
    if strays.shifted:
        first, shift = min(strays.shifted.items())
        raise MismatchError(
            f"the states of {_named(list(strays.shifted), names)} fit the text better shifted by "
            f"{shift:+d}, those of the others do not",
            hint="dumps are unshifted; dump these texts again, or leave them out",
            where=names[first],
            code="ALIGNMENT",
        )
    if strays.astray and not force:
        raise MismatchError(
            f"the states of {_named(strays.astray, names)} do not predict their text, as those of "
            "the others do",
            hint="their rows are in another order or of another text, or the model knows nothing "
            "of their language: dump them again or leave them out; --force goes on and marks the "
            "trace",
            where=names[strays.astray[0]] or dump,
            code="MISALIGNED",
        )


def _named(which: Sequence[int], names: Sequence[str]) -> str:
    first = names[min(which)]
    return first if len(which) == 1 else f"{len(which)} texts, the first {first},"


def _shift(text: Mapping[int, Tensor], texts: int) -> int | None:
    """The shift that fits clearly better than none."""
    z = {shift: standard_errors(text[shift]) for shift in SHIFTS}
    worst = min(z, key=lambda shift: z[shift])
    sure = z[worst] <= -_bound(text[worst], texts * len(SHIFTS))
    return worst if sure else None


def _shown(text: Mapping[int, Tensor]) -> bool:
    return all(standard_errors(text[shift]) >= _bound(text[shift], 1) for shift in (-1, 1))


def _astray(text: Mapping[int, Tensor], every: Mapping[int, Tensor], texts: int) -> bool:
    """It shows clearly less than half of what the others show, and nothing by itself."""
    own, whole = _over_all(text), _over_all(every)
    follows = all(float(text[shift].nanmean()) > 0 for shift in (-1, 1))
    if follows and standard_errors(own) >= _SOMETHING:
        return False
    others = int((~whole.isnan()).sum() - (~own.isnan()).sum())
    if others < 1:
        return False
    there = float(whole.nansum() - own.nansum()) / others
    return there > 0 and standard_errors(own - _SHARE * there) <= -_bound(own, texts)


def _over_all(gains: Mapping[int, Tensor]) -> Tensor:
    """float64 [n]: each row's gain over all other tokens it is held against, whose noise then
    cancels; NaN where there is none."""
    return torch.stack([gains[shift] for shift in (*SHIFTS, *FAR)]).nanmean(dim=0)


def _bound(gain: Tensor, tests: int) -> float:
    """Standard errors that one of so many tests needs; infinite below _FEWEST values."""
    rows = int((~gain.isnan()).sum())
    if rows < _FEWEST:
        return math.inf
    return -float(special.stdtrit(rows - 1, _ERROR / tests))
