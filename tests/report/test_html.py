"""The HTML page: self-contained, without scripts, escaped, and drawn as it should be."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from audit.errors import MissingExtraError
from audit.records import Run
from audit.report import charts, html, page
from audit.report.charts.base import nothing
from audit.report.content import report_of
from audit.report.html import render_html
from audit.report.svg import svg_of
from audit.report.wording import clean
from tests.conftest import Golden
from tests.report.made import HOSTILE, candidate, estimate, gate, limit, review, run, runs
from tests.report.readers import page_of, squeezed

OURS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "section", "article", "h1",
    "h2", "h3", "p", "span", "bdi", "div", "dl", "dt", "dd", "ul", "li", "table", "thead", "tbody",
    "tr", "th", "td", "details", "summary", "code", "figure", "figcaption",
}  # fmt: skip
DRAWN = {"svg", "g", "path", "rect", "line", "text", "tspan", "clippath", "defs"}
KEPT = {
    "class", "charset", "http-equiv", "content", "name", "lang", "scope", "id", "aria-label", "open"
}  # fmt: skip


@pytest.fixture
def tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "charts_installed", lambda: False)


def test_whatever_a_run_holds(tables_only: None) -> None:
    """No tag and no attribute that is not ours, and every sentence as it is."""

    @settings(max_examples=40)
    @given(runs())
    def check(found: Run) -> None:
        report = report_of(found)
        text = render_html(report)
        text.encode()
        seen = page_of(text)
        assert seen.tags <= OURS and {name for _, name, _ in seen.attributes} <= KEPT
        assert squeezed(report.headline) in squeezed(seen.text)
        for judged in report.candidates:
            assert squeezed(judged.verdict) in squeezed(seen.text)

    check()


@settings(max_examples=6)
@given(runs())
def test_charts_of_whatever_a_run_holds(found: Run) -> None:
    seen = page_of(render_html(report_of(found)))
    assert seen.tags <= OURS | DRAWN
    for tag, name, value in seen.attributes:
        assert not name.startswith("on") and name not in ("href", "src", "style", "xlink:href")
        assert (tag, name) != ("svg", "d") or "NaN" not in value


def test_hostile_names_in_charts() -> None:
    found = [estimate("retention", i / 100, corpus=name) for i, name in enumerate(HOSTILE)]
    drawn = charts.retention_by_corpus(candidate(HOSTILE[6], estimates=found))
    root = ElementTree.fromstring(svg_of(drawn, "x"))
    assert root.get("role") == "img" and root.get("aria-label") == drawn.alternative
    shown = {squeezed(element.text) for element in root.iter() if element.text}
    assert {squeezed(clean(name)) for name in HOSTILE if len(name) < 30} <= shown


def test_the_policy_forbids_scripts_and_names_the_style_by_its_hash(golden: Golden) -> None:
    text = render_html(report_of(golden.run, flips=golden.positions), golden.positions)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert policy and style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-" + digest + "'")
    assert "script" not in text.lower().replace("description", "") and "http:" not in (
        text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    )
    seen = page_of(text)
    assert not {name for _, name, _ in seen.attributes} & {"href", "src", "style"}
    ids = [value for _, name, value in seen.attributes if name == "id"]
    assert len(re.findall(r'\sid="', text)) == len(set(ids)) == len(ids)


def test_the_realistic_run_shows_all_its_charts(golden: Golden) -> None:
    text = render_html(report_of(golden.run, flips=golden.positions), golden.positions)
    names = {value.split("-")[0] for tag, name, value in page_of(text).attributes
             if (tag, name) == ("figure", "id")}  # fmt: skip
    assert names == {"harm", "disagreement", "noise", "size", "retention", "kl", "flip", "ceiling"}
    assert text.count("<figure") == 4 + 3 + 3 + 2 + 1  # a trimmed head has no KL, but ceilings
    assert text.count('role="img"') == text.count("<figure")
    assert len(text) < 2**20


def test_outcomes_limits_reviews_and_flips_are_on_the_page(tables_only: None) -> None:
    failed = candidate(gate=gate("fail", limit(), limit(limit="w", waiver="f" * 64)))
    seen = page_of(render_html(report_of(run(failed), reviews=[review()])))
    for words in (
        "fail: 1 of 1 candidate fails",
        "at least 95.0 %",
        "lifted by waiver ffff",
        "Ada (unauthenticated)",
        "Charts are left out",
    ):
        assert words in seen.text
    assert ("span", "class", "word waived") in seen.attributes


def test_without_the_chart_libraries_there_are_tables_and_a_sentence() -> None:
    code = (
        "import sys\n"
        "sys.modules['altair'] = sys.modules['vl_convert'] = None\n"
        "from audit.report.content import report_of\n"
        "from audit.report.html import render_html\n"
        "from tests.report.made import run\n"
        "print(render_html(report_of(run())))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install &#39;head-audit[html]&#39;" in done.stdout and "<figure" not in done.stdout


def test_no_chart_and_no_library_are_said_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="has no chart: there is nothing"):
        svg_of(nothing("x", "y", "there is nothing"), "x")
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert not page.charts_installed()
    with pytest.raises(MissingExtraError, match="vl-convert"):
        svg_of(charts.retention_by_corpus(candidate()), "x")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
@pytest.mark.parametrize("width", [1280, 480])
def test_no_horizontal_scroll_in_a_browser(golden: Golden, tmp_path: Path, width: int) -> None:
    """The page measured by a script, which is let in for that."""
    text = render_html(report_of(golden.run, flips=golden.positions), golden.positions)
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    measure = "document.title = document.documentElement.scrollWidth + ' ' + innerWidth"
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", f"<script>{measure}</script></body>"))
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu",
        "--disable-background-networking", f"--user-data-dir={tmp_path}", "--dump-dom",
        f"--window-size={width},900",
        f"file://{path}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    title = re.search(r"<title>(\d+) (\d+)</title>", done.stdout)
    assert title and int(title[1]) <= int(title[2])
