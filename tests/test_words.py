"""Counts and lists in sentences."""

from __future__ import annotations

import numpy as np

from audit.records import TraceInfo, TraceRecord
from audit.report.wording import trace_line
from audit.stats import percentile_interval
from audit.words import count, some


def test_one_is_no_plural() -> None:
    assert count(1, "sequence") == "1 sequence" and count(0, "row") == "0 rows"
    assert count(12_345, "position") == "12,345 positions"


def test_lists_end_with_how_many_more() -> None:
    assert some("abcd") == "a, b, c, d" and some("abcdef") == "a, b, c, d and 2 more"
    assert some([], 2) == "" and some([1, 2, 3], 2) == "1, 2 and 1 more"


def test_a_trace_of_one_sequence_and_its_missing_interval() -> None:
    info = TraceInfo.model_validate(
        {
            "model": "m", "model_sha256": None, "tokenizer_sha256": None, "vocabulary": None,
            "corpus": "code", "register": "in_distribution", "language": None,
            "stage": "post_norm", "oracle": "text", "captured_by": "test",
        }
    )  # fmt: skip
    record = TraceRecord(path="t", sha256="0" * 64, positions=1, sequences=1, hidden_size=4,
                         info=info)  # fmt: skip
    assert "1 position in 1 sequence" in trace_line(record)
    none = percentile_interval(np.zeros(0), 1, 0.95)
    assert none.reason == "1 sequence: an interval needs 5 or more"
