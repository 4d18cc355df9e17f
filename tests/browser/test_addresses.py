"""What one page kept in the address is no stranger on the next one."""

from __future__ import annotations

import pytest

from tests.browser.conftest import Served, Visitor

pytestmark = pytest.mark.browser


def test_going_on_leaves_no_parameters_behind(visitor: Visitor, served: Served) -> None:
    page = visitor.go("heads?review=all&verdict=function")
    assert "asks for" not in page.inner_text("body")
    for name in ("Methods", "Study", "New audit", "Heads", "Compare"):
        page.get_by_role("link", name=name, exact=True).first.click()
        page.wait_for_timeout(1_500)
        visitor.drawn()
        assert "asks for" not in page.inner_text("body"), (name, page.url)
    page = visitor.go(f"head?run={served.runs['judged'].run}&cand={'1' * 12}&view=Decisions")
    for name in ("Where it hurts: Tokens", "Back to its verdict", "Decide: Review"):
        page.get_by_role("link", name=name).first.click()
        page.wait_for_timeout(1_500)
        visitor.drawn()
        assert "asks for" not in page.inner_text("body"), (name, page.url)
