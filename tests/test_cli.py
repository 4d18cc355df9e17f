"""The command line end to end on small real files: outputs, exit codes, bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from audit.cli import main
from audit.ledger import open_ledger
from audit.records import Run
from audit.table import COLUMNS, read_positions
from tests.audit_files import H, V, head_weight, make_trace, write_head


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ref, a noisy cand and two traces; the ledger in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUDIT_TRACES", "AUDIT_LEDGER", "AUDIT_DB_URL"):
        monkeypatch.delenv(name, raising=False)
    weight = head_weight()
    write_head(tmp_path / "ref.safetensors", weight)
    write_head(tmp_path / "cand.safetensors", weight + 0.3 * head_weight(5))
    (tmp_path / "traces").mkdir()
    make_trace(tmp_path / "traces" / "code.trace.safetensors", weight)
    make_trace(
        tmp_path / "traces" / "de.trace.safetensors", weight,
        corpus="de", register="domain_shift", seed=2,
    )  # fmt: skip
    return tmp_path


def audit(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(list(args))
    assert isinstance(stop.value.code, int)
    return stop.value.code


def document(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], words: str, *args: str) -> dict[str, str]:
    """Exit 2 with a sentence and a hint, in text and in JSON, and nothing in the ledger."""
    assert audit(*args) == 2
    text = capsys.readouterr()
    assert text.out == "" and text.err.startswith("error: ") and words in text.err
    assert "Traceback" not in text.err
    assert audit(*args, "--json") == 2
    out = capsys.readouterr().out
    error = json.loads(out)["error"]
    assert set(error) == {"kind", "message", "hint", "where"} and words in error["message"]
    assert error["hint"] and open_ledger(Path("audit-ledger")).run_ids() == []
    return error


def test_compare_finds_traces_and_records_a_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("compare", "ref.safetensors", "cand.safetensors", "--kl") == 0
    text = capsys.readouterr().out
    for words in ("reference", "disagreement D", "controls   7 of 7 passed", "shift tax", "KL"):
        assert words in text
    (name,) = open_ledger(place / "audit-ledger").run_ids()
    assert text.rstrip().endswith(f"run {name} recorded · next: audit show {name}")
    assert audit("show", name[:6]) == 0
    assert "disagreement D" in capsys.readouterr().out
    assert audit("show", "latest", "--tokens", "3", "-q") == 0
    assert "ref margin" in capsys.readouterr().out


def test_json_is_the_run_that_the_ledger_keeps(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("compare", "ref.safetensors", "cand.safetensors", "--json") == 0
    printed = document(capsys)
    keys = {"schema", "run", "reference", "candidates", "traces", "preflight", "controls",
            "calibration", "provenance"}  # fmt: skip
    assert keys <= set(printed) and printed["calibration"] is None
    (candidate,) = printed["candidates"]
    assert set(candidate) == {"head", "estimates", "verdict", "prediction", "gate"}
    Run.model_validate(printed)
    kept = json.loads((place / "audit-ledger/runs" / printed["run"] / "run.json").read_text())
    assert kept == printed
    assert audit("show", "latest", "--json") == 0
    assert document(capsys) == printed
    table = read_positions(place / "audit-ledger/runs" / printed["run"] / "positions.parquet")
    assert list(table.columns) == list(COLUMNS) and len(table) == 320
    share = table[table["corpus"] == "de"]["disagree"].mean()
    values = {(e["measure"], e["corpus"]): e["value"] for e in candidate["estimates"]}
    assert values["disagreement", "de"] == pytest.approx(share) and 0 < share < 1


def test_the_head_against_itself(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("compare", "ref.safetensors", "ref.safetensors", "--kl", "--json") == 0
    run = document(capsys)
    (candidate,) = run["candidates"]
    values = {(e["measure"], e["corpus"]): e["value"] for e in candidate["estimates"]}
    assert values["disagreement", "code"] == values["kl_nats", "de"] == 0
    assert candidate["verdict"]["kind"] == "identical"
    assert "NOT_COMPRESSED" in {finding["code"] for finding in run["preflight"]}


def test_several_candidates_are_ranked_in_one_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight = head_weight()
    write_head(place / "near.safetensors", weight + 1e-3 * head_weight(6))
    write_head(place / "shuffled.safetensors", weight.roll(1, 0))
    (place / "ranks.txt").write_text("\n".join(str(i) for i in range(0, V, 2)))
    names = ["shuffled.safetensors", "cand.safetensors", "near.safetensors"]
    assert audit("compare", "ref.safetensors", *names, "--trim", "ranks.txt") == 0
    text = capsys.readouterr().out
    ranked = text[text.index("ranked ") :].splitlines()[1:5]
    assert [line.split()[0] for line in ranked] == [
        "near.safetensors", "cand.safetensors", "ranks.txt", "shuffled.safetensors",
    ]  # fmt: skip
    assert "vocabulary cut: within its vocabulary it answers exactly as the reference" in text


def test_ties_that_the_cap_makes_are_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "m").mkdir()
    config = {"model_type": "gemma2", "final_logit_softcapping": 0.01, "rms_norm_eps": 1e-6}
    (place / "m/config.json").write_text(json.dumps(config))
    write_head(place / "m/model.safetensors", head_weight())
    assert audit("compare", "m", "cand.safetensors", "--trace", "traces", "--json") == 0
    told = [f for f in document(capsys)["preflight"] if f["code"] == "SATURATED"]
    assert len(told) == 2 and "160 of 160" in told[0]["sentence"]


def test_equal_names_are_told_apart(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = ["cand.safetensors", "cand.safetensors"]
    assert audit("compare", "ref.safetensors", *same, "--json") == 0
    names = [candidate["head"]["name"] for candidate in document(capsys)["candidates"]]
    assert names == ["cand.safetensors", "cand.safetensors#2"]


def test_proposals_from_elsewhere(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from audit.traces import read_trace

    path = place / "traces/code.trace.safetensors"
    trace = read_trace(path)
    proposal = trace.oracle.clone()
    proposal[:16] = (proposal[:16] + 1) % V
    meta = {"trace_sha256": trace.sha256 or ""}
    save_file({"proposal": proposal}, place / "engine.safetensors", metadata=meta)
    args = ["compare", "ref.safetensors", "engine.safetensors", "--trace"]
    assert audit(*args, str(path), "--json", "--no-record") == 0
    (candidate,) = document(capsys)["candidates"]
    values = {(e["measure"], e["corpus"]): e["value"] for e in candidate["estimates"]}
    assert values["disagreement", "code"] == pytest.approx(16 / 160)
    refused(capsys, "were made on trace", *args, "traces/de.trace.safetensors")


def test_the_reference_may_be_proposals_too(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reference right at 120 of 160, candidate flips 16 of those: R = 104 / 120, D = 16 / 160."""
    from audit.traces import read_trace

    path = place / "traces/code.trace.safetensors"
    trace = read_trace(path)
    meta = {"trace_sha256": trace.sha256 or ""}
    ref = trace.oracle.clone()
    ref[::4] = (ref[::4] + 1) % V
    cand = ref.clone()
    flipped = (ref == trace.oracle).nonzero().squeeze(1)[:16]
    cand[flipped] = (cand[flipped] + 2) % V
    for name, proposal in (("p.safetensors", ref), ("q.safetensors", cand)):
        save_file({"proposal": proposal}, place / name, metadata=meta)
    args = ["compare", "p.safetensors", "q.safetensors", "--trace", str(path)]
    assert audit(*args, "--json") == 0
    run = document(capsys)
    (candidate,) = run["candidates"]
    values = {(e["measure"], e["corpus"]): e["value"] for e in candidate["estimates"]}
    assert values["disagreement", "code"] == pytest.approx(16 / 160)
    assert values["retention", "code"] == pytest.approx(104 / 120)
    assert "flip_margin" not in {e["measure"] for e in candidate["estimates"]}
    assert audit("show", "latest") == 0 and "retention" in capsys.readouterr().out
    assert audit(*args[:3], "q.safetensors", *args[3:], "--json", "--no-record") == 0
    names = [one["head"]["name"] for one in document(capsys)["candidates"]]
    assert names == ["q.safetensors", "q.safetensors#2"]
    Path("audit-ledger").rename("kept")
    refused(capsys, "must be one too", "compare", "p.safetensors", "cand.safetensors", *args[3:])
    refused(capsys, "2 were found", *args[:3])
    noise = (trace.oracle + 1) % V
    save_file({"proposal": noise}, place / "r.safetensors", metadata=meta)
    refused(capsys, "which chance gives too", "compare", "r.safetensors", *args[2:])


def test_audit_traces_names_the_states(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "far").mkdir()
    moved = (place / "traces/de.trace.safetensors").rename(place / "far/de.trace.safetensors")
    monkeypatch.setenv("AUDIT_TRACES", str(moved))
    assert audit("compare", "ref.safetensors", "cand.safetensors", "--json", "--no-record") == 0
    run = document(capsys)
    assert [trace["info"]["corpus"] for trace in run["traces"]] == ["de"]
    assert open_ledger(place / "audit-ledger").run_ids() == []


def test_no_states_are_ever_invented(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (place / "traces").iterdir():
        path.unlink()
    error = refused(capsys, "no trace was found", "compare", "ref.safetensors", "cand.safetensors")
    assert "audit capture MODEL --text FILE -o " in error["hint"]


def test_bad_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = (place / "cand.safetensors").read_bytes()
    (place / "cut.safetensors").write_bytes(whole[:-100])
    (place / "text.safetensors").write_text("this is not weights")
    (place / "empty.gguf").write_bytes(b"")
    nan = head_weight()
    nan[7, 3] = torch.nan
    write_head(place / "nan.safetensors", nan)
    write_head(place / "wide.safetensors", torch.randn(V, H + 1))
    write_head(place / "more.safetensors", torch.randn(V + 2, H))
    write_head(place / "few.safetensors", torch.randn(V // 2, H))
    write_head(place / "zero.safetensors", torch.zeros(V, H))
    for name, words in (
        ("none.safetensors", "none.safetensors"),
        ("cut.safetensors", "100"),
        ("text.safetensors", "text.safetensors"),
        ("empty.gguf", "empty.gguf"),
        ("nan.safetensors", "NON_FINITE"),
        ("wide.safetensors", "49 hidden channels"),
        ("more.safetensors", "402 rows"),
        ("few.safetensors", "MAP_MISSING"),
        ("zero.safetensors", "DEAD_HEAD"),
    ):
        refused(capsys, words, "compare", "ref.safetensors", name)


def test_traces_that_do_not_belong(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = head_weight()
    wrong = make_trace(place / "wrong.trace.safetensors", head_weight(9))
    wide = make_trace(place / "wide.trace.safetensors", torch.randn(V, H + 1))
    other = make_trace(place / "other.trace.safetensors", weight, corpus="x", model_sha256="o" * 64)
    code = place / "traces/code.trace.safetensors"
    base = ["compare", "ref.safetensors", "cand.safetensors", "--trace"]
    refused(capsys, "STATES_NOT_FOR_THIS_HEAD", *base, str(wrong))
    refused(capsys, "states of width 49", *base, str(wide))
    refused(capsys, "2 different models", *base, str(code), "--trace", str(other))
    refused(capsys, "two traces are of corpus code", *base, str(code), "--trace", str(wrong))
    refused(capsys, "ref.safetensors", *base, "ref.safetensors")


def test_inverted_states_are_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weight = head_weight()
    path = make_trace(place / "inverted.trace.safetensors", -weight)
    refused(
        capsys, "ANTI_CORRELATED", "compare", "ref.safetensors", "cand.safetensors",
        "--trace", str(path),
    )  # fmt: skip


def test_states_before_the_norm_are_told_and_mended(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weight, gain = head_weight(), torch.linspace(-3, 3, H)
    config = {"model_type": "llama", "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
    (place / "m").mkdir()
    (place / "m/config.json").write_text(json.dumps(config))
    save_file({"lm_head.weight": weight, "model.norm.weight": gain}, place / "m/model.safetensors")
    probe = make_trace(place / "m/probe.trace.safetensors", weight)
    from audit.traces import read_trace

    hidden = read_trace(probe).hidden
    normed = hidden / (hidden.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain
    oracle = (normed @ weight.T).argmax(-1)
    probe.unlink()
    path = make_trace(place / "t.trace.safetensors", weight, oracle=oracle)
    base = ["compare", "m", "cand.safetensors", "--trace", str(path)]
    error = refused(capsys, "STATES_NOT_FOR_THIS_HEAD", *base)
    assert "with the final norm applied it reproduces 100.0 %" in error["hint"]
    path.unlink()
    make_trace(path, weight, oracle=oracle, stage="pre_norm")
    assert audit(*base, "--json", "--no-record") == 0
    run = document(capsys)
    assert [c["observed"] for c in run["controls"] if c["name"] == "anchor"] == [1.0]
    refused(capsys, "before the final norm", "compare", "ref.safetensors", *base[2:])


def test_usage_errors_obey_json(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (
        ["compare"], ["compare", "ref.safetensors"], ["compare", "--nonsense"], ["nonsense"],
        ["compare", "ref.safetensors", "cand.safetensors", "--device", "abacus"],
        ["compare", "ref.safetensors", "cand.safetensors", "--factors", "one"],
        ["show", "nothing"],
    ):  # fmt: skip
        assert audit(*args, "--json") == 2
        assert document(capsys)["error"]["message"]


def test_a_forgotten_verb_is_answered_with_the_command_meant(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("ref.safetensors", "cand.safetensors") == 2
    assert "did you mean: audit compare ref.safetensors cand.safetensors" in capsys.readouterr().err


def test_a_changed_run_is_not_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("compare", "ref.safetensors", "cand.safetensors", "-qq") == 0
    (name,) = open_ledger(place / "audit-ledger").run_ids()
    path = place / "audit-ledger/runs" / name / "run.json"
    path.write_text(path.read_text().replace('"value": 0.', '"value": 0.9', 1))
    assert audit("show", name) == 2
    assert "changed after it was written" in capsys.readouterr().err


def test_inspect(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("inspect", "ref.safetensors") == 0
    text = capsys.readouterr().out
    assert "400 × 48" in text and "OWN_HEAD" in text
    assert audit("inspect", "ref.safetensors", "--json") == 0
    assert document(capsys)["head"]["tensors"] == ["lm_head.weight"]
    assert audit("inspect", "none.gguf", "--json") == 2
    assert document(capsys)["error"]["kind"] == "not_found"


def test_an_interrupt_leaves_nothing_and_exits_130(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("audit.ledger.runs.write_positions", stop)
    assert audit("compare", "ref.safetensors", "cand.safetensors", "-q") == 130
    assert [p.name for p in (place / "audit-ledger/runs").iterdir()] == []
    capsys.readouterr()


def test_a_bug_exits_70_with_a_traceback(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("audit.outcome.judge", lambda *a, **k: 1 / 0)
    assert audit("compare", "ref.safetensors", "cand.safetensors", "--json") == 70
    seen = capsys.readouterr()
    assert json.loads(seen.out)["error"]["kind"] == "internal" and "Traceback" in seen.err


def test_hostile_names_are_shown_not_obeyed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "c\x1b[31m\u202e.safetensors"
    (place / "cand.safetensors").rename(place / evil)
    assert audit("compare", "ref.safetensors", evil) == 0
    text = capsys.readouterr().out
    assert "\x1b[31m" not in text and "\u202e" not in text and "\\u202e" in text


def test_progress_stays_off_stdout_and_pipes(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "audit", "compare", "ref.safetensors", "cand.safetensors", "--json"],
        capture_output=True, text=True, cwd=place, check=True,
    )  # fmt: skip
    json.loads(done.stdout)
    assert done.stderr == ""
