"""Independent readers of what reports write: HTML by its tags, Markdown as GitHub renders it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from cmarkgfm import github_flavored_markdown_to_html
from cmarkgfm.cmark import Options

VOID = {"meta", "br", "hr", "img", "input", "link", "path", "line", "rect"}


@dataclass
class Page(HTMLParser):
    """What a browser would make of a page: its tags, attributes, cells and text."""

    tags: set[str] = field(default_factory=set)
    attributes: set[tuple[str, str, str]] = field(default_factory=set)
    cells: list[str] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(tag, name, value or "") for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(tag, name, value or "") for name, value in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes {self.open[-3:]}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("style", "script"):
            return
        self.text += data
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def page_of(text: str) -> Page:
    """A page read to its end, with every tag closed."""
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


def github(text: str) -> Page:
    """Markdown as GitHub renders it, raw HTML passed through to be seen."""
    return page_of(github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE))


def squeezed(text: str) -> str:
    """Text as it is seen: without the spaces that no renderer keeps, or that have no width."""
    return re.sub(r"\s+", " ", text.replace("\u200b", "")).strip()
