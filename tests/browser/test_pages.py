"""Every page in a real browser: both themes, deep links, filters in the address, downloads."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from audit.dashboard.app import PAGES
from audit.ledger import content_id, parse_run
from tests.browser.conftest import HOSTILE_TOKENS, Pick, Served, Visitor

pytestmark = pytest.mark.browser
expect = pytest.importorskip("playwright.sync_api", reason="needs playwright").expect


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_each_page_loads_in_both_themes(
    visitor: Visitor, served: Served, name: str, theme: str
) -> None:
    run = served.runs["judged"].run
    page = visitor.go(f"{name}?run={run}&embed_options={theme}_theme")
    expect(page.locator("h1").first).to_be_visible()
    ground = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(17, 22, 28)"}[theme]
    wide = "document.scrollingElement.scrollWidth <= window.innerWidth"
    assert page.evaluate(wide), "nothing scrolls sideways"
    assert page.get_by_role("link", name=PAGES[name]).count() >= 1


def test_a_deep_link_survives_reload_and_back(visitor: Visitor, served: Served) -> None:
    run, cand = served.runs["two"].run, "3" * 12
    page = visitor.go(f"head?run={run}&cand={cand}")
    expect(page.locator("h1")).to_contain_text("q8_0.gguf")
    page.reload()
    visitor.drawn()
    expect(page.locator("h1")).to_contain_text("q8_0.gguf")
    page.get_by_role("link", name="Decide: Review").click()
    expect(page.locator("h1")).to_contain_text("Review of q8_0.gguf")
    assert f"run={run}" in page.url and f"cand={cand}" in page.url
    page.go_back()
    expect(page.locator("h1")).to_have_text(re.compile("^q8_0.gguf"))


def test_a_filter_is_in_the_address_and_the_address_filters(visitor: Visitor, pick: Pick) -> None:
    page = visitor.go("heads")
    pick("gate", "fail")
    page.wait_for_url("**gate=fail**")
    page.reload()
    visitor.drawn()
    expect(page.get_by_label("gate", exact=True)).to_have_value("fail")
    pick("gate", "all")
    page.wait_for_url(lambda url: "gate=" not in url)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_downloads_arrive_and_can_be_read(visitor: Visitor, served: Served, tmp_path: Path) -> None:
    run = served.runs["judged"]
    page = visitor.go(f"head?run={run.run}")
    page.get_by_test_id("stPopoverButton").click()
    found: dict[str, Path] = {}
    for label in ("Report, HTML", "Run document, JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=label).click()
        found[label] = tmp_path / download.value.suggested_filename
        download.value.save_as(found[label])
    parsed = _Tags()
    parsed.feed(found["Report, HTML"].read_text(encoding="utf-8"))
    assert "table" in parsed.tags and run.candidates[0].head.name in parsed.text
    document = found["Run document, JSON"]
    assert document.name == f"audit-{run.run}.json"
    assert content_id(parse_run(document.read_bytes(), "download")) == run.run


def test_hostile_names_and_tokens_are_text(visitor: Visitor, served: Served) -> None:
    """Each page that shows a stranger's words: nothing runs, nothing is drawn from them."""
    run = served.runs["hostile"]
    for name in ("head", "tokens", "review", "heads"):
        page = visitor.go(f"{name}?run={run.run}")
        if name == "tokens":
            page.locator(".dvn-scroller").first.click(position={"x": 120, "y": 55})
            visitor.drawn()
            expect(page.get_by_text("the verifier wanted")).to_be_visible()
            text = page.locator("body").inner_text()
            assert any(token[:12] in text for token in HOSTILE_TOKENS[:3])
        if name != "heads":
            expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
        strange = page.locator("img[src='x'], a[href^='javascript'], a[href*='//evil']")
        assert [one.evaluate("it => it.outerHTML") for one in strange.all()] == []
        assert page.evaluate("window.harmed") is None
        assert not {"\u202e", "\u2066", "\x1b"} & set(page.locator("body").inner_text())
