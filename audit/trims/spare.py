"""A ranks card with the missing ids added that would win back most."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from audit.trims.card import CardFacts, CorpusShare, write_card
from audit.trims.choosing import Chooser
from audit.trims.emitted import Emitted, Ids


def write_spare_card(
    out: Path,
    base: Ids,
    spare: Sequence[int],
    chooser: Chooser,
    given: Sequence[Emitted],
    vocabulary: int,
) -> CardFacts:
    """Write a card of `base` and, at its end, `spare`, which any shorter cut of it keeps.

    Its counts and shares are those of the traces at hand, not of the text that `base` was ranked
    on. Raises BadUsageError as `write_card` does.
    """
    ids = np.concatenate([base, np.array(spare, np.int64)])
    counts = sum((one.counts(vocabulary) for one in given), np.zeros(vocabulary, np.int64))
    old, first = chooser.facts, given[0].trace.info
    kept = set(ids.tolist())
    named = old.forced.items() if old else ()
    forced = {kind: [i for i in theirs if i in kept] for kind, theirs in named}
    about = {
        "vocabulary": vocabulary,
        "seen": int((counts > 0).sum()),
        "seen_kept": int((counts[ids] > 0).sum()),
        "forced": forced | {"spare": [*forced.get("spare", []), *spare]},
        "padded": [i for i in (old.padded if old else []) if i in kept],
        "counts": counts[ids].tolist(),
        "corpora": [
            CorpusShare(
                corpus=one.corpus, register_=one.trace.info.register_, weight=1.0,
                positions=len(one.oracle), distinct=len(np.unique(one.oracle)),
                coverage=float(np.isin(one.oracle, ids).mean()), trace_sha256=one.trace.sha256,
            )
            for one in given
        ],
        "flavour": None,
        "model": first.model,
        "model_sha256": first.model_sha256,
        "tokenizer_sha256": first.tokenizer_sha256,
    }  # fmt: skip
    return write_card(out, ids.tolist(), about)
