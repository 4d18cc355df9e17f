"""What the verifier emits on each corpus, as plain arrays: all that ranks are made and judged by.

Works on the oracle alone: no head is run and no state is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from audit.heads.tokens import Tokens
from audit.table import Frame, position_frame
from audit.traces import Trace, lookahead_rows
from audit.traces.repeats import units

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Emitted:
    """The verifier's tokens on one corpus, n of them."""

    trace: Trace
    oracle: Ids
    """[n], target ids."""
    sequence: Ids
    """[n], of repeated texts the first."""
    classes: NDArray[np.object_] | None = None
    """[n], the token class of each oracle; None where no tokenizer is known."""

    @property
    def corpus(self) -> str:
        return self.trace.info.corpus

    def counts(self, vocabulary: int) -> Ids:
        """How often each id is emitted, [vocabulary]."""
        return np.bincount(self.oracle, minlength=vocabulary).astype(np.int64)

    def frame(self, proposes: Iterable[int]) -> Frame:
        """A position table of a perfect draft that has only the ids `proposes`.

        It accepts where its vocabulary holds the oracle, so its acceptance is the ceiling.
        """
        inside = np.isin(self.oracle, np.fromiter(proposes, np.int64))
        always = np.ones(len(self.oracle), bool)
        return position_frame(
            {
                "candidate": "card", "corpus": self.corpus,
                "register": self.trace.info.register_, "sequence": self.sequence,
                "position": np.arange(len(self.oracle)), "token": self.oracle,
                "oracle": self.oracle, "oracle_class": self.classes, "ref": self.oracle,
                "cand": np.where(inside, self.oracle, -1), "ref_tied": ~always,
                "cand_tied": ~always, "tie_flip": ~always, "oracle_in_vocabulary": inside,
                "ref_in_vocabulary": inside, "ref_rank": np.ones(len(self.oracle), np.int64),
            }
        )  # fmt: skip


def emitted(trace: Trace, tokens: Tokens | None = None) -> Emitted:
    """What the verifier emits on a trace; rows without an oracle are left out."""
    rows, _ = lookahead_rows(trace, 1)
    oracle = trace.oracle[rows].numpy()
    classes = tokens.classes(oracle) if tokens else None
    return Emitted(trace, oracle, units(trace)[rows].numpy(), classes)


def vocabulary_of(given: Sequence[Emitted], stated: int | None) -> int:
    """Number of target ids: as stated by the model, else by the traces, else the largest seen."""
    known = [stated] + [one.trace.info.vocabulary for one in given]
    largest = max(int(one.oracle.max()) for one in given) + 1
    return max(largest, *(size for size in known if size is not None), 0)


def most_frequent(counts: Ids, size: int) -> Ids:
    """The `size` most frequent ids, those never emitted left out; of equal ones the lower id."""
    order = np.lexsort((np.arange(len(counts)), -counts))[:size]
    return np.asarray(order[counts[order] > 0], np.int64)
