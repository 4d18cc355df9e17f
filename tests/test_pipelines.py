"""The pipeline examples, run as a runner would: their own commands, in a repository of theirs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner

from audit.cli.main import group

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "pipelines"
POLICY = """
name = "release"
[[limit]]
name = "keeps"
measure = "retention"
minimum = {minimum}
over = "register"
reason = "speed"
date = 2026-01-15
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples expect: a model, traces, a candidate."""
    place = tmp_path_factory.mktemp("repository")
    sample = ROOT / "audit" / "sample"
    (place / "model").symlink_to(sample / "model")
    (place / "traces").mkdir()
    name = "python-code.trace.safetensors"
    (place / "traces" / name).symlink_to(sample / "traces" / name)
    made = CliRunner().invoke(
        group,
        ["forge", str(sample / "model"), "--head", "mtp", "--cut", "prune:0.25", "-o",
         str(place / "cand.safetensors"), "-qq"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    return place


@pytest.fixture
def place(repository: Path, tmp_path: Path) -> Path:
    shutil.copytree(repository, tmp_path / "r", symlinks=True)
    return tmp_path / "r"


def sh(place: Path, command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in a shell that finds `audit`, and stops at the first one that fails."""
    (place / "bin").mkdir(exist_ok=True)
    script = place / "bin" / "audit"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m audit "$@"\n')
    script.chmod(0o755)
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)} | more
    return subprocess.run(
        ["bash", "-ec", command], cwd=place, env=env, text=True, capture_output=True, check=False
    )


@pytest.mark.parametrize(("minimum", "code"), [(0.5, 0), (0.99, 1)])
def test_the_github_workflow(place: Path, minimum: float, code: int) -> None:
    (place / "policy.toml").write_text(POLICY.format(minimum=minimum))
    workflow = yaml.safe_load((EXAMPLES / "github.yml").read_text())
    steps = [step for step in workflow["jobs"]["gate"]["steps"] if "run" in step]
    assert [step["name"] for step in steps] == [
        "install", "prove that the policy can fail", "gate", "report",
    ]  # fmt: skip
    proved, gated = (sh(place, step["run"]) for step in steps[1:3])
    assert proved.returncode == 0, proved.stderr
    assert gated.returncode == code, gated.stdout + gated.stderr
    summary = place / "summary.md"
    done = sh(place, steps[3]["run"], GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stderr
    failures = ElementTree.parse(place / "audit.xml").getroot().iter("failure")
    assert len(list(failures)) == code and "keeps" in summary.read_text()


def test_the_gitlab_job(place: Path) -> None:
    (place / "policy.toml").write_text(POLICY.format(minimum=0.5))
    job = yaml.safe_load((EXAMPLES / "gitlab.yml").read_text())["draft-head"]
    for command in (*job["script"], *job["after_script"]):
        done = sh(place, command)
        assert done.returncode == 0, done.stderr
    for path in (job["artifacts"]["reports"]["junit"], *job["artifacts"]["paths"]):
        assert (place / path).exists()


@pytest.mark.parametrize(("minimum", "code"), [(0.5, 0), (0.99, 2)])
def test_the_make_target(place: Path, minimum: float, code: int) -> None:
    """make says 2 for whatever failed in it."""
    (place / "policy.toml").write_text(POLICY.format(minimum=minimum))
    shutil.copy(EXAMPLES / "Makefile", place)
    assert sh(place, "make gate").returncode == code


@pytest.mark.parametrize(("minimum", "code"), [(0.5, 0), (0.99, 1)])
def test_the_python_snippet(place: Path, minimum: float, code: int) -> None:
    (place / "policy.toml").write_text(POLICY.format(minimum=minimum))
    done = sh(place, f"{shlex.quote(sys.executable)} {EXAMPLES / 'gate.py'} cand.safetensors")
    assert done.returncode == code, done.stderr
    told = "fail: " if code else "pass: 2 of 2 limits hold"
    assert told in done.stdout
    missing = sh(place, f"{shlex.quote(sys.executable)} {EXAMPLES / 'gate.py'} nothere.gguf")
    assert missing.returncode == 1 and "nothere.gguf" in missing.stderr
