"""`audit report` and `audit study --report` at the command line: formats, places, refusals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from audit.cli import main
from audit.ledger import open_ledger
from audit.report import formats
from audit.report.schema import run_schema
from tests.conftest import Golden
from tests.report.made import candidate, run
from tests.report.readers import github, page_of
from tests.test_estimates import frame


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a ledger of one run."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_LEDGER", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    table = frame([1, 2, 3], [1, 3, 4], [1, 2, 3], [0, 0, 1], corpus="german",
                  register="domain_shift", candidate="cand.gguf")  # fmt: skip
    open_ledger(tmp_path / "audit-ledger").save_run(run(run=""), [table])
    return tmp_path


def name_of(place: Path) -> str:
    (name,) = open_ledger(place / "audit-ledger").run_ids()
    return name


@pytest.mark.parametrize(
    ("file", "format_"),
    [("a.md", "markdown"), ("a.html", "html"), ("a.json", "json"), ("a.xml", "junit"),
     ("deep/er/a.HTM", "html")],
)  # fmt: skip
def test_the_suffix_names_the_format(
    place: Path, capsys: pytest.CaptureFixture[str], file: str, format_: str
) -> None:
    assert audit("report", "latest", "-o", file) == 0
    told = capsys.readouterr()
    assert told.out == f"{format_} report of run {name_of(place)}: {file}\n" and told.err == ""
    text = (place / file).read_text(encoding="utf-8")
    {"markdown": github, "html": page_of, "json": json.loads, "junit": ElementTree.fromstring}[
        format_
    ](text)
    assert [p.name for p in (place / file).parent.iterdir() if p.name.startswith(".a")] == []
    assert audit("report", name_of(place)[:5], "--format", format_) == 0
    assert capsys.readouterr().out == text


def test_markdown_is_the_default_and_json_is_one_document(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("report", "latest") == 0
    assert capsys.readouterr().out.startswith("### Draft head audit")
    assert audit("report", "latest", "--json") == 0
    assert json.loads(capsys.readouterr().out)["run"] == name_of(place)
    assert audit("report", "latest", "--json", "-o", "a.xml") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "run": name_of(place), "format": "junit", "path": "a.xml",
        "bytes": (place / "a.xml").stat().st_size, "summary": None,
    }  # fmt: skip
    assert audit("report", "latest", "--format", "card", "-o", "a.txt", "-q") == 0
    assert capsys.readouterr().out == "" and "```yaml" in (place / "a.txt").read_text()


def test_a_document_anywhere_is_checked_like_one_of_the_ledger(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = place / "audit-ledger" / "runs" / name_of(place)
    path = place / "else" / "run.json"
    path.parent.mkdir()
    path.write_bytes((folder / "run.json").read_bytes())
    assert audit("report", str(path)) == 0
    assert "Costliest flips" not in capsys.readouterr().out
    table = path.with_name("positions.parquet")
    table.write_bytes((folder / "positions.parquet").read_bytes())
    assert audit("report", str(path)) == 0
    assert "Costliest flips" in capsys.readouterr().out
    table.write_bytes(b"PAR1")
    assert audit("report", str(path)) == 2
    assert "not the run's" in capsys.readouterr().err
    table.unlink()
    whole = path.read_text()
    path.write_text(whole.replace("0.747", "0.947"))
    assert audit("report", str(path)) == 2
    assert "no longer gives its id" in capsys.readouterr().err
    path.write_text(whole.replace('"seed": 0', '"seed": NaN'))
    assert audit("report", str(path)) == 2
    assert "no longer gives its id" in capsys.readouterr().err
    assert audit("report", "nowhere/run.json", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "not_found"


def test_the_summary_of_a_job_is_appended_to(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("report", "latest", "--summary") == 2
    assert "GITHUB_STEP_SUMMARY, which is not set" in capsys.readouterr().err
    summary = place / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert audit("report", "latest", "--summary", "-o", "a.xml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["summary"] == str(summary)
    text = summary.read_text()
    assert text.startswith("before\n### Draft head audit")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    assert audit("report", "latest", "--summary") == 2


def test_refusals(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside = f"audit-ledger/runs/{name_of(place)}/report.html"
    (place / "other.json").write_text("{}")
    for args, words in (
        (["latest", "-o", "a.pdf"], "names no format"),
        (["latest", "-o", inside], "never written over"),
        (["latest", "-o", "audit-ledger/runs/../runs/x.md"], "never written over"),
        (["latest", "-o", str(place), "--format", "html"], "can not be written"),
        (["latest", "-o", "other.json/a.md"], "can not be written"),
        ([], "no run was given"),
        (["latest", "--schema"], "same for every run"),
        (["ffff"], "there is no run"),
        (["f" * 5000], "there is no run"),
        (["f" * 5000 + ".json"], "there is no such run document"),
        (["other.json"], "not a run document"),
        (["latest", "--tokenizer", "other.json"], "no tokenizer"),
        (["latest", "--tokenizer", str(place)], "no tokenizer.json here"),
    ):
        before = sorted(place.rglob("*"))
        assert audit("report", *args) == 2, args
        told = capsys.readouterr()
        assert words in told.err and told.out == "" and "Traceback" not in told.err
        assert audit("report", *args, "--json") == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert words in error["message"] and error["hint"]
        assert sorted(place.rglob("*")) == before
    assert audit("report", "latest", "--json", "--format", "html") == 2
    assert "html is none" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert audit("report", "latest", "--format", "pdf", "--json") == 2


def test_a_document_is_not_written_over_itself(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("report", "latest", "-o", "run.json", "-q") == 0
    before = (place / "run.json").read_bytes()
    assert audit("report", "run.json", "-o", "./run.json") == 2
    assert (place / "run.json").read_bytes() == before
    capsys.readouterr()


def test_a_report_takes_the_place_of_a_report_only(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "policy.toml").write_text('name = "x"')
    (place / "README.md").write_text("# Mine")
    (place / "head.safetensors").write_bytes(bytes(64))
    (place / "other.json").write_text('{"mine": 1}')
    kept = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    index = "audit-ledger/index.sqlite"
    for how in ("markdown", "html", "json", "junit", "card"):
        for name in ("policy.toml", "README.md", "head.safetensors", "other.json", index):
            assert audit("report", "latest", "--format", how, "-o", name) == 2
            assert "no report of this program" in capsys.readouterr().err
    assert audit("report", "--schema", "-o", index) == 2
    assert "no report of this program" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in kept} == kept
    for first in ("markdown", "html", "json", "junit", "card"):
        for then in ("markdown", "html", "json", "junit", "card"):
            for how in (first, then):
                assert audit("report", "latest", "--format", how, "-o", "again", "-q") == 0
    assert audit("report", "--schema", "-o", "again", "-q") == 0
    assert audit("report", "--schema", "-o", "again", "-q") == 0


def test_a_pipe_is_written_into(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(place / "pipe")
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert audit("report", "latest", "--format", "junit", "-o", "pipe", "-q") == 0
        ElementTree.fromstring(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    assert (place / "pipe").is_fifo() and capsys.readouterr().err == ""


def test_an_interrupt_leaves_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "a.html").write_text("<title>Audit of the report before</title>")
    write = Path.write_text

    def stop(self: Path, text: str, **options: str) -> int:
        write(self, text[:20], **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(formats.Path, "write_text", stop)
    assert audit("report", "latest", "-o", "a.html") == 130
    monkeypatch.undo()
    assert "of the report before" in (place / "a.html").read_text()
    assert [p.name for p in place.iterdir() if ".part" in p.name] == []
    capsys.readouterr()


def test_the_schema_is_printed_or_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("report", "--schema") == 0
    assert json.loads(capsys.readouterr().out) == run_schema()
    assert audit("report", "--schema", "-o", "s.json", "--json") == 0
    assert json.loads(capsys.readouterr().out)["path"] == "s.json"
    assert json.loads((place / "s.json").read_text()) == run_schema()


def test_hostile_names_are_shown_not_obeyed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = run(candidate("\x1b[31m\udcff|<b>"), run="")
    open_ledger(place / "audit-ledger").save_run(hostile, [frame([1], [2], [1], [0])])
    for format_ in formats.FORMATS:
        assert audit("report", "latest", "--format", format_) == 0
        text = capsys.readouterr().out
        assert "\x1b" not in text
        # A JSON string and a code block hold it as text, where it is no tag.
        assert "<b>" not in text or format_ in ("json", "card")
        text.encode()


def test_token_text_stands_beside_its_id(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(golden.run.reference.path)
    args = ["report", "latest", "--ledger", str(golden.ledger), "--tokens", "5"]
    assert audit(*args, "--tokenizer", str(model)) == 0
    page = github(capsys.readouterr().out)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    known = golden.positions[golden.positions["disagree"] & golden.positions["ref_accepts"]]
    worst = known.nlargest(5, "ref_margin")
    for oracle in worst["oracle"]:
        text = tokenizer.decode([int(oracle)]).replace("\n", "↵")
        assert any(cell.startswith(f"{oracle} “{text[:6]}") for cell in page.cells)


def test_a_study_is_written_too(sample_ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from audit.calibration import Calibration
    from audit.report.study import render_study

    page = page_of((sample_ledger / "study.html").read_text(encoding="utf-8"))
    for words in ("What 8 known cuts", "exact p", "left out in turn", "beyond noise"):
        assert words in page.text
    figures = {value for tag, name, value in page.attributes if (tag, name) == ("figure", "id")}
    assert figures == {
        "yardstick-retention", "disagreement-against-shift-loss", "noise-ladder",
        "harm-against-disagreement",
    }  # fmt: skip
    (path,) = (sample_ledger / "calibrations").glob("*.json")
    found = Calibration.model_validate_json(path.read_text())
    text = github(render_study(found, "markdown"))
    assert {y.cut for y in found.yardsticks} <= set(text.cells) and "Spearman" in text.text
    assert audit("study", "model", "--report", "a.pdf") == 2
    assert "HTML or Markdown" in capsys.readouterr().err


def test_what_was_said_of_a_run_since_it_was_recorded(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gate's newest answer, the policy's changes and a review; JSON stays the record."""
    limit = '[[limit]]\nname = "keeps"\nmeasure = "retention"\nreason = "speed"\n'
    (place / "old.toml").write_text(f'name = "old"\n{limit}date = 2026-01-15\nminimum = 0.99\n')
    (place / "new.toml").write_text(
        f'name = "new"\nprevious = "old.toml"\n{limit}date = 2026-02-01\nminimum = 0.5\n'
    )
    before = {how: _report(how, capsys) for how in ("markdown", "html", "junit", "card", "json")}
    code = audit("gate", "latest", "--policy", "new.toml", "-q")
    assert code in (0, 1, 3)
    capsys.readouterr()
    outcome = {0: "pass", 1: "fail", 3: "undecided"}[code]
    said = ("--decision", "more-data", "--reason", "more <b>German</b>", "--reviewer", "Ada")
    assert audit("review", "latest", *said, "-q") == 0
    capsys.readouterr()
    for how in ("markdown", "html"):
        text = github(_report(how, capsys)) if how == "markdown" else page_of(_report(how, capsys))
        shown = text.text
        assert f"{outcome}:" in shown and "Changed since the previous policy" in shown
        assert "looser" in shown and "more <b>German</b>" in shown and "Ada" in shown
    after = ElementTree.fromstring(_report("junit", capsys))
    assert [case.get("name") for case in after.iter("testcase")]
    assert _report("junit", capsys) != before["junit"]
    assert _report("json", capsys) == before["json"]


def _report(how: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert audit("report", "latest", "--format", how) == 0
    return capsys.readouterr().out
