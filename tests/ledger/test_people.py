"""Reviews, waivers and judgements: appended, named by their content, never changed; what accepting
demands."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import text

from audit.errors import AuditError, BadUsageError, MismatchError, NotFoundError, UnreadableError
from audit.ledger import Ledger, limits_to_waive, seal
from audit.records import GateResult, Run
from tests.ledger.made import TABLE, a_candidate, a_gate, a_review, a_run, a_waiver

FAILED = a_gate("fail", ("worst", "fail", None), ("kl", "undecided", None), ("ok", "pass", None))


@pytest.fixture
def run(ledger: Ledger) -> Run:
    return ledger.save_run(a_run(), [TABLE])


def judged(ledger: Ledger, run: Run, gate: GateResult) -> GateResult:
    return ledger.add_judgement(run.run, "c" * 64, gate).gate


def test_what_passed_may_be_accepted(ledger: Ledger, run: Run) -> None:
    gate = judged(ledger, run, a_gate("pass", ("worst", "pass", None)))
    review = ledger.add_review(a_review(run, gate))
    assert ledger.reviews_of(run.run) == [review] and review.id == seal(review).id
    assert review.gate == "pass" and not review.waivers
    assert ledger.reviews_of("another") == []


def test_the_same_review_is_one(ledger: Ledger, run: Run) -> None:
    for _ in range(3):
        ledger.add_review(a_review(run, decision="reject"))
    ledger.add_review(a_review(run, decision="reject", created="2026-03-01T00:00:01Z"))
    assert len(ledger.reviews_of(run.run)) == 2


@pytest.mark.parametrize(
    ("gate", "limits"),
    [
        (None, ("gate",)),
        (a_gate("pass"), ()),
        (FAILED, ("worst", "kl")),
        (a_gate("undecided", ("kl", "undecided", None)), ("kl",)),
        (a_gate("fail", ("worst", "fail", "w" * 64), ("kl", "fail", None)), ("kl",)),
        (a_gate("fail", ("worst", "fail", None), ("worst", "fail", None)), ("worst",)),
        (a_gate("fail"), ("gate",)),
        (a_gate("undecided", ("ok", "pass", None)), ("gate",)),
    ],
    ids=lambda value: "" if isinstance(value, tuple) else getattr(value, "sentence", "unjudged"),
)
def test_what_must_be_waived(gate: GateResult | None, limits: tuple[str, ...]) -> None:
    assert limits_to_waive([gate] if gate else []) == limits


def test_a_run_that_was_never_judged_is_not_simply_accepted(ledger: Ledger, run: Run) -> None:
    with pytest.raises(BadUsageError, match="never judged") as caught:
        ledger.add_review(a_review(run))
    assert "audit gate" in caught.value.hint and "--waiver-limit gate" in caught.value.hint
    for decision in ("reject", "more-data"):
        ledger.add_review(a_review(run, decision=decision))
    review = ledger.add_review(a_review(run), [a_waiver("gate")])
    assert [waiver.id for waiver in ledger.all_waivers()] == list(review.waivers)


def test_every_limit_that_did_not_pass_needs_its_waiver(ledger: Ledger, run: Run) -> None:
    gate = judged(ledger, run, FAILED)
    with pytest.raises(BadUsageError, match="waiver for worst, kl"):
        ledger.add_review(a_review(run, gate))
    with pytest.raises(BadUsageError, match="waiver for kl") as caught:
        ledger.add_review(a_review(run, gate), [a_waiver("worst")])
    assert "--waiver-limit kl" in caught.value.hint
    assert ledger.all_waivers() == [] == ledger.reviews_of(run.run)
    known = ledger.add_waiver(a_waiver("worst"))
    review = ledger.add_review(a_review(run, gate, waivers=(known.id,)), [a_waiver("kl")])
    assert review.waivers == tuple(waiver.id for waiver in ledger.waivers_of("c" * 64))


def test_waivers_that_do_not_serve(ledger: Ledger, run: Run) -> None:
    gate = judged(ledger, run, FAILED)
    other = ledger.add_waiver(a_waiver("worst", head="d" * 64))
    for changes, fresh, words in (
        ({"waivers": (other.id,)}, [], "of another head"),
        ({"waivers": ("0" * 64,)}, [], "no waiver 000"),
        ({}, [a_waiver("ok")], "'ok' needs no waiver"),
        ({}, [a_waiver("worst"), a_waiver("kl"), a_waiver("typo")], "'typo' needs no waiver"),
        ({}, [a_waiver("worst", "2026-01-31")], "would have expired"),
        ({}, [a_waiver("worst", "soon")], "is no day"),
        ({}, [a_waiver("worst", "20991231")], "is no day"),
        ({}, [a_waiver(" ")], "needs a limit"),
        ({"decision": "reject"}, [a_waiver("worst")], "serves to accept"),
        ({"reason": " "}, [], "needs a reason"),
        ({"reviewer": ""}, [], "needs a reviewer"),
        ({"reason": "a\0b"}, [a_waiver("worst"), a_waiver("kl")], "can not be kept"),
        ({"reason": "a\udcff"}, [a_waiver("worst"), a_waiver("kl")], "can not be kept"),
        ({"head_sha256": "e" * 64}, [], "no candidate"),
    ):
        with pytest.raises((BadUsageError, NotFoundError), match=words):
            ledger.add_review(a_review(run, gate, **changes), fresh)  # type: ignore[arg-type]
    assert ledger.reviews_of(run.run) == [] and ledger.all_waivers() == [other]


def test_a_waiver_that_expired_does_nothing(
    ledger: Ledger, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = judged(ledger, run, a_gate("fail", ("worst", "fail", None)))
    waiver = ledger.add_waiver(a_waiver("worst", "2999-12-31"))
    for now, refused in (("2999-12-31T23:59:59Z", False), ("3000-01-01T00:00:00Z", True)):
        monkeypatch.setattr("audit.ledger.ledger.now_utc", lambda now=now: now)
        review = a_review(run, gate, waivers=(waiver.id,), created=now)
        if refused:
            with pytest.raises(BadUsageError, match="expired on 2999-12-31"):
                ledger.add_review(review)
        else:
            ledger.add_review(review)


def test_a_review_is_of_the_newest_judgement(ledger: Ledger, run: Run) -> None:
    seen = judged(ledger, run, a_gate("pass", judged="2026-02-01T00:00:00Z"))
    judged(ledger, run, a_gate("fail", ("x", "fail", None), judged="2026-02-02T00:00:00Z"))
    judged(ledger, run, a_gate("pass", judged="2026-01-01T00:00:00Z"))
    with pytest.raises(MismatchError, match="judged again"):
        ledger.add_review(a_review(run, seen))
    (newest,) = ledger.answers(run.run, "c" * 64)
    assert newest.outcome == "fail"
    same_outcome = a_gate("fail", ("x", "fail", None), policy="1" * 64)
    with pytest.raises(MismatchError, match="judged again"):
        ledger.add_review(a_review(run, same_outcome, decision="reject"))


def test_a_laxer_policy_does_not_lift_what_another_one_said(ledger: Ledger, run: Run) -> None:
    """The newest answer of each policy stands, and accepting needs a waiver for all of them."""
    days = [f"2026-02-{day:02}T00:00:00Z" for day in range(1, 6)]
    judged(ledger, run, a_gate("fail", ("worst", "fail", None), judged=days[0]))
    lax = a_gate("pass", ("one", "pass", None), judged=days[1], policy="1" * 64, name="lax")
    judged(ledger, run, lax)
    strict, other = ledger.answers(run.run, "c" * 64)
    assert (strict.policy.name, other.policy.name) == ("release", "lax")
    assert limits_to_waive((strict, other)) == ("worst",)
    with pytest.raises(MismatchError, match="judged again"):
        ledger.add_review(a_review(run, lax))
    with pytest.raises(BadUsageError, match=r"says fail under release; .* a waiver for worst"):
        ledger.add_review(a_review(run, strict))
    ((row,),) = [one.candidates for one in ledger.runs().runs]
    assert (row.gate, row.policy) == ("fail", "release")
    judged(ledger, run, a_gate("fail", ("x y", "fail", None), judged=days[2], name="third"))
    answers = ledger.answers(run.run, "c" * 64)
    assert limits_to_waive(answers) == ("x y", "worst")
    with pytest.raises(BadUsageError) as caught:
        ledger.add_review(a_review(run, answers[0]))
    assert "--waiver-limit 'x y' --waiver-limit worst" in caught.value.hint
    judged(ledger, run, a_gate("pass", judged=days[3]))
    judged(ledger, run, a_gate("pass", judged=days[4], name="third"))
    assert [one.policy.name for one in ledger.answers(run.run, "c" * 64)] == [
        "third", "release", "lax",
    ]  # fmt: skip
    ledger.add_review(a_review(run, ledger.answers(run.run, "c" * 64)[0]))
    ((row,),) = [one.candidates for one in ledger.runs().runs]
    assert (row.gate, row.policy, row.decision) == ("pass", "third", "accept")


def test_each_candidate_is_judged_for_itself(ledger: Ledger) -> None:
    run = ledger.save_run(a_run(0, a_candidate("a"), a_candidate("b", "d" * 64)), [TABLE])
    gate = ledger.add_judgement(run.run, "d" * 64, a_gate("pass")).gate
    assert ledger.answers(run.run, "c" * 64) == ()
    with pytest.raises(MismatchError):
        ledger.add_review(a_review(run, gate))
    ledger.add_review(a_review(run, gate, head_sha256="d" * 64))
    with pytest.raises(BadUsageError, match="no candidate"):
        ledger.add_judgement(run.run, "e" * 64, gate)
    with pytest.raises(UnreadableError, match="can not be read"):
        ledger.add_judgement("0" * 16, "d" * 64, gate)


def test_two_reviewers_at_once_lose_nothing(opened: Callable[[], Ledger]) -> None:
    """Eight threads, each with a ledger of its own, all starting together."""
    run = opened().save_run(a_run(), [TABLE])
    start, errors = threading.Barrier(8), []

    def review(who: int) -> None:
        ledger = opened()
        start.wait()
        try:
            for number in range(5):
                decision = a_review(run, decision="reject", reviewer=f"{who}", reason=f"{number}")
                ledger.add_review(decision)
        except AuditError as error:
            errors.append(error)

    threads = [threading.Thread(target=review, args=(who,)) for who in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = opened().reviews_of(run.run)
    assert errors == []
    assert sorted((r.reviewer, r.reason) for r in found) == [
        (str(who), str(number)) for who in range(8) for number in range(5)
    ]
    for who in range(8):  # in the order in which each wrote them
        assert [r.reason for r in found if r.reviewer == str(who)] == list("01234")


@pytest.mark.parametrize(
    ("statement", "read"),
    [
        ("UPDATE reviews SET decision = 'accept'", "reviews_of"),
        ("UPDATE reviews SET reviewer = 'eve'", "reviews_of"),
        ("UPDATE reviews SET waivers = '[\"x\"]'", "reviews_of"),
        ("UPDATE reviews SET decision = 'perhaps'", "reviews_of"),
        ("UPDATE judgements SET outcome = 'pass'", "judgements_of"),
        ("UPDATE judgements SET gate = replace(gate, '\"fail\"', '\"pass\"')", "judgements_of"),
        ("UPDATE judgements SET gate = '{'", "judgements_of"),
        ("UPDATE waivers SET expires = '9999-12-31'", "all_waivers"),
    ],
)
def test_what_was_changed_is_not_believed(
    ledger: Ledger, run: Run, statement: str, read: str
) -> None:
    gate = judged(ledger, run, FAILED)
    ledger.add_review(a_review(run, gate, decision="reject"))
    ledger.add_waiver(a_waiver("worst", "2100-01-01"))
    ledger.index.write(lambda connection: connection.execute(text(statement)))
    with pytest.raises(UnreadableError, match="was changed after it was written"):
        getattr(ledger, read)(*(() if read == "all_waivers" else (run.run,)))


def test_a_review_that_came_since_is_told(ledger: Ledger, run: Run) -> None:
    """Only where the reviewer says what was seen, and inside the writing itself."""
    first = ledger.add_review(a_review(run, decision="reject"), seen=())
    later = {"decision": "more-data", "created": "2026-03-01T00:00:01Z"}
    with pytest.raises(MismatchError, match="reviewed again while the review was written: reject"):
        ledger.add_review(a_review(run, **later), seen=())
    assert ledger.reviews_of(run.run) == [first]
    second = ledger.add_review(a_review(run, **later), seen=(first.id,))
    third = ledger.add_review(a_review(run, decision="reject", created="2026-03-01T00:00:02Z"))
    assert ledger.reviews_of(run.run) == [first, second, third]
