"""docs/formats.md is what the registry says."""

from __future__ import annotations

import runpy
from pathlib import Path

from audit.heads.packed import FORMATS

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_is_up_to_date() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "formats_table.py"))
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert text == tool["table"](), "run: python tools/formats_table.py"
    assert all(f"| {form.name} |" in text for form in FORMATS)
