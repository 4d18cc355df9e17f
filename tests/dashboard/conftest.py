"""One made-up ledger for all tests of the pages, and one of a real audit of the sample."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from audit.ledger import Ledger
from audit.records import Run
from tests.dashboard.made import small_ledger

APP = Path(__file__).resolve().parents[2] / "app.py"
Go = Callable[..., AppTest]
_SECONDS = 60


@dataclass(frozen=True)
class Made:
    """The made-up ledger and its runs by what they are for."""

    ledger: Ledger
    runs: dict[str, Run]

    def head(self, name: str, digit: str) -> dict[str, str]:
        """The address of a candidate whose hash is one digit throughout."""
        return {"run": self.runs[name].run, "cand": digit * 12}


@pytest.fixture(scope="session")
def made_ledger(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(*small_ledger(tmp_path_factory.mktemp("dashboard") / "ledger"))


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUDIT_LEDGER", "AUDIT_DB_URL", "AUDIT_TOKENIZER", "AUDIT_REVIEWER"):
        monkeypatch.delenv(name, raising=False)
    logging.getLogger("streamlit").setLevel(logging.ERROR)


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch) -> Go:
    """Opens a page over a ledger, as its address in a browser would; no page may raise."""

    def open_page(ledger: Ledger | Path, page: str, /, **query: str | list[str]) -> AppTest:
        where = ledger if isinstance(ledger, Path) else ledger.where
        monkeypatch.setenv("AUDIT_LEDGER", str(where))
        at = AppTest.from_file(str(APP), default_timeout=_SECONDS)
        if page != "heads":
            at.switch_page(f"audit/dashboard/pages/{page}.py")
        for name, value in query.items():
            at.query_params[name] = value
        at.run()
        assert not at.exception, [one.value for one in at.exception]
        return at

    return open_page


def told(at: AppTest) -> str:
    """All sentences of a page in one string, as they were given to Streamlit."""
    kinds = ("title", "subheader", "markdown", "text", "caption", "info", "warning", "error",
             "code")  # fmt: skip
    found = [one.value for kind in kinds for one in at.get(kind)]
    return "\n".join(map(str, found))
