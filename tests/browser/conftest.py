"""One server and one browser for all tests here: `audit dashboard` and the system's Chromium.

The suite is left out of the default run (`make test-browser`), and skips where no Chromium is.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from audit.ledger import Ledger
from audit.records import Run
from tests.audit_files import head_weight, make_trace, write_head
from tests.dashboard.made import small_ledger

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

BINARY = "AUDIT_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HEADER, USER = "X-Forwarded-User", "ada@example"
PATIENCE_MS = 30_000
HOSTILE_TOKENS = (
    "<img src=x onerror='window.harmed=1'>", "<script>window.harmed=1</script>",
    "**[bold](javascript:window.harmed=1)**", "\u202egnp.\u2066", "\x1b[31m\x07red", "$x^2$ :home:",
)  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A running dashboard and what it shows."""

    url: str
    ledger: Ledger
    runs: dict[str, Run]


@dataclass
class Visitor:
    """A browser's tab on the dashboard, which remembers what it complained of."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    def go(self, path: str) -> Page:
        """Open an address and wait until it is drawn. Heads, the landing page, has no name."""
        path = path.removeprefix("heads")
        self.page.goto(f"{self.url}/{path}")
        return self.drawn()

    def drawn(self) -> Page:
        """The page, once its script has run; it shows no exception."""
        ready = '[data-testid="stApp"][data-test-script-state="notRunning"]'
        self.page.wait_for_selector(ready, timeout=PATIENCE_MS)
        self.page.wait_for_selector("h1, [data-testid='stAlert']", timeout=PATIENCE_MS)
        assert self.page.locator('[data-testid="stException"]').count() == 0
        return self.page

    def told(self, message: ConsoleMessage) -> None:
        """Keep errors. Streamlit first looks for its server below the page's own address."""
        where = message.location.get("url", "")
        if message.type == "error" and "/_stcore/" not in where:
            self.complaints.append(f"{message.text} [{where}]")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The system's Chromium."""
    given = os.environ.get(BINARY)
    found = given or next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        pytest.skip(f"needs Chromium: apt-get install chromium, or name one in {BINARY}")
    return found


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[Served]:
    """The command with a made-up ledger, a folder of small real heads and a hostile tokenizer."""
    folder = tmp_path_factory.mktemp("browser")
    ledger, runs = small_ledger(folder / "ledger")
    _files(folder / "files")
    words = {f"{HOSTILE_TOKENS[i % len(HOSTILE_TOKENS)]}{i}": i for i in range(3_000)}
    Tokenizer(WordLevel(words, unk_token=next(iter(words)))).save(str(folder / "tokenizer.json"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = ("AUDIT_LEDGER", "AUDIT_DB_URL", "AUDIT_FILES", "AUDIT_TRACES")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    command = [
        sys.executable, "-m", "audit", "dashboard", "--ledger", str(ledger.where), "--files",
        str(folder / "files"), "--port", str(port), "--user-header", HEADER, "--no-browser",
        "--json",
    ]  # fmt: skip
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=folder,
        env=environment | {
            "AUDIT_TOKENIZER": str(folder / "tokenizer.json"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        },
    )  # fmt: skip
    try:
        assert server.stdout is not None
        told = "".join(iter(server.stdout.readline, "}\n")) + "}"
        yield Served(json.loads(told)["url"], ledger, runs)
    finally:
        server.terminate()
        assert server.wait(30) == 143
        assert server.stdout is not None and server.stdout.read() == ""
        server.stdout.close()


def _files(folder: Path) -> None:
    (folder / "traces").mkdir(parents=True)
    weight = head_weight()
    write_head(folder / "ref.safetensors", weight)
    write_head(folder / "cand.safetensors", weight + 0.3 * head_weight(5))
    make_trace(folder / "traces" / "code.trace.safetensors", weight)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        # Its sandbox needs rights that a container's root does not have.
        opened = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visitor(browser: Browser, served: Served) -> Iterator[Visitor]:
    """A tab of its own, behind a proxy that names its user; it must end without a complaint."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, extra_http_headers={HEADER: USER}
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    tab = Visitor(page, served.url)
    page.on("console", tab.told)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    page.on("dialog", lambda dialog: tab.complaints.append(dialog.message))
    yield tab
    context.close()
    assert tab.complaints == []


Pick = Callable[[str, str], None]


@pytest.fixture
def pick(visitor: Visitor) -> Pick:
    """Choose an option of a select box by its label."""

    def choose(label: str, option: str) -> None:
        visitor.page.get_by_label(label, exact=True).click()
        visitor.page.get_by_role("option", name=option).first.click()
        visitor.page.keyboard.press("Tab")
        visitor.drawn()

    return choose
