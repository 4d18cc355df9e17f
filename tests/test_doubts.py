"""Pairs of which one head is broken: named as such, never as a kind of cut."""

from __future__ import annotations

import numpy as np
import pytest

from audit.doubts import doubts_of
from audit.estimates import Facts, estimate_all
from audit.stats import Resampling
from audit.table import Frame, position_frame
from audit.verdict import judge

ORACLE = np.random.default_rng(0).integers(0, 50, 600)


def frame(ref: np.ndarray, cand: np.ndarray, corpus: str = "code") -> Frame:
    none = np.zeros(len(ORACLE), bool)
    return position_frame(
        {
            "candidate": "c", "corpus": corpus, "register": "in_distribution",
            "sequence": np.arange(len(ORACLE)) // 30, "position": np.arange(len(ORACLE)) % 30,
            "token": ORACLE, "oracle": ORACLE, "ref": ref, "cand": cand,
            "ref_margin": np.ones(len(ORACLE)), "cand_margin": np.ones(len(ORACLE)),
            "ref_tied": none, "cand_tied": none, "ref_rank": np.ones(len(ORACLE), int),
            "cand_rank": np.ones(len(ORACLE), int), "oracle_in_vocabulary": ~none,
            "ref_in_vocabulary": ~none, "tie_flip": none, "kl_nats": None,
        }
    )  # fmt: skip


def guesses(share: float, seed: int) -> np.ndarray:
    """Right at this share of positions, at random elsewhere."""
    rng = np.random.default_rng(seed)
    wrong = (ORACLE + rng.integers(1, 50, len(ORACLE))) % 50
    return np.where(rng.random(len(ORACLE)) < share, ORACLE, wrong)


@pytest.mark.parametrize(
    ("ref", "cand", "codes"),
    [
        (0.7, 0.65, []),
        (0.7, 0.2, []),
        (0.7, 0.02, ["CANDIDATE_AT_CHANCE"]),
        (0.4, 0.7, ["REFERENCE_BEATEN"]),
        (0.02, 0.02, []),
    ],
)
def test_what_is_doubtful(ref: float, cand: float, codes: list[str]) -> None:
    made = frame(guesses(ref, 1), guesses(cand, 2))
    estimates = estimate_all([made], Facts(), Resampling(resamples=400))
    found = doubts_of("c", estimates, [made])
    assert [finding.code for finding in found] == codes
    if codes:
        verdict = judge(
            estimates, same_weights=False, trimmed=False, doubts=[f.sentence for f in found]
        )
        assert verdict.kind == "undecided" and found[0].sentence in verdict.sentence


def test_a_candidate_alive_on_one_text_is_not_at_chance() -> None:
    dead, alive = (frame(guesses(0.7, 1), guesses(share, 2), name)
                   for share, name in ((0.02, "german"), (0.5, "code")))  # fmt: skip
    estimates = estimate_all([dead, alive], Facts(), Resampling(resamples=400))
    assert doubts_of("c", estimates, [dead, alive]) == []
