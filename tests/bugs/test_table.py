"""Every reported fault has an answer and a test."""

from __future__ import annotations

import re
from pathlib import Path

import audit
from tests.bugs.table import ENTRIES, NO_TEST, NUMBERS

HERE = Path(__file__).parent
ALL = [number for section in NUMBERS.values() for number in section]


def numbers_by_section() -> dict[str, set[int]]:
    """Section -> numbers in the names of its files' tests."""
    found: dict[str, set[int]] = {}
    for path in HERE.glob("test_?_*.py"):
        section = path.name[5].upper()
        names = re.findall(r"^def test_bug_(\d\d)_\w+", path.read_text(), re.MULTILINE)
        found.setdefault(section, set()).update(map(int, names))
    return found


def test_every_entry_has_a_test_in_its_sections_file() -> None:
    found = numbers_by_section()
    assert {s: found[s] | (set(NO_TEST) & set(n)) for s, n in NUMBERS.items()} == {
        section: set(numbers) for section, numbers in NUMBERS.items()
    }
    assert not set(NO_TEST) & set().union(*found.values())


def test_every_entry_has_a_code_or_a_reason() -> None:
    assert list(ENTRIES) == ALL and len(ALL) == len(set(ALL)) == 46
    assert all(bool(entry.codes) != bool(entry.reason) for entry in ENTRIES.values())


def test_every_code_is_one_that_the_product_gives() -> None:
    text = "\n".join(path.read_text() for path in Path(audit.__file__).parent.rglob("*.py"))
    codes = {code for entry in ENTRIES.values() for code in entry.codes}
    missing = {code for code in codes if not re.search(rf'["\'\b]{code}["\':]', text)}
    assert not missing
