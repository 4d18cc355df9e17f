"""Waivers: who may pass what until when; what they can never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.errors import BadPolicyError, BadUsageError, NotFoundError
from audit.gating import judge_run, load_waivers, make_waiver, outcome_of, unknown_limits
from audit.records import Waiver
from tests.gating.made import (
    HEAD,
    NOW,
    control,
    estimate,
    gate_of,
    head,
    limit,
    policy_of,
    require,
    run_of,
)

BAD = run_of(estimate("retention", "code", 0.90, 0.89, 0.91))
WIDE = run_of(estimate("retention", "code", 0.96, 0.90, 1.0))
TABLE = limit(name="retention", measure="retention", minimum=0.95)


def waiver(**keys: str) -> Waiver:
    fields = {
        "head_sha256": HEAD, "limit": "retention", "reason": "demo only", "who": "Ann",
        "created": "2026-02-01", "expires": "2026-03-01",
    }  # fmt: skip
    return make_waiver(**(fields | keys))


@pytest.mark.parametrize("run", [BAD, WIDE], ids=["fail", "undecided"])
def test_a_waiver_lifts_its_limit_until_its_last_day(run: object) -> None:
    without = gate_of(run, TABLE)  # type: ignore[arg-type]
    assert without.outcome in ("fail", "undecided")
    gate = gate_of(run, TABLE, waivers=(waiver(),))  # type: ignore[arg-type]
    assert gate.outcome == "pass" and "1 waived: retention on code" in gate.sentence
    result = gate.limits[-1]
    assert result.outcome == without.outcome  # it still says what happened
    assert result.waiver == waiver().id
    assert result.sentence.endswith("waived by Ann until 2026-03-01: demo only")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"expires": "2026-02-28"}, "the waiver by Ann expired on 2026-02-28 and does nothing"),
        ({"expires": "next year"}, "names no last day and does nothing"),
        ({"limit": "tax"}, ""),
        ({"head_sha256": "cd" * 32}, ""),
        ({"head_sha256": HEAD[:11]}, ""),  # too short to name a head
    ],
)
def test_what_does_not_waive(keys: dict[str, str], told: str) -> None:
    gate = gate_of(BAD, TABLE, waivers=(waiver(**keys),))
    assert gate.outcome == "fail" and gate.limits[-1].waiver is None
    assert told in gate.limits[-1].sentence
    assert bool(told) == ("waiver" in gate.limits[-1].sentence)


def test_a_beginning_of_the_hash_names_the_head_if_it_is_unique() -> None:
    short = waiver(head_sha256=HEAD[:12])
    assert gate_of(BAD, TABLE, waivers=(short,)).outcome == "pass"
    twins = run_of(
        *BAD.candidates[0].estimates, heads=(head("a", HEAD), head("b", HEAD[:-2] + "00"))
    )
    with pytest.raises(BadUsageError, match="fits several candidates"):
        judge_run(twins, policy_of(TABLE), (short,), now=NOW)
    judged = judge_run(twins, policy_of(TABLE), (waiver(),), now=NOW)
    outcomes = [c.gate.outcome for c in judged.candidates if c.gate]
    assert outcomes == ["pass", "fail"] and outcome_of(judged) == "fail"


def test_the_waiver_that_lasts_longest_counts() -> None:
    both = (waiver(expires="2026-02-01"), waiver(expires="2027-01-01", who="Bob"))
    assert "waived by Bob until 2027-01-01" in gate_of(BAD, TABLE, waivers=both).limits[-1].sentence


def test_a_waiver_for_one_limit_leaves_the_others() -> None:
    run = run_of(
        estimate("retention", "code", 0.90, 0.89, 0.91),
        estimate("disagreement", "code", 0.3, 0.28, 0.32),
    )
    other = limit(name="flips", measure="disagreement", maximum=0.1)
    gate = gate_of(run, TABLE, other, waivers=(waiver(),))
    assert gate.outcome == "fail"
    assert gate.sentence == "fail: 1 of 3 limits failed: flips on code; 1 waived: retention on code"


def test_failed_controls_can_not_be_waived() -> None:
    broken = run_of(*BAD.candidates[0].estimates, controls=(control(passed=False),))
    for tables, name in (
        ((TABLE,), "controls"),
        ((require(name="own checks", controls=["self"]),), "own checks"),
    ):
        gate = gate_of(broken, *tables, waivers=(waiver(limit=name), waiver()))
        assert gate.outcome == "fail"
        told = next(one.sentence for one in gate.limits if one.limit == name)
        assert told.endswith("failed controls can not be waived")


FILE = """
[[waiver]]
head = "abababababab"
limit = "retention"
reason = "demo only"
who = "Ann"
expires = 2026-03-31
"""


def test_waivers_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(FILE + FILE.replace("2026-03-31", '"2026-04-30"\ncreated = 2026-01-01'))
    first, second = load_waivers(path)
    assert (first.head_sha256, first.expires, first.created) == ("ab" * 6, "2026-03-31", "")
    assert (second.expires, second.created) == ("2026-04-30", "2026-01-01")
    assert first.id != second.id and len(first.id) == 64
    assert gate_of(BAD, TABLE, waivers=(first,)).outcome == "pass"
    path.write_text("")
    assert load_waivers(path) == ()


@pytest.mark.parametrize(
    ("old", "new", "words", "hint"),
    [
        ("who =", "whom =", "unknown key 'whom'", "did you mean who?"),
        ('who = "Ann"', "", "who is missing", ""),
        ("expires = 2026-03-31", "", "expires is missing", ""),
        ("2026-03-31", '"soon"', "'soon' is not a day", "2026-01-31"),
        ("abababababab", "ababab", "not the hash of a head", "12 to 64 hex digits"),
        ("abababababab", "cand.safetensors", "not the hash of a head", ""),
        ("[[waiver]]", "[waiver]", "not a list of tables", "[[waiver]]"),
        ("[[waiver]]", "[[waivers]]", "unknown key 'waivers'", "did you mean waiver?"),
        ("[[waiver]]", "[[waiver", "not TOML", ""),
        ('"Ann"', '" "', "who:", ""),
    ],
)
def test_bad_waiver_files(tmp_path: Path, old: str, new: str, words: str, hint: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(FILE.replace(old, new))
    with pytest.raises(BadPolicyError) as caught:
        load_waivers(path)
    assert words in caught.value.message and hint in caught.value.hint
    assert caught.value.where == str(path)


def test_no_waiver_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_waivers(tmp_path / "none.toml")


def test_a_waiver_for_a_limit_that_is_not_there_is_told() -> None:
    (told,) = unknown_limits((waiver(limit="retentoin"), waiver()), policy_of(TABLE))
    assert "'retentoin'" in told and "did you mean retention?" in told
