"""What people do in the browser: start an audit and land on its head, sign a decision."""

from __future__ import annotations

import pytest

from tests.browser.conftest import USER, Pick, Served, Visitor

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect
_AUDIT_MS = 120_000


def test_an_audit_runs_from_the_page_to_its_head(
    visitor: Visitor, served: Served, pick: Pick
) -> None:
    before = set(served.ledger.run_ids())
    page = visitor.go("new_audit")
    pick("reference", "ref.safetensors")
    pick("candidates", "cand.safetensors")
    page.get_by_role("button", name="Start the audit").click()
    expect(page.get_by_text("cand.safetensors against ref.safetensors").first).to_be_visible()
    page.wait_for_url("**/head?**run=**", timeout=_AUDIT_MS)
    expect(page.locator("h1")).to_contain_text("cand.safetensors")
    (made,) = set(served.ledger.run_ids()) - before
    assert f"run={made}" in page.url
    assert served.ledger.load_run(made).candidates[0].head.name == "cand.safetensors"


def test_a_refused_audit_shows_its_error_and_a_started_one_is_cancelled(
    visitor: Visitor, served: Served, pick: Pick
) -> None:
    before = served.ledger.run_ids()
    page = visitor.go("new_audit")
    page.get_by_role("button", name="Start the audit").click()
    expect(page.get_by_text("no reference was chosen")).to_be_visible()
    pick("reference", "ref.safetensors")
    pick("candidates", "ref.safetensors")
    page.get_by_label("head", exact=True).fill("exit:77")
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Start the audit").click()
    page.wait_for_url("**job=**")
    page.get_by_role("button", name="Start the audit").click()
    expect(page.get_by_role("button", name="Cancel")).to_have_count(2)
    page.get_by_role("button", name="Cancel").last.click()
    expect(page.get_by_text("It was cancelled; nothing was recorded.")).to_be_visible()
    error = page.locator('[data-testid="stAlert"]').filter(has_text="exit:77")
    expect(error).to_be_visible(timeout=_AUDIT_MS)
    assert served.ledger.run_ids() == before


def test_a_review_is_signed_and_seen_after_reload(visitor: Visitor, served: Served) -> None:
    run = served.runs["two"].run
    page = visitor.go(f"review?run={run}&cand={'2' * 12}")
    expect(page.get_by_text("The proxy vouches for this name")).to_be_visible()
    page.get_by_text("reject", exact=True).click()
    reason = "loses German; <b>not</b> worth 12 MiB"
    page.get_by_label("reason").fill(reason)
    page.get_by_role("button", name="Sign").click()
    expect(page.get_by_text(f"reject by {USER} recorded")).to_be_visible()
    page.reload()
    visitor.drawn()
    expect(page.get_by_text(reason)).to_be_visible()
    expect(page.get_by_text("Nobody decided yet")).to_have_count(0)
    (review,) = served.ledger.reviews_of(run)
    assert (review.decision, review.reason, review.reviewer) == ("reject", reason, USER)
    assert review.authenticated and review.head_sha256 == "2" * 64
