"""The commands on the ledger, end to end: what they print, also as JSON and CSV; exit codes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from audit.cli import main
from audit.ledger import Ledger, open_ledger
from tests.ledger.made import (
    POLICY,
    TABLE,
    a_candidate,
    a_gate,
    a_run,
    a_table,
    a_trace,
    a_waiver,
)

Audit = Callable[..., "Ran"]


class Ran:
    """What a command left: its exit code, its output."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        assert "Traceback" not in err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def audit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Audit:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Ran:
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        assert isinstance(stop.value.code, int)
        return Ran(stop.value.code, *capsys.readouterr())

    return run


def refused(audit: Audit, words: str, *args: str) -> dict[str, str]:
    """Exit 2, in text on stderr alone and in JSON as the one document on stdout."""
    plain = audit(*args)
    assert (plain.code, plain.out) == (2, "") and words in plain.err
    document = audit(*args, "--json")
    assert document.code == 2 and document.err == ""
    error = document.json["error"]
    assert set(error) == {"kind", "message", "hint", "where"} and words in error["message"]
    return error


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """In the place where the commands look by themselves."""
    monkeypatch.chdir(tmp_path)
    return open_ledger()


def save(ledger: Ledger, seed: int, *candidates: Any, **more: Any) -> str:
    return ledger.save_run(a_run(seed, *candidates, **more), [TABLE]).run


def judge(ledger: Ledger, run: str, gate: Any, head: str = "c" * 64) -> None:
    policy = ledger.save_policy(POLICY)
    record = gate.policy.model_copy(update={"sha256": policy})
    ledger.add_judgement(run, head, gate.model_copy(update={"policy": record}))


# audit runs


def test_runs_of_an_empty_ledger(audit: Audit, tmp_path: Path) -> None:
    shown = audit("runs")
    assert shown.code == 0 and "holds no runs · make one: audit compare" in shown.out
    document = audit("runs", "--json").json
    assert document["runs"] == [] and document["counts"]["runs"] == 0
    assert audit("runs", "--csv").out.splitlines()[1:] == [] and list(tmp_path.iterdir()) == []


def test_runs_as_text_json_and_csv(audit: Audit, ledger: Ledger) -> None:
    gate = a_gate("fail", ("worst", "fail", None))
    first = save(ledger, 0, a_candidate("q4", retention={"de": 0.9}), traces=(a_trace("de"),))
    second = save(
        ledger, 1, a_candidate("=cmd()", "d" * 64, "function"), a_candidate("x\x1b[31m", "e" * 64),
        created="2026-02-01T00:00:00Z",
    )  # fmt: skip
    judge(ledger, first, gate)
    shown = audit("runs")
    assert shown.code == 0 and "\x1b" not in shown.out and "x\\u001b[31m" in shown.out
    lines = shown.out.splitlines()
    assert lines[1].startswith(second) and lines[2].startswith(" ") and lines[3].startswith(first)
    assert lines[3].split()[3:9] == ["q4", "undecided", "fail", "90.0", "%", "de"]
    assert lines[-1] == "1 to 2 of 2 that fit · 2 runs in the ledger · next: audit show RUN"
    document = audit("runs", "--json", "-n", "1").json
    assert set(document) == {"as_of", "counts", "runs", "truncated", "unreadable"}
    assert document["truncated"] and [run["run"] for run in document["runs"]] == [second]
    assert document["counts"] == {
        "runs": 2, "matching": 2, "unreadable": 0, "verdicts": {"undecided": 2, "function": 1},
        "gates": {"fail": 1, "none": 2}, "decisions": {"none": 3},
    }  # fmt: skip
    assert {run["candidates"][0]["gate"] for run in document["runs"]} == {None}
    table = list(csv.DictReader(io.StringIO(audit("runs", "--csv").out)))
    assert [row["candidate"] for row in table] == ["'=cmd()", "x\\u001b[31m", "q4"]
    assert (table[2]["run"], table[2]["gate"], table[2]["worst_retention"]) == (
        first,
        "fail",
        "0.9",
    )
    assert table[0]["gate"] == "" and table[2]["corpora"] == "de" and table[2]["reviews"] == "0"
    only = audit("runs", "--gate", "fail", "--json").json
    assert [run["run"] for run in only["runs"]] == [first] and only["counts"]["matching"] == 1
    assert "none of 0 that fit" in audit("runs", "--verdict", "identical").out
    assert audit("runs", "-qq").out == ""


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        (("--since", "2026-01-02"), [2, 1]), (("--until", "2026-01-02"), [1, 0]),
        (("--since", "2026-01-02T12:00:00Z", "--until", "2026-01-02T14:00:00+02:00"), [1]),
        (("--head", "Q"), [2, 1, 0]), (("--head-hash", "CC"), [2, 1, 0]),
        (("--reference", "nope"), []), (("--unreviewed",), [2, 1, 0]), (("--reviewed",), []),
        (("--offset", "1", "-n", "1"), [1]),
    ],
)  # fmt: skip
def test_filters_of_runs(
    audit: Audit, ledger: Ledger, options: tuple[str, ...], seeds: list[int]
) -> None:
    ids = [
        save(ledger, seed, a_candidate("q"), created=f"2026-01-0{seed + 1}T12:00:00Z")
        for seed in range(3)
    ]
    found = audit("runs", *options, "--json").json
    assert [run["run"] for run in found["runs"]] == [ids[seed] for seed in seeds]


def test_bad_options_of_runs(audit: Audit) -> None:
    for args, words in (
        (("--since", "yesterday"), "'yesterday' is no day"), (("-n", "0"), "-n"),
        (("--gate", "maybe"), "maybe"), (("--verdict", "x"), "x"),
    ):  # fmt: skip
        refused(audit, words, "runs", *args)
    assert audit("runs", "--csv", "--json").json["error"]["message"].startswith("--csv and --json")


def test_runs_that_can_not_be_read_are_told(audit: Audit, ledger: Ledger, tmp_path: Path) -> None:
    ledger.files.save(a_run(), [TABLE])
    (name,) = ledger.run_ids()
    (tmp_path / "audit-ledger/runs" / name / "run.json").write_text("{")
    assert f"{name} can not be read: this is not a run" in audit("runs").out
    document = audit("runs", "--json").json
    assert [one["run"] for one in document["unreadable"]] == [name]
    assert document["counts"]["unreadable"] == 1 and document["runs"] == []


# audit show, audit review


def test_show_tells_what_was_said(audit: Audit, ledger: Ledger) -> None:
    run = save(ledger, 0)
    assert "judged" not in audit("show", run).out
    judge(ledger, run, a_gate("pass"))
    audit("review", run, "--decision", "accept", "--reason", "go", "--reviewer", "ada")
    shown = audit("show", "latest").out
    assert "pass: made up" in shown and "ada (unauthenticated)" in shown and "go" in shown
    assert audit("show", run, "--json").json == json.loads(
        (Path("audit-ledger/runs") / run / "run.json").read_text()
    )
    quiet = audit("show", run, "-q").out
    assert quiet == "cand: undecided: made up\n"


def test_review_of_what_passed(
    audit: Audit, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = save(ledger, 0)
    judge(ledger, run, a_gate("pass"))
    monkeypatch.setenv("AUDIT_REVIEWER", "grace")
    done = audit("review", run, "--decision", "accept", "--reason", "it passed")
    assert done.code == 0 and done.out.startswith("accept by grace (unauthenticated) recorded")
    document = audit("review", run, "--decision", "reject", "--reason", "x", "--json").json
    assert document["review"]["gate"] == "pass" and not document["review"]["authenticated"]
    listed = audit("review", run, "--json").json
    assert set(listed) == {"as_of", "run", "reviews", "judgements"}
    assert [one["decision"] for one in listed["reviews"]] == ["accept", "reject"]
    assert listed["judgements"][0]["gate"]["outcome"] == "pass"
    (row,) = audit("runs", "--reviewed", "--json").json["runs"]
    assert (row["candidates"][0]["decision"], row["candidates"][0]["reviews"]) == ("reject", 2)
    assert "reject by grace" in audit("runs").out


def test_reviews_are_listed_without_a_decision(audit: Audit, ledger: Ledger) -> None:
    run = save(ledger, 0)
    shown = audit("review", run)
    assert shown.code == 0 and f"run {run} was not reviewed" in shown.out
    for option in (("--reason", "x"), ("--waiver", "ab"), ("--candidate", "cand")):
        refused(audit, "belongs to a decision", "review", run, *option)


def test_accepting_what_failed_demands_waivers(audit: Audit, ledger: Ledger) -> None:
    run = save(ledger, 0)
    accept = ("review", run, "--decision", "accept", "--reason", "r", "--reviewer", "ada")
    refused(audit, "never judged", *accept)
    judge(ledger, run, a_gate("fail", ("worst", "fail", None), ("kl", "undecided", None)))
    error = refused(audit, "needs a waiver for worst, kl", *accept)
    assert "--waiver-limit worst --waiver-limit kl" in error["hint"]
    refused(audit, "belong together", *accept, "--waiver-limit", "worst")
    refused(audit, "belong together", *accept, "--expires", "2999-01-01")
    refused(audit, "no waiver 'ab'", *accept, "--waiver", "ab")
    waived = audit("waive", "cccc", "--limit", "kl", "--reason", "r", "--expires", "2999-01-01",
                   "--json").json["waiver"]  # fmt: skip
    given = ("--waiver", waived["id"][:8], "--waiver-limit", "worst", "--expires", "2999-01-01")
    done = audit(*accept, *given, "--json").json["review"]
    assert done["gate"] == "fail" and done["waivers"][0] == waived["id"]
    listed = audit("waivers", "--json").json
    assert [one["id"] for one in listed["waivers"]] == done["waivers"]
    assert [one["limit"] for one in listed["waivers"]] == ["kl", "worst"]


def test_which_candidate(audit: Audit, ledger: Ledger) -> None:
    run = save(ledger, 0, a_candidate("a", "a" * 64), a_candidate("b", "b" * 64))
    reject = ("review", run, "--decision", "reject", "--reason", "r")
    error = refused(audit, "has 2 candidates: a, b", *reject)
    assert "--candidate" in error["hint"]
    refused(audit, "no candidate 'c'", *reject, "--candidate", "c")
    for name, sha256 in (("b", "b" * 64), ("aaa", "a" * 64)):
        done = audit(*reject, "--candidate", name, "--json").json
        assert done["review"]["head_sha256"] == sha256
    refused(audit, "a decision needs a reason", *reject[:4])


# audit waive, audit waivers


def test_waivers(audit: Audit, ledger: Ledger) -> None:
    assert audit("waivers").out == "no waiver was ever given here\n"
    head = "f" * 64
    base = ("waive", head, "--limit", "worst", "--reason", "r", "--who", "ada", "--expires")
    done = audit(*base, "2999-12-31")
    assert done.code == 0 and "ffffffffffff may pass worst until 2999-12-31" in done.out
    refused(audit, "would have expired", *base, "2020-01-01")
    refused(audit, "'soon' is no day", *base, "soon")
    refused(audit, "no head 'fff'", "waive", "fff", *base[2:], "2999-01-01")
    for_controls = (*base[:3], "controls", *base[4:], "2999-01-01")
    refused(audit, "failed controls can not be waived", *for_controls)
    refused(audit, "Missing option", "waive", head, "--limit", "x")
    spent = a_waiver("old", "2026-01-01", "e" * 64)
    from audit.ledger import seal
    from audit.ledger.entries import append

    ledger.index.write(lambda connection: append(connection, seal(spent)))
    shown = audit("waivers").out
    assert "holds" in shown and "expired" in shown
    for options, limits in (
        ((), ["worst", "old"]), (("--active",), ["worst"]), (("--head-hash", "EE"), ["old"]),
        (("--active", "--head-hash", "ee"), []),
    ):  # fmt: skip
        listed = audit("waivers", *options, "--json").json
        assert [one["limit"] for one in listed["waivers"]] == limits
        assert listed["counts"] == {"waivers": 2, "in_force": 1, "matching": len(limits)}
    assert audit("waivers", "--head-hash", "99").out == "no waiver fits\n"


# audit diff


def compared(ledger: Ledger, seed: int, cand: list[int], sha256: str, **more: Any) -> str:
    """A run over eight sequences of five positions, all accepted by the reference."""
    table = a_table([1] * 40, cand, [1] * 40, [i // 5 for i in range(40)], corpus="de")
    traces = more.pop("traces", (a_trace("de"),))
    run = a_run(seed, a_candidate("cand", sha256), traces=traces, **more)
    return ledger.save_run(run, [table]).run


def test_diff(audit: Audit, ledger: Ledger) -> None:
    worse = compared(ledger, 0, [2, 1, 1, 1, 1] * 8, "4" * 64)
    better = compared(ledger, 0, [2] + [1] * 39, "8" * 64)
    shown = audit("diff", worse, better)
    assert shown.code == 0 and "candidate  4444444444444444  8888888888888888" in shown.out
    kept = next(line for line in shown.out.splitlines() if line.startswith("retention"))
    assert kept.split()[2:8] == ["de", "80.0", "%", "97.5", "%", "+17.50"]
    assert f"domain shift: cand in {better} keeps more, +17.50 pt" in shown.out
    document = audit("diff", worse, better, "--json", "--resamples", "500").json
    assert set(document) == {"a", "b", "inputs", "differences", "notes"}
    assert document["inputs"] == [{"what": "candidate", "a": "4" * 64, "b": "8" * 64}]
    values = {one["measure"]: one for one in document["differences"] if one["corpus"] == "de"}
    assert values["retention"]["value"] == pytest.approx(0.175) and values["retention"]["low"] > 0
    assert (values["acceptance_cand"]["only_a"], values["acceptance_cand"]["only_b"]) == (0, 7)
    same = audit("diff", worse, worse)
    assert same.code == 0 and "the inputs are the same" in same.out
    assert "no difference is shown, 0.00 pt" in same.out
    assert audit("diff", worse, better, "-q").out.count("\n") == 1


def test_diff_refuses_what_is_not_comparable(audit: Audit, ledger: Ledger) -> None:
    cand = [2] + [1] * 39
    base = compared(ledger, 0, cand, "4" * 64)
    moved = compared(ledger, 0, cand, "8" * 64, traces=(a_trace("de", "5" * 64),))
    other = compared(ledger, 0, cand, "8" * 64, traces=(a_trace("fr"),))
    shown = audit("diff", base, moved)
    assert shown.code == 2 and "trace de" in shown.out
    assert "the trace of de differs, tttttttttttttttt and 5555555555555555" in shown.err
    error = audit("diff", base, moved, "--json")
    assert error.code == 2 and error.json["error"]["kind"] == "mismatch"
    assert audit("diff", base, other, "--json").json["error"]["message"].endswith("no corpus")
    refused(audit, "fr is not in both", "diff", base, base, "-q", "--corpus", "fr")
    refused(audit, "twice at most", "diff", base, base, *(["--candidate", "cand"] * 3))
    refused(audit, "no candidate 'x'", "diff", base, base, "--candidate", "x")
    refused(audit, "there is no run 'zz'", "diff", base, "zz")


def test_diff_of_two_candidates_of_one_run(audit: Audit, ledger: Ledger) -> None:
    sequence = [i // 5 for i in range(40)]
    tables = [
        a_table([1] * 40, cand, [1] * 40, sequence, corpus="de", candidate=name)
        for name, cand in (("q4", [2] + [1] * 39), ("q8", [1] * 40))
    ]
    run = a_run(
        0, a_candidate("q4", "4" * 64), a_candidate("q8", "8" * 64), traces=(a_trace("de"),)
    )
    name = ledger.save_run(run, tables).run
    refused(audit, "has 2 candidates", "diff", name, name)
    both = ("--candidate", "q4", "--candidate", "q8")
    assert "domain shift: no difference is shown, +2.50 pt" in audit("diff", name, name, *both).out
    one = audit("diff", name, name, "--candidate", "q8", "--json").json
    assert {side["candidate"] for side in (one["a"], one["b"])} == {"q8"}


# audit ledger


def test_ledger_info(audit: Audit, ledger: Ledger) -> None:
    run = save(ledger, 0)
    shown = audit("ledger", "info")
    assert shown.code == 0 and "1 run" in shown.out and run in shown.out
    document = audit("ledger", "info", "--json").json
    assert document["counts"]["runs"] == 1 and document["schema_version"] == 1
    assert document["journal"] == "wal" and document["newest"] == run
    assert document["database"].endswith("index.sqlite")


def test_ledger_verify(audit: Audit, ledger: Ledger, tmp_path: Path) -> None:
    run = save(ledger, 0)
    done = audit("ledger", "verify")
    assert (done.code, done.out) == (0, "1 run: all as it was written\n")
    ledger.files.save(a_run(1), [TABLE])
    shown = audit("ledger", "verify")
    assert (
        shown.code == 2
        and "--repair mends it" in shown.out
        and "0 damages mended, 1 left" in shown.out
    )
    mended = audit("ledger", "verify", "--repair", "--json")
    assert mended.code == 0 and mended.json["sound"]
    assert [problem["repaired"] for problem in mended.json["problems"]] == [True]
    path = tmp_path / "audit-ledger/runs" / run / "positions.parquet"
    path.write_bytes(b"")
    broken = audit("ledger", "verify", "--repair", "--json")
    assert broken.code == 2 and not broken.json["sound"]
    assert broken.json["problems"][0]["where"] == str(path.relative_to(tmp_path))
    assert audit("ledger", "verify").out.endswith("1 left\n")


def test_ledger_needs_a_subcommand(audit: Audit) -> None:
    assert audit("ledger").code == 2
    assert audit("ledger", "nonsense", "--json").json["error"]["kind"] == "usage"
    assert audit("ledger", "verify", "--stale-after", "-1", "--json").code == 2


# All of them


@pytest.mark.parametrize(
    "args",
    [
        ("runs",), ("show", "latest"), ("diff", "latest", "latest"), ("review", "latest"),
        ("waivers",), ("ledger", "info"), ("ledger", "verify"),
        ("waive", "f" * 64, "--limit", "x", "--reason", "r", "--expires", "2999-01-01"),
    ],
    ids=lambda args: " ".join(args[:2]),
)  # fmt: skip
def test_a_database_that_can_not_be_used(
    audit: Audit, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: Any
) -> None:
    save(ledger, 0)
    for url, words in (
        (f"sqlite:///{tmp_path}", "unable to open"), ("mysql://x/y", "must be sqlite"),
    ):  # fmt: skip
        monkeypatch.setenv("AUDIT_DB_URL", url)
        refused(audit, words, *args)
    monkeypatch.setenv("AUDIT_DB_URL", f"sqlite:///{tmp_path}/newer.sqlite")
    other = open_ledger()
    other.check_writable()
    other.index.write(
        lambda c: c.execute(text("INSERT INTO schema_version VALUES (7, '2030-01-01')"))
    )
    refused(audit, "version 7, this program knows up to 1", *args)


def test_the_environment_names_the_ledger(
    audit: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    monkeypatch.setenv("AUDIT_LEDGER", str(tmp_path / "team"))
    monkeypatch.setenv("AUDIT_DB_URL", postgres_url)
    run = save(open_ledger(), 0)
    assert audit("runs", "--json").json["runs"][0]["run"] == run
    assert audit("ledger", "verify").code == 0
    info = audit("ledger", "info", "--json").json
    assert info["journal"] is None and info["database"].startswith("postgresql+psycopg://")
    assert not (tmp_path / "team/index.sqlite").exists()
    refused(audit, "another ledger", "runs", "--ledger", str(tmp_path / "mine"))
