"""The app itself: page settings and navigation, nothing else.

Run by `streamlit run app.py` from a checkout, and as this very file when installed. Pages are
files, not functions, so that tests can open each of them.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

PAGES_FOLDER = Path(__file__).parent / "pages"
_ICON = Path(__file__).parent / "icon.png"
_STYLE = "<style>.stMainBlockContainer { padding-top: 4.5rem; }</style>"
"""Streamlit leaves a third of a small screen empty above the title."""
PAGES = {
    "heads": "Heads",
    "head": "Head",
    "compare": "Compare",
    "tokens": "Tokens",
    "study": "Study",
    "review": "Review",
    "new_audit": "New audit",
    "methods": "Methods",
}
"""File and last part of the address -> title, in the order of the navigation."""


def page_file(name: str) -> str:
    """The file of a page, as `st.switch_page` and `st.page_link` want it."""
    return str(PAGES_FOLDER / f"{name}.py")


def main() -> None:
    """Show the page that the address names."""
    st.set_page_config(page_title="head-audit", layout="wide", page_icon=str(_ICON))
    st.html(_STYLE)
    pages = [
        st.Page(page_file(name), title=title, url_path=name, default=name == "heads")
        for name, title in PAGES.items()
    ]
    st.navigation(pages, position="top").run()


if __name__ == "__main__":
    main()
