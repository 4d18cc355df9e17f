"""Calibrations and policies: the newest counts, older ledgers are read, changes are noticed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from audit.errors import NotFoundError, UnreadableError
from audit.ledger import Ledger, open_ledger
from tests.ledger.made import POLICY, a_calibration


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_ledger(tmp_path)


def test_the_newest_calibration_of_a_reference_counts(ledger: Ledger, tmp_path: Path) -> None:
    first, second = a_calibration(), a_calibration(corpus="other")
    other = a_calibration("e" * 63 + "f")
    for calibration in (first, second):
        ledger.save_calibration(calibration)
    assert len(list((tmp_path / "calibrations").iterdir())) == 2
    for path in (tmp_path / "calibrations").iterdir():
        os.utime(path, (0, 0))
    ledger.save_calibration(first)
    assert ledger.load_calibration("e" * 64) == first
    assert ledger.load_calibration("d" * 64) is None
    assert ledger.load_calibration("e" * 64, second.traces) == second
    assert ledger.load_calibration("e" * 64, first.traces) == first
    assert ledger.load_calibration("e" * 64, first.traces | second.traces) == first
    assert other.reference[:16] == first.reference[:16]


def test_a_calibration_of_an_older_ledger(ledger: Ledger, tmp_path: Path) -> None:
    made = a_calibration()
    name = ledger.save_calibration(made)
    path = tmp_path / "calibrations" / f"{name}.json"
    path.rename(path.with_name(f"{'e' * 16}.json"))
    (tmp_path / "calibrations" / "notes.txt").write_text("x")
    assert ledger.load_calibration("e" * 64) == made


def test_changed_calibrations(ledger: Ledger, tmp_path: Path) -> None:
    name = ledger.save_calibration(a_calibration())
    path = tmp_path / "calibrations" / f"{name}.json"
    text = path.read_text()
    for content, words in (
        (text.replace("0.5", "0.9"), "no longer gives its name"),
        (text.replace("e" * 64, "f" * 64), "another reference"),
        ("{", "can not be read"),
    ):
        path.write_text(content)
        with pytest.raises(UnreadableError, match=words):
            ledger.load_calibration("e" * 64)


def test_policies(ledger: Ledger, tmp_path: Path) -> None:
    text = POLICY + "# für später\r\n"
    sha256 = ledger.save_policy(text)
    assert ledger.save_policy(text) == sha256 and ledger.policy_text(sha256) == text
    path = tmp_path / "policies" / f"{sha256}.toml"
    assert path.read_bytes().decode() == text
    path.write_text(text + " ")
    with pytest.raises(UnreadableError, match="no longer gives its name"):
        ledger.policy_text(sha256)
    for unknown in ("0" * 64, "", "../ledger-id", sha256[:8]):
        with pytest.raises(NotFoundError, match="no policy"):
            ledger.policy_text(unknown)
