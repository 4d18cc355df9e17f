"""Review: what the form demands is what `audit review` demands, and what it signs is appended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from streamlit.testing.v1 import AppTest

from audit.cli.main import group
from audit.dashboard import serving
from audit.ledger import Ledger, open_ledger
from audit.records import GateResult, Run
from tests.dashboard.conftest import Go, told
from tests.dashboard.made import HOSTILE, a_candidate, a_run, table
from tests.ledger.made import a_waiver
from tests.report import made

FAILED = made.gate("fail", made.limit(limit="worst"), made.limit(limit="ok", outcome="pass"))
NEXT_YEAR = datetime.now(UTC).date() + timedelta(days=365)
PASSED = made.gate("pass", made.limit(limit="ok", outcome="pass"))


@pytest.fixture(autouse=True)
def reviewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_REVIEWER", "ada")
    monkeypatch.delenv("AUDIT_USER_HEADER", raising=False)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path / "ledger")


def a_saved_run(ledger: Ledger, gate: GateResult | None, name: str = "q4.gguf") -> Run:
    run = a_run(a_candidate(name, "1", gate), created="2026-11-01T09:00:00Z")
    return ledger.save_run(run, [table(name, 100)])


def decide(at: AppTest, decision: str, reason: str = "") -> AppTest:
    at.radio[0].set_value(decision).run()
    if reason:
        at.text_area[0].set_value(reason).run()
    return at


def sign(at: AppTest) -> AppTest:
    button = next(one for one in at.button if one.label == "Sign")
    assert not button.disabled
    button.click().run()
    assert not at.exception, [one.value for one in at.exception]
    return at


def refusal(ledger: Ledger, run: Run, *options: str) -> str:
    """The sentence with which the command refuses the same."""
    args = ["review", run.run, "--ledger", ledger.where, *options]
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 2
    return done.stderr.partition("error: ")[2].splitlines()[0].partition(" [")[0]


def test_what_passed_is_accepted_with_a_reason(go: Go, ledger: Ledger) -> None:
    run = a_saved_run(ledger, PASSED)
    at = go(ledger, "review", run=run.run)
    assert "Review of q4" in told(at) and "Nobody decided yet" in told(at)
    assert [one.label for one in at.button if one.disabled] == ["Sign"], "nothing is decided yet"
    decide(at, "accept", "worth the memory")
    assert not at.selectbox and not at.date_input, "no waiver is needed"
    sign(at)
    (review,) = ledger.reviews_of(run.run)
    assert (review.decision, review.reason, review.reviewer) == (
        "accept",
        "worth the memory",
        "ada",
    )
    assert (review.gate, review.authenticated, review.waivers) == ("pass", False, ())
    assert review.policy_sha256 == PASSED.policy.sha256
    assert review.id[:12] in at.success[0].value and "unauthenticated" in at.success[0].value
    assert at.radio[0].value is None and at.text_area[0].value == "", "not signed twice"
    again = go(ledger, "review", run=run.run)
    assert "worth the memory" in told(again) and "by ada (unauthenticated)" in told(again)
    assert not again.success


def test_a_decision_without_a_reason_is_refused_as_at_the_terminal(go: Go, ledger: Ledger) -> None:
    run = a_saved_run(ledger, PASSED)
    at = sign(decide(go(ledger, "review", run=run.run), "reject"))
    assert refusal(ledger, run, "--decision", "reject") in at.error[0].value
    assert "--" not in at.error[0].value, "no option of a command line on a page"
    assert ledger.reviews_of(run.run) == []


@pytest.mark.parametrize(("gate", "limit", "words"), [
    (FAILED, "worst", "The gate says fail"),
    (made.gate("undecided", made.limit(limit="kl", outcome="undecided")), "kl", "says undecided"),
    (None, "gate", "never judged"),
])  # fmt: skip
def test_accepting_what_did_not_pass_demands_a_waiver(
    go: Go, ledger: Ledger, gate: GateResult | None, limit: str, words: str
) -> None:
    run = a_saved_run(ledger, gate)
    at = decide(go(ledger, "review", run=run.run), "accept", "one release only")
    assert words in at.warning[-1].value and at.selectbox[0].label.endswith(limit)
    sign(at)
    assert "a waiver needs a last day" in at.error[0].value
    assert ledger.reviews_of(run.run) == [] == ledger.all_waivers()
    at.date_input[0].set_value(NEXT_YEAR).run()
    sign(at)
    (review,), (waiver,) = ledger.reviews_of(run.run), ledger.all_waivers()
    assert review.waivers == (waiver.id,) and review.gate == (gate.outcome if gate else None)
    assert (waiver.limit, waiver.expires, waiver.who) == (limit, NEXT_YEAR.isoformat(), "ada")
    assert waiver.reason == review.reason == "one release only"
    assert any(waiver.id[:12] in str(one.value.values) for one in at.dataframe)


@pytest.mark.parametrize("decision", ["reject", "more-data"])
def test_other_decisions_need_no_waiver(go: Go, ledger: Ledger, decision: str) -> None:
    run = a_saved_run(ledger, FAILED)
    at = decide(go(ledger, "review", run=run.run), "accept")
    assert at.selectbox
    decide(at, decision, "loses German")
    assert not at.selectbox and not at.date_input
    sign(at)
    (review,) = ledger.reviews_of(run.run)
    assert (review.decision, review.waivers) == (decision, ())


def test_a_waiver_that_holds_is_offered_and_one_that_does_not_is_not(
    go: Go, ledger: Ledger
) -> None:
    run = a_saved_run(ledger, FAILED)
    known = ledger.add_waiver(a_waiver("worst", head="1" * 64))
    ledger.add_waiver(a_waiver("ok", head="1" * 64))
    ledger.add_waiver(a_waiver("worst", head="2" * 64))
    at = decide(go(ledger, "review", run=run.run), "accept", "as agreed")
    assert len(at.selectbox) == 1 and len(at.selectbox[0].options) == 2
    assert known.id[:12] in at.selectbox[0].options[0] and not at.date_input
    sign(at)
    assert ledger.reviews_of(run.run)[0].waivers == (known.id,)
    assert len(ledger.all_waivers()) == 3, "no new one"


def test_judged_again_while_it_was_written(go: Go, ledger: Ledger) -> None:
    """The reviewer signs what was on the page, and nothing that came behind their back."""
    run = a_saved_run(ledger, PASSED)
    at = decide(go(ledger, "review", run=run.run), "accept", "it passed")
    later = FAILED.model_copy(update={"judged": "2999-01-01T00:00:00Z"})
    ledger.add_judgement(run.run, "1" * 64, later)
    sign(at)
    assert "judged again while the review was written" in at.error[0].value
    assert ledger.reviews_of(run.run) == []
    assert "gate: fail" in told(at) or "fail:" in told(at), "the new judgement is shown"


def test_a_proxy_vouches_for_the_name(
    go: Go, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_saved_run(ledger, PASSED)
    assert "Nobody vouches for this name" in told(go(ledger, "review", run=run.run))
    monkeypatch.setenv("AUDIT_USER_HEADER", "X-User")
    at = go(ledger, "review", run=run.run)
    assert "the header X-User" in at.error[0].value and not at.radio
    asked: list[str] = []
    monkeypatch.setattr(serving, "_header", lambda name: asked.append(name) or f" {HOSTILE}\n")
    at = decide(go(ledger, "review", run=run.run), "accept", HOSTILE)
    assert set(asked) == {"X-User"}
    sign(at)
    (review,) = ledger.reviews_of(run.run)
    assert review.authenticated and review.reviewer == " ".join(HOSTILE.split())
    for one in (*at.markdown, *at.success, *at.caption):
        assert "<img" not in one.value and "\u202e" not in one.value


def test_settings_come_from_options_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUDIT_FILES", "AUDIT_USER_HEADER", "AUDIT_REVIEWER"):
        monkeypatch.delenv(name, raising=False)
    assert serving.setting("files", []) is None
    given = ["--ledger=x", "--files=/a b", "--user-header", "H"]
    assert serving.setting("files", given) == "/a b"
    assert serving.setting("user_header", given) == "H"
    monkeypatch.setenv("AUDIT_FILES", "/c")
    assert serving.setting("files", ["--ledger", "x"]) == "/c"
    assert serving.setting("files", given) == "/a b"


def test_nothing_chosen_and_nothing_known(go: Go, ledger: Ledger) -> None:
    assert "holds no runs" in told(go(ledger, "review")) or "no ledger here" in told(
        go(ledger, "review")
    )
    a_saved_run(ledger, None)
    assert "No head is chosen" in told(go(ledger, "review"))
    assert go(ledger, "review", run="none").error[0].value


def test_which_of_several_heads_is_asked(go: Go, ledger: Ledger) -> None:
    run = ledger.save_run(
        a_run(
            a_candidate("a.gguf", "1"), a_candidate("b.gguf", "2"), created="2026-11-01T09:00:00Z"
        ),
        [table("a.gguf", 100), table("b.gguf", 100)],
    )
    at = go(ledger, "review", run=run.run)
    assert not at.radio and at.selectbox[0].options == ["a.gguf", "b.gguf"]
    at = sign(decide(go(ledger, "review", run=run.run, cand="2" * 12), "reject", "too slow"))
    assert [one.head_sha256 for one in ledger.reviews_of(run.run)] == ["2" * 64]


def test_reviewed_again_while_it_was_written(go: Go, ledger: Ledger) -> None:
    """Two pages of one head: the second to sign is told of the first, once, and may then sign."""
    run = a_saved_run(ledger, PASSED)
    mine, other = (go(ledger, "review", run=run.run) for _ in "ab")
    decide(mine, "accept", "it passed")
    sign(decide(other, "reject", "loses German"))
    mine.run()  # as the last word that is typed draws the page
    sign(mine)
    assert "was reviewed again while" in mine.error[0].value and "reject" in mine.error[0].value
    assert [one.decision for one in ledger.reviews_of(run.run)] == ["reject"]
    assert "review: reject by ada" in told(mine) and "loses German" in told(mine)
    sign(mine)
    assert [one.decision for one in ledger.reviews_of(run.run)] == ["reject", "accept"]
    assert "review: accept by ada (unauthenticated)" in told(mine)


def test_a_form_that_was_not_begun_knows_what_the_page_shows(go: Go, ledger: Ledger) -> None:
    run = a_saved_run(ledger, PASSED)
    at = go(ledger, "review", run=run.run)
    sign(decide(go(ledger, "review", run=run.run), "reject", "loses German"))
    at.run()
    sign(decide(at, "more-data", "another corpus"))
    assert [one.decision for one in ledger.reviews_of(run.run)] == ["reject", "more-data"]
