"""New audit: what may be chosen, what is queued for it, how it is watched, where it leads."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from audit.cli.compare import compare
from audit.dashboard import choosing
from audit.dashboard.choosing import Asked
from audit.errors import AuditError
from audit.jobs import Job, JobQueue, JobState, ServedFiles
from audit.jobs import queue as queue_module
from audit.jobs.folder import JobFolder
from audit.jobs.places import jobs_folder
from audit.jobs.process import born
from audit.jobs.worker import work
from audit.ledger import open_ledger
from tests.dashboard.conftest import Go, Made, told
from tests.dashboard.made import HOSTILE
from tests.jobs.fakes import FAKE


@pytest.fixture(autouse=True)
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs stay in the queue until a test works on them."""
    monkeypatch.setattr(queue_module, "_start_worker", lambda folder: None)
    monkeypatch.delenv("AUDIT_FILES", raising=False)


@pytest.fixture
def ledger(made_ledger: Made, tmp_path: Path) -> Path:
    """A copy of the made-up ledger."""
    shutil.copytree(made_ledger.ledger.where, tmp_path / "ledger")
    return tmp_path / "ledger"


@pytest.fixture
def queue(ledger: Path) -> JobQueue:
    return JobQueue(jobs_folder(open_ledger(ledger)))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "served"
    (folder / "traces").mkdir(parents=True)
    for name in ("ref.gguf", "q4.gguf", "q2.gguf", "ranks.txt", "policy.toml",
                 "traces/code.trace.safetensors"):  # fmt: skip
        (folder / name).write_text(name)
    monkeypatch.setenv("AUDIT_FILES", str(folder))
    return folder


def choose(at: AppTest, ref: str, *cands: str) -> AppTest:
    at.selectbox(key="ref").set_value(ref)
    at.multiselect(key="cands").set_value(list(cands))
    return at


def start(at: AppTest) -> AppTest:
    next(one for one in at.button if one.label == "Start the audit").click().run()
    assert not at.exception, [one.value for one in at.exception]
    return at


def only(queue: JobQueue) -> Job:
    (job,) = queue.jobs()
    return job


def test_without_a_folder_the_sample_and_uploads_remain(go: Go, ledger: Path) -> None:
    at = go(ledger, "new_audit")
    assert "given no folder of files" in at.info[0].value
    assert at.selectbox(key="ref").options == ["sample: the model in this package"]
    assert at.multiselect(key="traces").options == ["sample: its traces"]
    assert not list(ledger.glob("jobs/*")), "looking makes nothing"


@pytest.mark.parametrize(
    ("ref", "cands", "words"),
    [(None, [], "no reference"), ("file:head:ref.gguf", [], "no candidate")],
)
def test_what_is_missing_is_said(
    go: Go, ledger: Path, queue: JobQueue, served: Path, ref: str | None, cands: list[str],
    words: str,
) -> None:  # fmt: skip
    at = go(ledger, "new_audit")
    at.selectbox(key="ref").set_value(ref)
    assert words in start(at).error[0].value and queue.jobs() == []


def test_what_is_chosen_is_what_is_asked_for(
    go: Go, ledger: Path, queue: JobQueue, served: Path
) -> None:
    at = go(ledger, "new_audit")
    assert not at.info and at.selectbox(key="ref").options[:3] == ["q2.gguf", "q4.gguf", "ref.gguf"]
    choose(at, "file:head:ref.gguf", "file:head:q4.gguf", "file:ranks:ranks.txt")
    at.multiselect(key="traces").set_value(["file:trace:traces"])
    at.selectbox(key="policy").set_value("file:policy:policy.toml")
    at.text_input(key="head").set_value(" mtp ")
    at.checkbox(key="kl").check()
    start(at)
    job = only(queue)
    assert at.query_params["job"] == job.id and job.request is not None
    _, *args = job.request.arguments()
    params = compare.make_context("compare", args).params
    assert (params["ref"], params["cand"]) == (served / "ref.gguf", (served / "q4.gguf",))
    assert params["trims"] == (served / "ranks.txt",) and params["traces"] == (served / "traces",)
    assert (params["policy"], params["head"], params["kl"]) == (
        served / "policy.toml", "mtp", True,
    )  # fmt: skip
    assert params["ledger_at"] == str(ledger)
    assert "q4.gguf, ranks.txt against ref.gguf" in told(at) and "about to start" in told(at)


def test_an_upload_lies_with_its_job(go: Go, ledger: Path, queue: JobQueue, served: Path) -> None:
    at = go(ledger, "new_audit")
    at.file_uploader[0].set_value(
        [("../My head.gguf", b"mine", "x"), ("not used.gguf", b"other", "x")]
    ).run()
    assert "My_head.gguf (upload)" in at.multiselect(key="cands").options
    start(choose(at, "file:head:ref.gguf", "upload:My_head.gguf"))
    request = only(queue).request
    assert request is not None
    (cand,) = map(Path, request.cands)
    assert cand.read_bytes() == b"mine" and cand.parent.parent.parent == queue.folder
    assert [path.name for path in cand.parent.iterdir()] == ["My_head.gguf"]


def test_a_folder_that_is_gone_is_told_and_the_rest_works(
    go: Go, ledger: Path, served: Path
) -> None:
    shutil.rmtree(served)
    at = go(ledger, "new_audit")
    assert "is not there" in at.error[0].value
    assert at.selectbox(key="ref").options == ["sample: the model in this package"]


def test_no_key_from_a_browser_becomes_a_path(served: Path, tmp_path: Path) -> None:
    """Only what is listed is served, and a link that came later is still found out."""
    files = ServedFiles(served)
    known = choosing.choices(files, [])
    (tmp_path / "secret.gguf").write_text("secret")

    def asked(ref: str, **more: str) -> dict[str, object]:
        wanted = Asked(ref, ("file:head:q4.gguf",), (), None, more.get("head", ""), False)
        return choosing.request_fields(wanted, known, files, tmp_path / "uploads")

    for key in ("file:head:../secret.gguf", "file:head:/etc/passwd", "/etc/passwd", "sample:../x",
                "upload:../x.gguf", "file:head:none.gguf", ""):  # fmt: skip
        with pytest.raises(AuditError, match="not there any more"):
            asked(key)
    with pytest.raises(AuditError, match="no head is called"):
        asked("file:head:ref.gguf", head="--no-record")
    assert asked("file:head:ref.gguf")["ref"] == str(served / "ref.gguf")
    (served / "ref.gguf").unlink()
    (served / "ref.gguf").symlink_to(tmp_path / "secret.gguf")
    with pytest.raises(AuditError, match="is not among the files"):
        asked("file:head:ref.gguf")


def a_job(queue: JobQueue, name: str = "q4.gguf") -> JobFolder:
    fields = {"ledger": "l", "ref": "/ref.gguf", "cands": (f"/{name}",)}
    return JobFolder(queue.folder / queue.submit(request=lambda folder: fields))


def running(job: JobFolder) -> None:
    """As if a worker ran it in this process."""
    job.write_state(
        JobState(status="running", started="now", host=platform.node(), pid=os.getpid(),
                 born=born(os.getpid()))
    )  # fmt: skip
    job.progress_file.write_text('{"what": "compare on <b>code</b>", "done": 1, "total": 4}\n')


def test_a_running_audit_shows_where_it_is_and_can_be_cancelled(
    go: Go, ledger: Path, queue: JobQueue
) -> None:
    first, second = a_job(queue, HOSTILE), a_job(queue)
    running(first)
    at = go(ledger, "new_audit")
    assert "waits for 1 audit" in told(at) and "against ref.gguf" in told(at)
    bar = at.get("progress")[0].proto
    assert bar.value == 25 and "compare on" in bar.text and "<b>" not in bar.text
    assert not any("<img" in one.value or "\u202e" in one.value for one in at.markdown)
    at.button(key=f"cancel-{first.id}").click().run()
    assert first.cancelled and not second.cancelled
    assert at.button(key=f"cancel-{first.id}").disabled
    at.button(key=f"cancel-{second.id}").click().run()
    assert queue.find(second.id).status == "cancelled"


@pytest.mark.parametrize("what", ["refused", "killed", "crash"])
def test_how_an_audit_failed_is_told(
    go: Go, ledger: Path, queue: JobQueue, tmp_path: Path, what: str
) -> None:
    job = a_job(queue)
    work(queue.folder, lambda request: [sys.executable, str(FAKE), what, str(tmp_path / "log")])
    error = queue.find(job.id).error
    at = go(ledger, "new_audit", job=job.id)
    assert error is not None and error.hint in at.error[0].value
    assert error.message.partition(" [")[0] in at.error[0].value
    other = go(ledger, "new_audit")
    assert not other.error and "failed" in other.dataframe[0].value["became"].tolist()


def test_when_it_is_done_its_head_is_opened_once(
    go: Go, ledger: Path, queue: JobQueue, served: Path, made_ledger: Made
) -> None:
    at = go(ledger, "new_audit")
    start(choose(at, "file:head:ref.gguf", "file:head:q4.gguf"))
    job, run = only(queue), made_ledger.runs["judged"].run
    folder = JobFolder(queue.folder / job.id)
    folder.write_state(
        JobState(status="done", started="a", ended="b", host="h", run=run, exit_code=1)
    )
    at.run()
    assert not at.exception and at.query_params["run"] == run and at.title[0].value == "prune.gguf"
    back = go(ledger, "new_audit", job=job.id)
    assert back.title[0].value == "New audit", "a reload does not lead away"
    assert f"run {run} is recorded; the gate failed it" in told(back)
    assert back.get("page_link")[0].proto.query_string == f"run={run}"


def test_a_ledger_that_can_not_be_written_is_told(go: Go, tmp_path: Path, served: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    at = choose(go(tmp_path / "file" / "ledger", "new_audit"), "file:head:ref.gguf",
                "file:head:q4.gguf")  # fmt: skip
    assert "can not be written" in start(at).error[0].value


def test_choices_name_uploads_files_and_the_package(served: Path) -> None:
    found = choosing.choices(ServedFiles(served), ["t.trace.safetensors"])
    assert choosing.of_kinds(found, "trace") == [
        "upload:t.trace.safetensors", "file:trace:traces",
        "file:trace:traces/code.trace.safetensors", choosing.SAMPLE_TRACES,
    ]  # fmt: skip
    asked = Asked(choosing.SAMPLE_MODEL, (choosing.SAMPLE_MODEL,), (choosing.SAMPLE_TRACES,),
                  choosing.RELEASE, "", False)  # fmt: skip
    fields = choosing.request_fields(asked, found, None, Path())
    for name in (fields["ref"], *fields["traces"], fields["policy"]):
        assert Path(name).exists()
