"""Text from strangers in Markdown and in CSV; settings of the app."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from pathlib import Path

import cmarkgfm
import pandas as pd
import pytest
from cmarkgfm.cmark import Options
from hypothesis import given
from lxml import html

from audit.dashboard.app import PAGES, page_file
from audit.dashboard.parts import csv_text
from audit.dashboard.rows import saved, sortable
from audit.dashboard.store import ledger_argument
from audit.dashboard.words import copyable, safe
from audit.report.wording import clean
from tests.dashboard.made import HOSTILE
from tests.report.made import HOSTILE as NAMES
from tests.report.made import hostile

ROOT = Path(__file__).resolve().parents[2]


def shown(markdown: str) -> html.HtmlElement:
    """What a renderer of GitHub's Markdown, which Streamlit's is, makes of a paragraph."""
    page = cmarkgfm.github_flavored_markdown_to_html(f"x {markdown} x", Options.CMARK_OPT_UNSAFE)
    return html.fromstring(f"<div>{page}</div>")


@pytest.mark.parametrize("name", [*NAMES, HOSTILE, ":red[x]", ":material/home:", ":blue-badge[x]"])
def test_markdown_shows_strange_text_as_it_is(name: str) -> None:
    page = shown(safe(name))
    assert {element.tag for element in page.iter()} <= {"div", "p"}
    text = page.text_content().strip().replace("\u200b", "")
    assert re.sub(r"\s+", " ", text) == re.sub(r"\s+", " ", f"x {clean(name).strip()} x")


@pytest.mark.parametrize("name", [
    *NAMES, HOSTILE, "no https://u@h.example/a:b here", ":red[x] a:b", "`a:b``c:d`", "``:a", "a:`",
    "/srv/x:/y.gguf",
])  # fmt: skip
def test_errors_are_copied_as_they_are(name: str) -> None:
    """No space without width is in an address or a path that someone may paste elsewhere."""
    page = shown(copyable(name))
    assert {element.tag for element in page.iter()} <= {"div", "p", "code"}
    text = page.text_content().strip()
    assert text.split() == f"x {clean(name)} x".split()


def test_line_breaks_have_a_sign_and_other_controls_stay_escaped() -> None:
    assert clean("a\nb\r\nc") == "a↵b↵c"
    assert clean("a\rb\x1b[2J\u2028\t") == r"a\u000db\u001b[2J\u2028\u0009"


@given(hostile)
def test_no_directive_of_streamlit_survives(name: str) -> None:
    assert not re.search(r":[a-z][\w-]*\[|:material/|:[\w+-]+:", safe(name))
    assert not re.search(r"(?<!\\)[*_`$\[\]]", safe(name).replace("&#8203;", ""))


def test_a_spreadsheet_calculates_nothing() -> None:
    frame = pd.DataFrame({"name": ["=1+1", "@x", "ok", None], "x": [-1.5, 2.0, 0.0, 1.0]})
    rows = list(csv.reader(io.StringIO(csv_text(frame))))
    assert rows == [["name", "x"], ["'=1+1", "-1.5"], ["'@x", "2.0"], ["ok", "0.0"], ["", "1.0"]]


def test_numbers_as_text_sort_as_numbers() -> None:
    cells = ["9.5 %", "100.0 %", "-3.0 %", "no study", "41.7 %"]
    frame = sortable(pd.DataFrame({"x": cells}, dtype="str"), ["x"])
    positive = [cell for cell in frame["x"] if "-" not in cell and "%" in cell]
    assert sorted(positive) == ["  9.5 %", " 41.7 %", "100.0 %"]
    assert [cell.strip() for cell in frame["x"]] == cells and "no study" in list(frame["x"])


def test_saved_is_the_share_of_bytes_done_without() -> None:
    assert [saved(25, 100), saved(100, 100)] == ["75 %", "0 %"]
    assert [saved(n, 100) for n in (103, 199, 200, 350)] == [
        "none: 3 % larger", "none: 99 % larger", "none: 2.0 × as large", "none: 3.5 × as large",
    ]  # fmt: skip
    assert [saved(None, 100), saved(1, None), saved(1, 0)] == ["–", "–", "–"]


def test_the_ledger_may_stand_behind_the_command() -> None:
    assert ledger_argument(["--ledger", "here"]) == "here"
    assert ledger_argument(["-q", "tests", "--ledger=there"]) == "there"
    assert ledger_argument(["-q"]) is None


def test_the_checkout_and_the_installed_app_have_the_same_settings() -> None:
    config = ROOT / "audit" / "dashboard" / "config.toml"
    assert (ROOT / ".streamlit" / "config.toml").read_text() == config.read_text()
    settings = tomllib.loads(config.read_text())
    assert settings["server"]["address"] == "127.0.0.1"
    assert settings["browser"]["gatherUsageStats"] is False
    theme = settings["theme"]
    assert theme["light"].keys() == theme["dark"].keys()
    assert "http" not in config.read_text(), "no font, no anything from elsewhere"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_ground(theme: str) -> None:
    """Contrast of at least 4.5 as the accessibility guidelines define it."""
    colours = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"][theme]
    grounds = [colours["backgroundColor"], colours["secondaryBackgroundColor"]]
    for name in ("textColor", "linkColor", "greenColor", "redColor", "violetColor", "grayColor"):
        for ground in grounds:
            assert contrast(colours[name], ground) >= 4.5, (name, ground)


def test_every_page_is_a_file() -> None:
    assert all(Path(page_file(name)).is_file() for name in PAGES)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
