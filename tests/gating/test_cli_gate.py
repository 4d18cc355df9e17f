"""The gate at the command line: every outcome and exit code in every output format.

The kinds of bugs.md 55 to 58, 61 and 63: an error that exits with 0, an outcome and an exit code
that disagree, a gate that can not fail, a threshold that creeps, the sign of a small change, stale
evidence.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from tokenizers import Tokenizer

from audit.catalogue import CONTROLS
from audit.cli.main import group
from audit.ledger import open_ledger, run_json
from audit.records import GateAnswer, Run
from audit.traces import read_trace
from tests.audit_files import V, head_weight, make_trace, write_head
from tests.gating.made import limit, require

SAMPLE = Path(__file__).resolve().parents[2] / "audit" / "sample"
GERMAN = SAMPLE / "traces" / "german.trace.safetensors"
FORMATS = {"terminal": [], "-q": ["-q"], "-qq": ["-qq"], "json": ["--json"],
           "json and -q": ["--json", "-q"], "no colour": ["--no-color"]}  # fmt: skip
CODES = {"pass": 0, "fail": 1, "undecided": 3}

# The trim of the sample keeps about 98 % of its retention on German.
LIMITS = {
    "pass": limit(name="keeps", measure="retention", minimum=0.80, corpus="german"),
    "fail": limit(name="keeps", measure="retention", minimum=0.9999),
    "undecided": limit(name="keeps", measure="retention", minimum=0.98),
}  # fmt: skip


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(group, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with one run of the sample, its ranks card, and a policy for each outcome."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "ranks.txt").write_text("\n".join(map(str, range(2500))))
    for name, table in LIMITS.items():
        (folder / f"{name}.toml").write_text(f'name = "{name}"\n{table}')
    done = run(*compare(folder), "--ledger", folder / "ledger", "-qq")
    assert done.exit_code == 0, done.output
    return folder


def compare(place: Path) -> list[str | Path]:
    return ["compare", SAMPLE / "model", "--trim", place / "ranks.txt", "--head", "lm",
            "--trace", GERMAN, "--resamples", "400"]  # fmt: skip


def gate(place: Path, policy: str, *more: str | Path) -> Result:
    return run("gate", "latest", "--policy", place / f"{policy}.toml", "--ledger",
               place / "ledger", *more)  # fmt: skip


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("outcome", CODES)
def test_the_exit_code_is_the_outcome_in_every_format(place: Path, outcome: str, how: str) -> None:
    done = gate(place, outcome, *FORMATS[how])
    assert done.exit_code == CODES[outcome], done.output
    if "json" in how:
        found = GateAnswer.model_validate(json.loads(done.stdout))
        assert found.outcome == outcome == found.candidates[0].gate.outcome
        assert found.run == open_ledger(place / "ledger").run_ids()[0] and found.selftest is None
    elif how == "-qq":
        assert done.stdout == ""
    else:
        assert f"ranks.txt: {outcome}: " in done.stdout
        assert ("reaches over" in done.stdout) == (outcome == "undecided" and how != "-q")
    assert gate(place, outcome, *FORMATS[how], "--exit-zero").exit_code == 0


@pytest.mark.parametrize("how", ["terminal", "-qq", "json"])
@pytest.mark.parametrize("outcome", CODES)
def test_compare_judges_and_records_what_it_judged(
    place: Path, tmp_path: Path, outcome: str, how: str
) -> None:
    more = ["--gate", place / f"{outcome}.toml", "--ledger", tmp_path]
    done = run(*compare(place), *more, *FORMATS[how])
    assert done.exit_code == CODES[outcome], done.output
    (name,) = open_ledger(tmp_path).run_ids()
    kept = open_ledger(tmp_path).load_run(name)
    assert kept.candidates[0].gate is not None and kept.candidates[0].gate.outcome == outcome
    if how == "json":
        assert Run.model_validate(json.loads(done.stdout)) == kept
    if how == "terminal":
        assert f"ranks.txt: {outcome}: " in done.stdout
        assert done.stdout.rstrip().endswith(f"next: audit show {name}")
    shown = run("show", name, "--ledger", tmp_path)
    assert f"ranks.txt: {outcome}: " in shown.stdout and "keeps" in shown.stdout


def test_exit_zero_reports_without_blocking(place: Path, tmp_path: Path) -> None:
    more = ["--gate", place / "fail.toml", "--ledger", tmp_path, "--exit-zero", "-q"]
    done = run(*compare(place), *more)
    assert done.exit_code == 0 and "ranks.txt: fail: 1 of 2 limits failed" in done.stdout


def test_bad_policies_stop_before_anything_is_measured(place: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('name = "x"\n' + limit(measure="retention", minimum=95))
    missing = tmp_path / "none.toml"
    for policy in (bad, missing):
        for head in (["gate", "latest", "--policy", policy], [*compare(place), "--gate", policy]):
            for how, options in FORMATS.items():
                done = run(*head, "--ledger", tmp_path / "ledger", *options)
                assert done.exit_code == 2, (head, how, done.output)
                assert "Traceback" not in done.output and not (tmp_path / "ledger/runs").exists()
                if "json" in how:
                    error = json.loads(done.stdout)["error"]
                    assert set(error) == {"kind", "message", "hint", "where"}
                    assert error["kind"] == ("bad_policy" if policy is bad else "not_found")


def test_options_that_would_do_nothing_are_refused(place: Path) -> None:
    for more in (["--exit-zero"], ["--waivers", place / "w.toml"]):
        done = run(*compare(place), "--ledger", place / "l2", *more)
        assert done.exit_code == 2 and "belongs to a gate" in done.output
    done = run("gate", "--policy", place / "pass.toml")
    assert done.exit_code == 2 and "RUN is missing" in done.output


def test_a_waiver_from_a_file_is_used_and_told(place: Path, tmp_path: Path) -> None:
    head = latest(place).candidates[0].head.sha256
    path = tmp_path / "waivers.toml"

    def written(expires: str, limit_name: str = "keeps") -> Path:
        path.write_text(
            f'[[waiver]]\nhead = "{head[:16]}"\nlimit = "{limit_name}"\nreason = "demo"\n'
            f'who = "Ann"\nexpires = {expires}\n'
        )
        return path

    done = gate(place, "fail", "--waivers", written("9999-12-31"))
    assert done.exit_code == 0 and "fail, waived" in done.stdout
    assert "waived by Ann until 9999-12-31: demo" in done.stdout
    done = gate(place, "fail", "--waivers", written("2020-01-01"))
    assert done.exit_code == 1
    assert "the waiver by Ann expired on 2020-01-01 and does nothing" in done.stdout
    done = gate(place, "fail", "--waivers", written("9999-12-31", "keps"))
    assert done.exit_code == 1 and "did you mean keeps?" in done.stderr
    done = run(*compare(place), "--gate", place / "fail.toml", "--waivers", written("9999-12-31"),
               "--ledger", tmp_path / "ledger", "--json")  # fmt: skip
    (candidate,) = json.loads(done.stdout)["candidates"]
    assert done.exit_code == 0 and candidate["gate"]["outcome"] == "pass"
    assert candidate["gate"]["limits"][1]["waiver"] and candidate["gate"]["limits"][1][
        "outcome"] == "fail"  # fmt: skip


def test_runs_are_found_by_id_prefix_and_file(place: Path, tmp_path: Path) -> None:
    (name,) = open_ledger(place / "ledger").run_ids()
    document = place / "ledger/runs" / name / "run.json"
    policy = ["--policy", place / "undecided.toml", "--ledger", place / "ledger", "--json"]
    answers = [
        json.loads(run("gate", wanted, *policy).stdout)["candidates"][0]["gate"]
        for wanted in (name, name[:5], "latest", document, document.parent)
    ]
    for answer in answers:
        answer.pop("judged")
        assert answer == answers[0]
    unknown = run("gate", "abcdef", *policy)
    assert unknown.exit_code == 2 and "did you mean" in unknown.stdout
    assert run("gate", tmp_path / "none.json", *policy).exit_code == 2


# ---- bugs.md, kind by kind


def test_55_what_can_not_be_compared_gives_exit_2_and_no_numbers(tmp_path: Path) -> None:
    weight = head_weight()
    write_head(tmp_path / "ref.safetensors", weight)
    write_head(tmp_path / "cand.safetensors", torch.cat([weight, weight[:2]]))
    made = make_trace(tmp_path / "code.trace.safetensors", weight)
    (tmp_path / "p.toml").write_text('name = "p"\n' + limit(measure="retention", minimum=0.5))
    args = ["compare", tmp_path / "ref.safetensors", tmp_path / "cand.safetensors", "--trace", made,
            "--gate", tmp_path / "p.toml", "--ledger", tmp_path / "ledger"]  # fmt: skip
    for how, options in FORMATS.items():
        for more in ([], ["--exit-zero"]):
            done = run(*args, *options, *more)
            assert done.exit_code == 2, (how, done.output)
            assert "402 rows" in done.output and "%" not in done.stdout
    assert open_ledger(tmp_path / "ledger").run_ids() == []


def latest(place: Path) -> Run:
    return open_ledger(place / "ledger").load_run("latest")


def changed(place: Path, path: Path, **update: object) -> Path:
    """The recorded run with some of its content replaced, and without its id."""
    found = json.loads(run_json(latest(place))) | {"run": ""} | update
    path.write_text(json.dumps(found))
    return path


@pytest.mark.parametrize("how", FORMATS)
def test_56_empty_evidence_never_exits_0(place: Path, tmp_path: Path, how: str) -> None:
    (candidate,) = json.loads(run_json(latest(place)))["candidates"]
    policy = ["--policy", place / "pass.toml", *FORMATS[how]]
    for update, code in (
        ({"candidates": []}, 2),
        ({"candidates": [candidate | {"estimates": []}]}, 1),
        ({"traces": []}, 1),
        ({"controls": []}, 1),
    ):
        done = run("gate", changed(place, tmp_path / "run.json", **update), *policy)
        assert done.exit_code == code, (update, done.output)
        if "json" in how:
            assert json.loads(done.stdout)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "null"])
def test_57_what_is_not_a_number_never_passes(place: Path, tmp_path: Path, word: str) -> None:
    found = json.loads(changed(place, tmp_path / "run.json").read_text())
    for one in found["candidates"][0]["estimates"]:
        if one["measure"] == "retention":
            one["value"] = one["low"] = one["high"] = "HERE"
    (tmp_path / "run.json").write_text(json.dumps(found).replace('"HERE"', word))
    done = run("gate", tmp_path / "run.json", "--policy", place / "pass.toml")
    assert done.exit_code == (1 if word == "null" else 2), done.output


def test_57_a_gate_that_can_not_fail_is_named(place: Path, tmp_path: Path) -> None:
    bad = tmp_path / "p.toml"
    tables = LIMITS["pass"] + limit(name="hollow", measure="retention", minimum=0.0)
    bad.write_text(f'name = "p"\n{tables}')
    for how, options in FORMATS.items():
        done = run("gate", "--policy", bad, "--selftest", *options, "--exit-zero")
        assert done.exit_code == 2, how
        assert "hollow" in done.output and "keeps" not in done.output
    good = run("gate", "--policy", place / "pass.toml", "--selftest")
    assert good.exit_code == 0 and "2 limits gave the right outcome on" in good.stdout
    both = gate(place, "fail", "--selftest", "--json")
    assert both.exit_code == 1 and set(json.loads(both.stdout)["selftest"]) == {"controls", "keeps"}
    alone = run("gate", "--policy", place / "fail.toml", "--selftest", "--json")
    assert alone.exit_code == 0 and json.loads(alone.stdout)["outcome"] is None


def test_58_a_threshold_that_creeps_is_told(place: Path, tmp_path: Path) -> None:
    old, new = LIMITS["fail"], LIMITS["fail"].replace("0.9999", "0.80")
    (tmp_path / "old.toml").write_text(f'name = "old"\n{old}')
    (tmp_path / "new.toml").write_text(f'name = "new"\nprevious = "old.toml"\n{new}')
    told = "keeps: threshold changed 0.9999 -> 0.8 (looser)"
    done = run("gate", "latest", "--policy", tmp_path / "new.toml", "--ledger", place / "ledger")
    assert done.exit_code == 0 and told in done.stdout and "were not renewed" in done.stdout
    done = run("policy", "diff", tmp_path / "old.toml", tmp_path / "new.toml")
    assert told in done.stdout and "1 change since old.toml, 1 of them looser" in done.stdout
    done = run("policy", "diff", tmp_path / "old.toml", tmp_path / "new.toml", "--json")
    assert json.loads(done.stdout)["changes"][0]["looser"] is True
    kept = run(*compare(place), "--gate", tmp_path / "new.toml", "--ledger", tmp_path / "l",
               "--json")  # fmt: skip
    assert told in json.loads(kept.stdout)["candidates"][0]["gate"]["changes"][0]


def test_61_the_sign_of_a_small_change_is_undecided(tmp_path: Path) -> None:
    """120 paired positions and 3 flips: R = 117/120, far from deciding `at least 0.97`."""
    weight = head_weight()
    made = make_trace(tmp_path / "code.trace.safetensors", weight, sequences=12, length=10)
    trace = read_trace(made)
    write_head(tmp_path / "ref.safetensors", weight)
    proposal = trace.oracle.clone()
    proposal[[5, 47, 88]] = (proposal[[5, 47, 88]] + 1) % V
    meta = {"trace_sha256": trace.sha256 or ""}
    save_file({"proposal": proposal}, tmp_path / "cand.safetensors", metadata=meta)
    (tmp_path / "p.toml").write_text('name = "p"\n' + limit(measure="retention", minimum=0.97))
    args = ["compare", tmp_path / "ref.safetensors", tmp_path / "cand.safetensors", "--trace", made,
            "--gate", tmp_path / "p.toml", "--ledger", tmp_path / "ledger", "--json"]  # fmt: skip
    done = run(*args)
    assert done.exit_code == 3, done.output
    result = json.loads(done.stdout)["candidates"][0]["gate"]["limits"][1]
    assert result["value"] == pytest.approx(117 / 120) and result["outcome"] == "undecided"
    distance, reach = result["value"] - 0.97, result["value"] - result["low"]
    assert result["positions_needed"] == pytest.approx(120 * (reach / distance) ** 2, rel=0.01)
    assert result["positions_needed"] > 1000


def test_63_stale_evidence_fails_and_changed_evidence_is_refused(
    place: Path, tmp_path: Path
) -> None:
    fresh = tmp_path / "fresh.toml"
    fresh.write_text('name = "fresh"\n' + require(run_age_days=30))
    found = json.loads(run_json(latest(place)))
    for created, code in ((found["provenance"]["created"], 0), ("2020-01-01T00:00:00Z", 1)):
        update = {"provenance": found["provenance"] | {"created": created}}
        path = changed(place, tmp_path / "run.json", **update)
        done = run("gate", path, "--policy", fresh)
        assert done.exit_code == code and ("stale evidence" in done.output) == bool(code)
    # A number bettered by hand no longer gives the run's id.
    text = run_json(latest(place))
    value = next(
        e["value"] for e in found["candidates"][0]["estimates"] if e["measure"] == "retention"
    )
    (tmp_path / "run.json").write_text(text.replace(repr(value), "0.999"))
    done = run("gate", tmp_path / "run.json", "--policy", place / "pass.toml")
    assert done.exit_code == 2 and "its content no longer gives its id" in done.output


def test_several_candidates_the_worst_decides(tmp_path: Path) -> None:
    weight = head_weight()
    write_head(tmp_path / "ref.safetensors", weight)
    for name, noise in (("near", 1e-4), ("far", 1.0)):
        write_head(tmp_path / f"{name}.safetensors", weight + noise * head_weight(5))
    made = make_trace(tmp_path / "code.trace.safetensors", weight)
    (tmp_path / "p.toml").write_text('name = "p"\n' + limit(measure="retention", minimum=0.9))
    base = ["--trace", made, "--gate", tmp_path / "p.toml", "--ledger", tmp_path / "l", "--json"]
    ref, near, far = (tmp_path / f"{name}.safetensors" for name in ("ref", "near", "far"))
    for heads, code in (((near,), 0), ((far,), 1), ((near, far), 1), ((far, near), 1)):
        done = run("compare", ref, *heads, *base)
        assert done.exit_code == code
        outcomes = [c["gate"]["outcome"] for c in json.loads(done.stdout)["candidates"]]
        assert outcomes == ["pass" if head is near else "fail" for head in heads]


# ---- token classes and controls of a real run


def test_the_classes_of_a_real_run_are_those_of_its_text(place: Path) -> None:
    """Against the tokenizers library and a count over the Parquet table."""
    found = latest(place)
    table = open_ledger(place / "ledger").load_positions(found)
    tokenizer = Tokenizer.from_file(str(SAMPLE / "model/tokenizer.json"))
    assert table["oracle_class"].notna().all()
    for row in table.sample(300, random_state=0).itertuples():
        text = tokenizer.decode([row.oracle], skip_special_tokens=False)
        if row.oracle_class == "whitespace":
            assert text.isspace()
        if row.oracle_class == "digit":
            assert any(c.isdigit() for c in text) and not any(c.isalpha() for c in text)
        if row.oracle_class == "latin":
            assert any(c.isalpha() for c in text) and "_" not in text
    estimates = [e for e in found.candidates[0].estimates if e.token_class and e.corpus]
    assert {e.token_class for e in estimates} == set(table["oracle_class"])
    for e in estimates:
        own = table[table["oracle_class"] == e.token_class]
        values = {
            "disagreement": own["disagree"].mean(),
            "acceptance_ref": own["ref_accepts"].mean(),
            "acceptance_cand": own["cand_accepts"].mean(),
            "retention": own["cand_accepts"].sum() / max(1, own["ref_accepts"].sum()),
            "vocabulary_ceiling": own["oracle_in_vocabulary"].mean(),
        }
        assert e.positions == len(own)
        if e.value is not None:
            assert e.value == pytest.approx(values[e.measure])
    shown = run("show", "latest", "--ledger", place / "ledger").stdout
    assert "vocabulary ceiling domain shift: " in shown


def test_a_class_limit_on_a_real_run(place: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for keys, code in (
        ({"token_class": "punctuation", "minimum": 0.9}, 0),
        ({"token_class": "han", "minimum": 0.1}, 1),
    ):
        path.write_text('name = "p"\n' + limit(measure="vocabulary_ceiling", **keys))
        done = run("gate", "latest", "--policy", path, "--ledger", place / "ledger")
        assert done.exit_code == code, done.output
    assert "no position of class han" in done.output


def test_a_foreign_tokenizer_beside_the_reference_gives_no_classes(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(SAMPLE / "model", model)
    words = json.loads((model / "tokenizer.json").read_text())
    vocab = words["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]
    (model / "tokenizer.json").write_text(json.dumps(words))
    (tmp_path / "ranks.txt").write_text("\n".join(map(str, range(2500))))
    done = run("compare", model, "--trim", tmp_path / "ranks.txt", "--head", "lm", "--trace",
               GERMAN, "--force", "--no-record", "--json", "--ledger", tmp_path / "l")  # fmt: skip
    found = json.loads(done.stdout)
    assert "TOKENIZER_DIFFERS" in {one["code"] for one in found["preflight"]}
    assert not [e for e in found["candidates"][0]["estimates"] if e["token_class"]]


def test_the_catalogue_names_the_controls_that_run(place: Path) -> None:
    names = [control.name for control in latest(place).controls]
    assert tuple(dict.fromkeys(names)) == CONTROLS


# ---- audit policy


def test_policy_init_check_and_json(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    printed = run("policy", "init")
    done = run("policy", "init", "-o", path)
    assert done.exit_code == printed.exit_code == 0 and path.read_text() == printed.stdout
    assert run("policy", "init", "-o", path).exit_code == 2
    done = run("policy", "check", path)
    assert done.exit_code == 0 and "retention R at least 97.0 % on every corpus" in done.stdout
    as_json = json.loads(run("policy", "check", path, "--json").stdout)
    assert as_json["limit"][0]["minimum"] == 0.97 and as_json["sha256"]
    assert json.loads(run("policy", "init", "--json").stdout)["name"] == "draft head release"
    assert run("gate", "--policy", path, "--selftest", "-q").exit_code == 0
    bad = run("policy", "check", tmp_path / "none.toml", "--json")
    assert bad.exit_code == 2 and json.loads(bad.stdout)["error"]["kind"] == "not_found"


def test_strange_names_reach_no_terminal(place: Path, tmp_path: Path) -> None:
    """A policy comes from strangers too."""
    path = tmp_path / "p.toml"
    path.write_text('name = "\\u202ep"\n' + LIMITS["fail"])
    assert run("policy", "check", path).exit_code == 2
    path.write_text('name = "p"\n' + limit(measure="retention", minimum=0.9, reason="a\nb"))
    done = run("policy", "check", path)
    assert done.exit_code == 0 and "a↵b" in done.stdout


def test_what_a_run_says_is_never_obeyed(place: Path, tmp_path: Path) -> None:
    found = json.loads(changed(place, tmp_path / "run.json").read_text())
    for one in found["candidates"][0]["estimates"]:
        one |= {"value": None, "low": None, "high": None, "reason": "\x1b[31mall is well\u202e"}
    (tmp_path / "run.json").write_text(json.dumps(found))
    done = run("gate", tmp_path / "run.json", "--policy", place / "pass.toml")
    assert done.exit_code == 1 and "\\u001b[31mall is well\\u202e" in done.stdout
    assert "\x1b" not in done.stdout and "\u202e" not in done.stdout


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No ledger or traces of the machine that runs the tests."""
    for name in ("AUDIT_LEDGER", "AUDIT_TRACES"):
        monkeypatch.delenv(name, raising=False)
    yield


def test_the_gates_answer_its_policy_and_waivers_go_through_the_ledger(
    place: Path, tmp_path: Path
) -> None:
    """An answer is appended with the policy's text; a waiver that the ledger holds lifts a
    failure for its own head; a document that lies elsewhere leaves nothing behind."""
    ledger = tmp_path / "ledger"
    shutil.copytree(place / "ledger", ledger)
    kept = open_ledger(ledger)
    found = kept.load_run("latest")
    head, before = found.candidates[0].head.sha256, len(kept.judgements_of(found.run))
    words = ("gate", "latest", "--policy", place / "fail.toml", "--ledger", ledger)
    assert (
        run(*words, "--no-record").exit_code == 1 and len(kept.judgements_of(found.run)) == before
    )
    assert run(*words).exit_code == 1
    answer = kept.judgements_of(found.run)[-1]
    assert (answer.head_sha256, answer.gate.outcome) == (head, "fail")
    text = (place / "fail.toml").read_text()
    assert kept.policy_text(answer.gate.policy.sha256) == text
    for name in {one.limit for one in answer.gate.limits if one.outcome != "pass"}:
        done = run("waive", head, "--limit", name, "--reason", "known", "--who", "me",
                   "--expires", "2999-01-01", "--ledger", ledger)  # fmt: skip
        assert done.exit_code == 0, done.output
    assert run(*words).exit_code == 0
    assert kept.judgements_of(found.run)[-1].gate.outcome == "pass"
