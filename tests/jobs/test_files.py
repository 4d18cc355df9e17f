"""What of the server may be named, what may be uploaded, and where a ledger's jobs lie."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.errors import AuditError, BadUsageError, NotFoundError
from audit.jobs import JobQueue, ServedFiles, Upload, safe_name
from audit.jobs import uploads as uploads_module
from audit.jobs.places import jobs_folder, ledger_place
from audit.ledger import open_ledger

SECRET = "secret.safetensors"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with models, traces and a policy; a secret outside; links in and out."""
    root = tmp_path / "served"
    for folder in ("model", "split", "deep/er/traces", ".hidden"):
        (root / folder).mkdir(parents=True)
    for name in (
        "model/config.json", "model/model.safetensors", "a.gguf", "b.safetensors", "policy.toml",
        "ranks.txt", "deep/er/traces/x.trace.safetensors", ".hidden/h.gguf", "notes.md",
        "split/m-00001-of-00002.gguf", "split/m-00002-of-00002.gguf",
        "split/m-00001-of-00002.safetensors", "split/m.safetensors.index.json",
    ):  # fmt: skip
        (root / name).write_text(name)
    (tmp_path / SECRET).write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "model.gguf").write_text("secret")
    (root / "inner.safetensors").symlink_to(root / "b.safetensors")
    return root


def test_the_listing_names_what_can_be_chosen(served: Path) -> None:
    found = {one.name: one.kind for one in ServedFiles(served).listing() if one.kind != "trace"}
    assert found == {
        "a.gguf": "head", "b.safetensors": "head", "inner.safetensors": "head", "model": "head",
        "model/model.safetensors": "head", "policy.toml": "policy", "ranks.txt": "ranks",
        "split/m-00001-of-00002.gguf": "head", "split/m.safetensors.index.json": "head",
    }  # fmt: skip
    traces = [one.name for one in ServedFiles(served).listing() if one.kind == "trace"]
    assert traces == ["deep/er/traces", "deep/er/traces/x.trace.safetensors"]
    for one in ServedFiles(served).listing():
        assert ServedFiles(served).path(one.name).exists()


def test_the_root_itself_may_be_behind_a_link(served: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(served)
    path = ServedFiles(tmp_path / "link").path("a.gguf")
    assert path == served / "a.gguf"


@pytest.mark.parametrize(
    "name",
    ["", "/", "..", "../secret.safetensors", "model/../../secret.safetensors", "./../x",
     "/etc/passwd", "a\0.gguf", "model\\..\\x", "out.safetensors", "outdir/model.gguf", "outdir",
     "loop.gguf"],
)  # fmt: skip
def test_nothing_leads_out(served: Path, tmp_path: Path, name: str) -> None:
    (served / "out.safetensors").symlink_to(tmp_path / SECRET)
    (served / "outdir").symlink_to(tmp_path / "outside")
    (served / "loop.gguf").symlink_to(served / "loop.gguf")
    files = ServedFiles(served)
    assert not {"out.safetensors", "outdir", "loop.gguf"} & {one.name for one in files.listing()}
    with pytest.raises((BadUsageError, NotFoundError)) as caught:
        files.path(name)
    assert "secret" not in caught.value.hint and caught.value.hint


def test_a_file_read_along_may_not_lead_out_either(served: Path, tmp_path: Path) -> None:
    (served / "model" / "tokenizer.json").symlink_to(tmp_path / SECRET)
    for name in ("model", "model/model.safetensors"):
        with pytest.raises(BadUsageError, match=r"'tokenizer\.json', which belongs to"):
            ServedFiles(served).path(name)
    assert ServedFiles(served).path("a.gguf").is_file()


@pytest.mark.parametrize(
    ("link", "kept", "refused"),
    [
        ("out.gguf", ["a.gguf", "b.safetensors", "policy.toml"], []),
        ("out.safetensors", ["a.gguf", "b.safetensors"], []),
        ("split/m-00002-of-00003.gguf", ["split/m-00001-of-00002.gguf"], []),
        ("config.json", ["ranks.txt", "policy.toml"], ["a.gguf", "b.safetensors"]),
        ("x.safetensors.index.json", ["a.gguf", "policy.toml"], ["b.safetensors"]),
        ("split/w.safetensors", ["split/m-00001-of-00002.gguf"], ["split/m.safetensors.index.json",
                                                                  "split/l.safetensors"]),
        ("model/out.gguf", ["model/model.safetensors"], ["model"]),
    ],
)  # fmt: skip
def test_a_link_that_leads_out_concerns_only_who_reads_it(
    served: Path, tmp_path: Path, link: str, kept: list[str], refused: list[str]
) -> None:
    (served / "split" / "l.safetensors").write_text("x")
    index = {"weight_map": {"a": "l.safetensors", "b": "w.safetensors"}}
    (served / "split" / "m.safetensors.index.json").write_text(json.dumps(index))
    (served / link).symlink_to(tmp_path / SECRET)
    files = ServedFiles(served)
    kinds = {one.name: one.kind for one in files.listing()}
    for name in kept:
        assert files.path(name, kinds[name]).exists()
    for name in refused:
        with pytest.raises(BadUsageError, match=re.escape(repr(Path(link).name))):
            files.path(name)


def test_traces_that_are_looked_for_are_checked_too(served: Path, tmp_path: Path) -> None:
    (served / "out.trace.safetensors").symlink_to(tmp_path / SECRET)
    (served / "model" / "traces").symlink_to(tmp_path / "outside")
    files = ServedFiles(served)
    for name, told in (("a.gguf", "out.trace"), ("model/model.safetensors", "traces")):
        assert files.path(name).exists()
        with pytest.raises(BadUsageError, match=told):
            files.path(name, finds_traces=True)
    traces = served / "deep" / "er" / "traces"
    assert files.path("deep/er/traces", "trace") == traces
    (traces / "y.trace.safetensors").symlink_to(tmp_path / SECRET)
    with pytest.raises(BadUsageError, match=r"y\.trace"):
        files.path("deep/er/traces", "trace")


def test_what_is_not_there(served: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no 'gone\.gguf'"):
        ServedFiles(served).path("gone.gguf")
    with pytest.raises(NotFoundError, match="folder of files to audit"):
        ServedFiles(served / "gone").listing()


@pytest.mark.parametrize(
    ("given_", "name"),
    [
        ("q4.gguf", "q4.gguf"),
        ("../../etc/x.gguf", "x.gguf"),
        ("C:\\models\\My head.GGUF", "My_head.gguf"),
        (".hidden.safetensors", "hidden.safetensors"),
        ("-rf.toml", "rf.toml"),
        ("Ä\u202e.trace.safetensors", "trace.safetensors"),
        ("x" * 300 + ".trace.safetensors", "x" * 82 + ".trace.safetensors"),
        ("<b>$(ls).txt", "b___ls_.txt"),
    ],
)
def test_names_become_harmless(given_: str, name: str) -> None:
    assert safe_name(given_) == name


@given(st.text() | st.text().map(lambda text: f"{text}.gguf"))
def test_no_name_does_harm(name: str) -> None:
    try:
        found = safe_name(name)
    except BadUsageError as error:
        assert error.hint
        return
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", found) and Path(found).name == found


@pytest.mark.parametrize("name", ["x.pt", "x", ".gguf", "...", "gguf", "x.gguf.exe", ""])
def test_other_kinds_are_refused(name: str) -> None:
    with pytest.raises(BadUsageError, match="can not be uploaded"):
        safe_name(name)


def test_uploads_lie_with_their_job(tmp_path: Path) -> None:
    queue = JobQueue(tmp_path / "jobs", start=lambda folder: None)
    uploads = [Upload("dir/a b.gguf", io.BytesIO(b"one")), Upload("t.toml", io.BytesIO(b"two"))]
    name = queue.submit(
        uploads, request=lambda folder: {"ledger": "l", "ref": str(folder / "a_b.gguf")}
    )
    (job,) = queue.jobs()
    assert job.id == name and job.request is not None
    assert Path(job.request.ref).read_bytes() == b"one"
    assert Path(job.request.ref).with_name("t.toml").read_bytes() == b"two"
    assert job.request.title == " against a_b.gguf"


def test_refused_uploads_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = JobQueue(tmp_path / "jobs", start=lambda folder: None)

    def refused(words: str, *uploads: Upload) -> None:
        with pytest.raises(AuditError, match=words):
            queue.submit(uploads, request=lambda folder: {"ledger": "l", "ref": "r"})
        assert not queue.folder.exists() or list(queue.folder.iterdir()) == []

    refused("can not be uploaded", Upload("x.pt", io.BytesIO(b"")))
    refused("two uploads are called a_b.gguf", *[Upload(f"a{c}b.gguf", io.BytesIO()) for c in " !"])
    monkeypatch.setattr(uploads_module.store, "__defaults__", (1 << 20,))
    refused("larger than 1 MiB", Upload("x.gguf", io.BytesIO(b"0" * ((1 << 20) + 1))))
    exact = Upload("x.gguf", io.BytesIO(b"0" * (1 << 20)))
    queue.submit([exact], request=lambda folder: {"ledger": "l", "ref": "r"})


def test_jobs_lie_with_their_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUDIT_CACHE", str(tmp_path / "cache"))
    ledger = open_ledger("here")
    assert jobs_folder(ledger) == tmp_path / "here" / "jobs"
    assert ledger_place(ledger) == str(tmp_path / "here")
    far = open_ledger("memory://ledger", "sqlite:///x.db")
    assert jobs_folder(far).parent == tmp_path / "cache" / "jobs"
    assert jobs_folder(far) != jobs_folder(open_ledger("memory://other", "sqlite:///x.db"))
    assert ledger_place(far) == "memory://ledger"


def test_the_command_line_of_a_request() -> None:
    """Options first, then `--`: nothing that is called -x is taken for an option."""
    from audit.cli.compare import compare
    from audit.jobs import JobRequest

    wanted = JobRequest(
        id="i", created="", ledger="/l", ref="/r", cands=("/c", "/d"), trims=("/t",),
        traces=("/x", "/y"), head="mtp", policy="/p", kl=True,
    )  # fmt: skip
    name, *args = wanted.arguments()
    params = compare.make_context(name, args).params
    assert (params["ref"], params["cand"]) == (Path("/r"), (Path("/c"), Path("/d")))
    assert params["traces"] == (Path("/x"), Path("/y")) and params["trims"] == (Path("/t"),)
    assert (params["head"], params["policy"], params["kl"]) == ("mtp", Path("/p"), True)
    assert params["as_json"] and params["ledger_at"] == "/l" and not params["no_record"]
    assert wanted.title == "c, d, t against r"


def test_errors_name_files_without_the_folders_of_the_server() -> None:
    from audit.jobs import JobRequest

    wanted = JobRequest(
        id="i", created="", ledger="/l", ref="/srv/heads/model", cands=("/l/jobs/1/files/c.gguf",)
    )
    for text, short in (
        ("/l/jobs/1/files/c.gguf is empty", "c.gguf is empty"),
        ("is empty [/l/jobs/1/files/c.gguf]", "is empty [c.gguf]"),
        ("/srv/heads/model/config.json is cut", "model/config.json is cut"),
        ("missing in /l/jobs/1/files: x", "missing in its folder: x"),
        ("nothing of the kind", "nothing of the kind"),
    ):
        assert wanted.without_folders(text) == short
