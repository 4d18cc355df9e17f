"""Entries of a list that rank nothing: repeats, and ids that only fill it up.

Two ways of filling up are common. Repeats (FR-Spec appends stop ids again; spare rows start as
copies of the first id), and the lowest ids that the list does not have yet, in ascending order. A
tail of the second kind can be told from a true tail, whose ties are in ascending order too: from
its first id to its last no id is left out, because all that are not in it stand before it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from audit.trims.emitted import Ids

_LEAST_FILL = 32
"""A true tail of so many ids without a gap is beyond chance even in a list of half of all ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """A list as it stands, taken apart."""

    ids: Ids
    """Distinct ids within the vocabulary, in the order of the list."""
    listed: int
    outside: int
    """Entries beyond the vocabulary."""
    repeated: int
    """Entries that repeat an earlier one."""
    filled: int
    """Ids at the end of the list that only fill it up."""


def take_apart(listed: Ids, vocabulary: int, needed: Collection[int] = ()) -> Sorted:
    """What a list holds, int64 [n] of any values.

    Ids that are `needed` whatever their rank, such as byte tokens, fill nothing up.
    """
    inside = listed[(listed >= 0) & (listed < vocabulary)]
    unique, first = np.unique(inside, return_index=True)
    ids = np.asarray(unique[np.argsort(first)], np.int64)
    outside = len(listed) - len(inside)
    repeated = len(inside) - len(ids)
    return Sorted(ids, len(listed), outside, repeated, _filled(ids, vocabulary, needed))


def _filled(ids: Ids, vocabulary: int, needed: Collection[int]) -> int:
    """Length of the tail that leaves no id out, 0 where it is too short to mean anything."""
    must = np.fromiter(needed, np.int64, len(needed))
    ids = ids[~np.isin(ids, must)]
    # Below a list of all ids there is nothing to choose, so its order tells nothing.
    if len(ids) < 2 * _LEAST_FILL or len(ids) == vocabulary:
        return 0
    place = np.full(vocabulary, len(ids), np.int64)
    place[ids] = np.arange(len(ids))
    place[must[must < vocabulary]] = -1
    # Walking up the ids that are not before the tail must give the tail itself, in order.
    start = len(ids) - 1
    low = ids[start]
    while start > 0:
        before = ids[start - 1]
        if before >= low or (place[before + 1 : low] >= start - 1).any():
            break
        start, low = start - 1, before
    length = len(ids) - start
    return length if length >= _LEAST_FILL else 0
