"""Progress for programs: lines of JSON while an audit runs, in the file that is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from audit.cli.main import group
from audit.errors import BadUsageError
from audit.progress import Step, last_step, progress_lines
from tests.audit_files import head_weight, make_trace, write_head


def test_lines_are_whole_and_few(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    with progress_lines(path) as report:
        for done in range(10_001):
            report("compare on code", done, 10_000)
        report("controls", 0, 1)
        report("controls", 1, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert 4 <= len(lines) < 100
    assert lines[0] == {"what": "compare on code", "done": 0, "total": 10_000}
    assert {"what": "compare on code", "done": 10_000, "total": 10_000} in lines
    assert last_step(path) == Step("controls", 1, 1)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", None),
        (b'{"what": "a", "done": 1, "total"', None),
        (b'{"what": "a", "done": 1, "total": 2}\n{"what"', Step("a", 1, 2)),
        (b'{"what": "a", "done": 1, "total": 2}\nnoise\n[1]\n{}\n', Step("a", 1, 2)),
        (b"x" * 20_000 + b'\n{"what": "b", "done": 0, "total": 0}\n', Step("b", 0, 0)),
        (b"\xff\n" * 9, None),
    ],
)
def test_the_newest_whole_line_counts(tmp_path: Path, content: bytes, found: Step | None) -> None:
    (tmp_path / "p").write_bytes(content)
    assert last_step(tmp_path / "p") == found
    assert last_step(tmp_path / "none") is None


def test_a_share_is_one() -> None:
    steps = [Step("", 0, 0), Step("", 1, 4), Step("", 9, 4), Step("", -1, 4)]
    assert [step.share for step in steps] == [0.0, 0.25, 1.0, 0.0]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadUsageError, match="progress cannot be written"), progress_lines(tmp_path):
        pass


def test_compare_tells_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though stderr is no terminal; stdout stays one JSON document."""
    weight = head_weight()
    write_head(tmp_path / "ref.safetensors", weight)
    write_head(tmp_path / "cand.safetensors", weight + 0.3 * head_weight(5))
    make_trace(tmp_path / "code.trace.safetensors", weight)
    monkeypatch.setenv("AUDIT_PROGRESS", str(tmp_path / "progress"))
    args = ["compare", str(tmp_path / "ref.safetensors"), str(tmp_path / "cand.safetensors"),
            "--json", "--ledger", str(tmp_path / "ledger")]  # fmt: skip
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 0 and json.loads(done.stdout)["run"] and done.stderr == ""
    lines = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    assert list(dict.fromkeys(line["what"] for line in lines)) == [
        "preflight", "compare on code", "controls",
    ]  # fmt: skip
    monkeypatch.setenv("AUDIT_PROGRESS", str(tmp_path))
    done = CliRunner().invoke(group, args)
    assert done.exit_code == 2 and "AUDIT_PROGRESS" in json.loads(done.stdout)["error"]["hint"]
