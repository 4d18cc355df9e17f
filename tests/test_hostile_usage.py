"""Broken sidecars, strange names, closed pipes and outputs that would destroy something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from audit.cli import main
from audit.heads.vocab_map import read_id_list
from audit.ledger import open_ledger
from audit.report.terminal import console, rows, show_run
from audit.report.wording import number
from tests.audit_files import head_weight, make_trace, write_head
from tests.heads.files import model_folder

FILES = ("ref.safetensors", "cand.safetensors")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER"):
        monkeypatch.delenv(name, raising=False)
    weight = head_weight()
    write_head(tmp_path / "ref.safetensors", weight)
    write_head(tmp_path / "cand.safetensors", weight + 0.3 * head_weight(5))
    make_trace(tmp_path / "code.trace.safetensors", weight)
    return tmp_path


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    assert isinstance(stop.value.code, int)
    return stop.value.code


def refused(capsys: pytest.CaptureFixture[str], words: str, *args: str) -> dict[str, str]:
    assert audit(*args) == 2
    text = capsys.readouterr()
    assert text.out == "" and words in text.err and "Traceback" not in text.err
    assert audit(*args, "--json") == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert words in error["message"] and error["hint"]
    return error


def shell(place: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `audit` runs in a process of its own."""
    audit = f'audit() {{ "{sys.executable}" -m audit "$@"; }}; '
    return subprocess.run(
        ["bash", "-c", audit + line], cwd=place, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("generation_config.json", "{not json"),
        ("generation_config.json", '{"eos_token_id": "x"}'),
        ("generation_config.json", '{"eos_token_id": [1.5, null]}'),
        ("generation_config.json", '{"eos_token_id": 1, "temperature": NaN}'),
        ("generation_config.json", "[]"),
        ("tokenizer.json", '{"model": []}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 0}}, "added_tokens": [{"special": true}]}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": 0}}, "added_tokens": [3]}'),
        ("tokenizer.json", '{"model": {"vocab": {"a": "x"}}}'),
        ("config.json", '{"model_type": "gemma2", "final_logit_softcapping": -30.0}'),
        ("config.json", '{"model_type": "llama", "eos_token_id": "x"}'),
    ],
)
def test_broken_sidecars(
    place: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    (place / "m").mkdir()
    model_folder(place / "m", {"model_type": "llama"}, lm_head__weight=head_weight())
    (place / "m" / name).write_text(text)
    error = refused(capsys, "", "inspect", "m")
    assert error["where"] == f"m/{name}" and error["kind"] == "unreadable"


def test_names_that_are_not_utf8(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = os.fsdecode(b"bad\xff.safetensors")
    (place / "cand.safetensors").rename(odd)
    assert audit("inspect", odd, "--json") == 0
    assert json.loads(capsys.readouterr().out)["head"]["name"] == "bad\\udcff.safetensors"
    assert audit("inspect", odd) == 0
    assert "bad\\udcff.safetensors" in capsys.readouterr().out
    refused(capsys, "not UTF-8", "compare", "ref.safetensors", odd)
    folder = Path(os.fsdecode(b"dir\xff"))
    folder.mkdir()
    Path(odd).rename(folder / "cand.safetensors")
    assert audit("compare", "ref.safetensors", str(folder / "cand.safetensors"), "-qq") == 0
    assert audit("show", "latest", "--json") == 0
    assert "dir\\udcff" in json.loads(capsys.readouterr().out)["candidates"][0]["head"]["path"]


@pytest.mark.parametrize(
    "option",
    [("--seed", str(2**64)), ("--resamples", "1000001"), ("--device", "meta"), ("--anchor", "nan")],
)
def test_values_that_cannot_be_meant(
    place: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    refused(capsys, option[0].lstrip("-"), "compare", *FILES, *option)


def test_an_empty_id_list(place: Path) -> None:
    from audit.errors import UnreadableError

    (place / "map.pt").write_bytes(b"")
    with pytest.raises(UnreadableError, match=r"not a list of ids: \w"):
        read_id_list(place / "map.pt")


def test_only_folders_with_a_run_count(place: Path) -> None:
    runs = place / "audit-ledger/runs"
    (runs / "empty").mkdir(parents=True)
    (runs / "stray").write_text("")
    (runs / "dangling").symlink_to("nowhere")
    assert open_ledger(place / "audit-ledger").run_ids() == []


def test_a_reader_that_leaves(place: Path) -> None:
    assert audit("compare", *FILES, "-qq") == 0
    for command in ("audit show latest --json", "audit show latest", "audit --help"):
        done = shell(place, f"{command} | true; exit ${{PIPESTATUS[0]}}")
        assert done.returncode in (0, 141) and done.stderr == ""


def test_an_output_that_takes_nothing(place: Path) -> None:
    assert audit("compare", *FILES, "-qq") == 0
    commands = ("show latest --json", "show latest", "--help", "show nothing --json")
    for command in commands:
        for nowhere in ("> /dev/full", ">&-"):
            done = shell(place, f"audit {command} {nowhere}")
            assert done.returncode == 2
            assert done.stderr.startswith("error: the output cannot be written: ")
            assert len(done.stderr.splitlines()) == 1


def test_names_are_no_markup(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[red]x.safetensors", ":smile:.safetensors"]
    for name in names:
        write_head(place / name, head_weight() + 0.3 * head_weight(5))
    assert audit("compare", "ref.safetensors", *names, "--no-record") == 0
    text = capsys.readouterr().out
    assert all(f"\n{name}: undecided" in text for name in names)
    assert all(text.count(name) > 3 for name in names)
    rows(Console(), ("[/]", "b"), [["[red]x", ":smile:"]])
    text = capsys.readouterr().out
    assert "[/]" in text and "[red]x" in text and ":smile:" in text


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert not console(no_color=False).no_color and console(no_color=True).no_color
    monkeypatch.setenv("NO_COLOR", "1")
    assert console(no_color=False).no_color


def test_bare_audit_prints_help(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit() == 0
    assert "Commands:\n  compare" in capsys.readouterr().out


def test_an_early_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["audit.cli.main"], "guarded", stop)
    assert audit("corpora") == 130
    code = (
        "import sys, audit.cli.main; sys.exit(bool({'pandas', 'rich', 'numpy'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_capture_destroys_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("audit.traces.verifier.load_verifier", never)
    model_folder(place / "m", {"model_type": "llama"}, lm_head__weight=head_weight())
    (place / "text.txt").write_text("words")
    (place / "link").symlink_to("text.txt")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for output, words in (
        ("text.txt", "a text to run over"),
        ("link", "a text to run over"),
        ("ref.safetensors", "not a trace"),
        ("m/model.safetensors", "not a trace"),
        ("m/model-00001-of-00002.safetensors", "among the model's files"),
        ("m", "folder"),
        ("text.txt/x.trace.safetensors", "text.txt is not a folder"),
        ("/dev/null", "not a trace"),
    ):
        refused(capsys, words, "capture", "m", "--text", "text.txt", "-o", output)
    refused(
        capsys, "device", "capture", "m", "--text", "text.txt", "-o", "x", "--device", "meta"
    )  # fmt: skip
    assert before == {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    from audit.cli.capture import check_output

    for fine in ("code.trace.safetensors", "m/new.trace.safetensors", "a/b/new.safetensors"):
        check_output(Path(fine), Path("m"), [Path("text.txt")])


def test_a_tokenizer_that_cannot_be_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from audit.errors import UnreadableError
    from audit.traces import verifier

    def bare(**options: object) -> None:
        raise Exception("no tokenizer here")

    monkeypatch.setattr(verifier.AutoTokenizer, "from_pretrained", bare)
    with pytest.raises(UnreadableError, match="the tokenizer of m: no tokenizer here"):
        verifier._load_tokenizer({}, Path("m"))


def test_a_ledger_is_tried_before_the_audit(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: object) -> None:
        raise AssertionError("the audit was run")

    (place / "file").write_text("")
    monkeypatch.setattr("audit.run.audit_heads", never)
    words = "the ledger can not be written"
    refused(capsys, words, "compare", *FILES, "--ledger", "file/ledger")


def test_all_corpora_are_verified_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from audit.corpora import load_corpora
    from audit.errors import UnreadableError
    from audit.traces import bundled

    seen = []

    def check(corpus: object) -> list[object]:
        seen.append(corpus)
        if len(seen) == len(load_corpora()):
            raise UnreadableError("damaged")
        return []

    def never(*args: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setenv("AUDIT_CACHE", str(place / "cache"))
    monkeypatch.setattr(bundled, "corpus_documents", check)
    monkeypatch.setattr("audit.traces.verifier.load_verifier", never)
    with pytest.raises(UnreadableError, match="damaged"):
        bundled.bundled_traces(place / "ref.safetensors")


def test_inspect_can_be_quiet(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("inspect", "ref.safetensors", "-q") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert audit("inspect", "ref.safetensors", "-qq") == 0
    assert capsys.readouterr().out == ""


def test_nothing_is_not_negative() -> None:
    assert number("shift_tax", -0.0001) == "0.0 pt" and number("shift_tax", -0.01) == "-1.0 pt"


def test_narrow_terminals_keep_words_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("compare", *FILES, "-qq") == 0
    show_run(open_ledger(place / "audit-ledger").load_run("latest"), Console(width=60))
    text = capsys.readouterr().out
    for word in ("cand.safetensors", "disagreement", "positions", "sequences", "reference"):
        assert word in text
    assert "…" not in text
    table = text[text.index("\ncand.safetensors") : text.rindex("cand.safetensors: ")]
    assert max(map(len, table.splitlines())) <= 60
