"""Time the dashboard's pages over a made-up ledger: the issue's size is 50 runs, 200,000 positions.

    PYTHONPATH=. python benchmarks/dashboard.py
    PYTHONPATH=. python benchmarks/dashboard.py --runs 10 --positions 20000

Each page runs in Streamlit's own test harness, in this process: first with empty caches, then as
after a click. The target is two seconds after a click, on two cores; what the browser needs to
draw comes on top.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import click

_CANDIDATE = "7" * 12


@click.command()
@click.option("--runs", default=50, show_default=True)
@click.option("--positions", default=200_000, show_default=True)
def main(runs: int, positions: int) -> None:
    """Print seconds per page, first and again."""
    from tests.dashboard.made import large_ledger

    with tempfile.TemporaryDirectory() as folder:
        ledger = large_ledger(Path(folder) / "ledger", runs, positions)
        os.environ["AUDIT_LEDGER"] = ledger.where
        newest = ledger.resolve_id("latest")
        head = {"run": newest, "cand": _CANDIDATE}
        both = [f"{newest}.{digit * 12}" for digit in "78"]
        pages: dict[str, tuple[str, dict[str, str | list[str]]]] = {
            "Heads": ("heads", {"review": "all"}),
            "Head, evidence": ("head", {**head}),
            "Head, by corpus": ("head", {**head, "view": "By corpus"}),
            "Head, distributions": ("head", {**head, "view": "Distributions"}),
            "Compare": ("compare", {"head": both}),
            "Tokens": ("tokens", {**head}),
            "Tokens, filtered": ("tokens", {**head, "corpus": "german", "class": "digit"}),
            "Methods": ("methods", {}),
        }
        for title, (name, query) in pages.items():
            first, again = _time(name, query)
            click.echo(f"{title:<20}  first {first:5.2f} s  again {again:5.2f} s")


def _time(name: str, query: dict[str, str | list[str]]) -> tuple[float, float]:
    import streamlit as st
    from streamlit.testing.v1 import AppTest

    st.cache_data.clear()
    app = Path(__file__).resolve().parents[1] / "app.py"
    at = AppTest.from_file(str(app), default_timeout=60)
    if name != "heads":
        at.switch_page(f"audit/dashboard/pages/{name}.py")
    for key, value in query.items():
        at.query_params[key] = value
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        at.run()
        seconds.append(time.perf_counter() - start)
        if at.exception:
            raise click.ClickException(f"{name}: {at.exception[0].value}")
    return seconds[0], min(seconds[1:])


if __name__ == "__main__":
    main()
