"""Hub sources: through the real libraries against a hub of our own, pinned, offline, and broken.

The libraries read the hub's address once, at their import, so what asks our hub runs in a process
of its own, and in one for all of it, since that import takes seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from audit.corpora import corpus_documents, external_corpora, read_corpus, verify
from audit.corpora import hub as hub_module
from audit.corpora.external import pinned
from audit.corpora.fetching import fetch_corpus
from audit.corpora.manifest import HubSource
from audit.errors import BadUsageError, MissingExtraError, UnreadableError
from tests.corpora.fake_hub import COMMIT, ID, TEXTS, fake_hub
from tests.corpora.making import source_corpus

pytest.importorskip("datasets")
SOURCE = {"kind": "hub", "id": ID, "revision": "main", "column": "body", "seed": 3}
PINNED = {**SOURCE, "revision": COMMIT}
CORPORA = {
    "moving": SOURCE,
    "pinned": PINNED,
    "no-revision": {**PINNED, "revision": "cd" * 20},
    "no-set": {**PINNED, "id": "nobody/nothing"},
    "no-column": {**PINNED, "column": "text"},
    "no-split": {**PINNED, "split": "test"},
    "hang": {**PINNED, "id": "hang/texts"},
    "fail": {**PINNED, "id": "fail/texts"},
}
_DRIVER = """
import contextlib, io, json, sys, time
from audit.cli import main
from audit.corpora import hub
hub.TIMEOUT = 2
told = []
for args in json.loads(sys.argv[1]):
    out, err, started = io.StringIO(), io.StringIO(), time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["corpora", "fetch", *args])
        except SystemExit as stop:
            code = stop.code
    told.append([code, out.getvalue(), err.getvalue(), time.monotonic() - started])
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Told:
    """What one command said."""

    code: int
    out: str
    err: str
    seconds: float


def fetch(folder: Path, *commands: list[str], **environment: str) -> list[Told]:
    """`audit corpora fetch` with each list of arguments, in one process."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    clean |= {"HF_HOME": str(folder / "hf"), "USE_TORCH": "0"} | environment
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER, json.dumps(commands)],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [Told(*told) for told in json.loads(done.stdout)]


@dataclass(frozen=True)
class Session:
    """One process against our hub: by corpus what was told, and what the hub was asked."""

    place: Path
    told: dict[str, Told]
    asked: list[str]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    place = tmp_path_factory.mktemp("hub")
    for name, source in CORPORA.items():
        source_corpus(place / name, 6, source)
    # A folder of the data set's name in the working directory must not be taken for it.
    (place / ID).mkdir(parents=True)
    (place / ID / "x.jsonl").write_text('{"body": "a trap"}')
    commands = [[f"./{name}", "-o", f"kept-{name}", "--allow-unpinned"] for name in CORPORA]
    with fake_hub() as hub:
        told = fetch(place, *commands, HF_ENDPOINT=hub.url)
        yield Session(place, dict(zip(CORPORA, told, strict=True)), hub.asked)


def test_a_moving_revision_is_looked_up_drawn_from_and_written_down(session: Session) -> None:
    told = session.told["moving"]
    assert told.code == 0 and told.err == ""
    assert COMMIT in told.out and "6 documents" in told.out
    kept = read_corpus(session.place / "kept-moving")
    verify(kept)
    texts = [document.text for document in corpus_documents(kept)]
    assert len(set(texts)) == 6 and set(texts) < set(TEXTS) and texts != TEXTS[:6]
    assert COMMIT in str(kept.manifest.source) and ID in str(kept.manifest.source)
    # Everything after the first question was asked at the commit.
    assert len(session.asked) > 5 and sum("/main" in path for path in session.asked) == 1


def test_a_pinned_revision_draws_the_same(session: Session) -> None:
    assert session.told["pinned"].code == 0
    kept = [read_corpus(session.place / f"kept-{name}") for name in ("moving", "pinned")]
    assert kept[0].manifest.sha256 == kept[1].manifest.sha256


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-revision", f"the data set {ID} has no revision 'cdcd"),
        ("no-set", "the data set nobody/nothing is not on the hub"),
        ("no-column", "row 1 of made after the shuffle: there is no field 'text'"),
        ("no-split", f"the data set {ID} can not be read: "),
        ("hang", "the Hugging Face hub can not be reached for hang/texts: "),
        ("fail", "the Hugging Face hub can not be reached for fail/texts: "),
    ],
)
def test_what_the_hub_does_not_give_is_two_lines(session: Session, name: str, words: str) -> None:
    told = session.told[name]
    assert told.code == 2 and told.out == ""
    assert told.err.startswith("error: ") and words in told.err
    assert len(told.err.splitlines()) == 2 and "\nhint: " in told.err
    assert told.seconds < 20
    assert not (session.place / f"kept-{name}").exists()


def test_without_a_network_it_is_one_sentence_and_soon(tmp_path: Path) -> None:
    source_corpus(tmp_path / "pinned", 6, PINNED)
    # Names under .invalid never resolve, just as none does without a network.
    nowhere = {"HF_ENDPOINT": "http://hub.invalid"}
    (told,) = fetch(tmp_path, ["./pinned", "-o", "kept", "--json"], **nowhere)
    error = json.loads(told.out)["error"]
    assert told.code == 2 and told.err == "" and told.seconds < 30
    assert error["message"].startswith(f"the Hugging Face hub can not be reached for {ID}: ")
    assert "--text" in error["hint"]


def test_offline_is_obeyed(tmp_path: Path) -> None:
    source_corpus(tmp_path / "pinned", 6, PINNED)
    with fake_hub() as hub:
        (told,) = fetch(
            tmp_path, ["./pinned", "-o", "kept"], HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="1"
        )
        assert told.code == 2 and "HF_HUB_OFFLINE forbids" in told.err
        assert len(told.err.splitlines()) == 2 and hub.asked == []


def test_a_moving_revision_is_refused(tmp_path: Path) -> None:
    moving = source_corpus(tmp_path / "moving", 6, SOURCE)
    for refuse in (
        lambda: corpus_documents(moving),
        lambda: pinned(moving),
        lambda: fetch_corpus(moving, tmp_path / "kept"),
        lambda: fetch_corpus(moving, tmp_path / "kept", revision="v1.0"),
    ):
        with pytest.raises(BadUsageError, match="which moves") as caught:
            refuse()
        assert "--allow-unpinned" in caught.value.hint
    assert not (tmp_path / "kept").exists()
    at = pinned(moving, revision=COMMIT).manifest.source
    assert isinstance(at, HubSource) and at.pinned and at.revision == COMMIT


def test_the_first_question_has_a_time_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def silent(self: object, repo: str, **options: Any) -> None:
        asked.append((repo, options))
        raise TimeoutError("timed out")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", silent)
    with pytest.raises(UnreadableError, match=f"can not be reached for {ID}: timed out"):
        corpus_documents(source_corpus(tmp_path, 6, PINNED))
    assert asked == [(ID, {"revision": COMMIT, "timeout": hub_module.TIMEOUT})]


def test_without_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match="needs the library datasets") as caught:
        corpus_documents(source_corpus(tmp_path, 6, PINNED))
    assert caught.value.hint == "pip install 'head-audit[corpora]'"


def test_the_packaged_manifests_of_the_study_are_never_drawn_unpinned() -> None:
    found = external_corpora()
    assert {corpus.manifest.name for corpus in found} == {
        *(f"wikipedia-{code}" for code in ("de", "he", "ru", "zh")),
        "c4-en", "mt-bench-prompts", "pubmed-abstracts",
    }  # fmt: skip
    for corpus in found:
        assert isinstance(corpus.manifest.source, HubSource)
        with pytest.raises(BadUsageError, match="which moves"):
            corpus_documents(corpus)
