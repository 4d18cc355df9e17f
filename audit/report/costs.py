"""`audit cost` on a terminal. Imports no torch; nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from audit.report.terminal import rows
from audit.report.wording import clean

if TYPE_CHECKING:
    from audit.cost.records import CostResult, HeadCost, Measurement, Scenario, Worth

_GB = 1e9
_DASH = "–"


def show_cost(result: CostResult, console: Console, *, quiet: bool) -> None:
    """Bytes, what each head is worth, measurements, and always the assumptions."""
    _show_bytes(result, console)
    for scenario in result.scenarios:
        show_worth(scenario, console)
    if result.scenarios and not quiet:
        _show_sweep(result.scenarios[0], console)
    if result.measured:
        _show_measured(result.measured, result.scenarios, console)
    for note in result.notes:
        _say(console, f"note: {note}")
    show_assumptions(result.assumptions, console)


def show_assumptions(assumptions: Sequence[str], console: Console) -> None:
    """They stand under every table of a model."""
    for said in assumptions:
        _say(console, f"assumed: {said}")


def worth_sentence(one: Worth) -> str:
    """What a head is worth, in one sentence."""
    if one.tokens_per_second is None or one.against_plain is None:
        return f"{one.head}: {one.reason or 'not known'}"
    pays = "pays" if one.against_plain > 1 else "does not pay"
    told = f"{one.head}: {pays} against plain decoding ({_times(one.against_plain)})"
    if one.against_ref is not None:
        better = "faster" if one.against_ref > 1 else "no faster"
        told += f", {better} than with the reference ({_times(one.against_ref)})"
    return told


def _show_bytes(result: CostResult, console: Console) -> None:
    header = ("bytes per draft step", "type", "block", "projection", "map", "together", "of REF",
              "rows", "row ratio")  # fmt: skip
    rows(console, header, [_bytes_line(head) for head in result.heads])
    if result.verifier:
        one = result.verifier
        experts = f", routed experts {_gb(one.expert_bytes)}" if one.expert_bytes else ""
        _say(
            console,
            f"target {one.name}: {_gb(one.weight_bytes)} per step{experts}, KV cache "
            f"{one.kv_bytes_per_token:,} bytes per token, {_gb(one.kv_bytes)} per user here",
        )


def _bytes_line(head: HeadCost) -> list[str]:
    return [
        clean(head.name), clean(head.encoding), _gb(head.block_bytes), _gb(head.projection_bytes),
        _gb(head.map_bytes), _gb(head.bytes_per_step), f"{100 * head.bytes_ratio:.1f} %",
        f"{head.rows:,}", f"1 : {head.row_ratio:.3f}",
    ]  # fmt: skip


def show_worth(scenario: Scenario, console: Console) -> None:
    """One text: every head's round, and a sentence for each."""
    first = scenario.worth[0]
    _say(console, "")
    _say(
        console,
        f"{scenario.name}: K = {first.slots}, context {first.context:,}, "
        f"users {first.users:,}; acceptance {scenario.source}",
    )
    rows(console, _HEADER, [_worth_line(one) for one in scenario.worth])
    for one in scenario.worth:
        _say(console, f"  {worth_sentence(one)}")


_HEADER = (
    "model, not measured", "acceptance", "tokens/round", "draft ms", "verify ms", "round ms",
    "tokens/s", "× plain", "× REF", "break-even", "margin", "against REF", "margin",
)  # fmt: skip


def _worth_line(one: Worth) -> list[str]:
    return [
        clean(one.head), _share(one.acceptance), _fixed(one.tokens_per_round, 3),
        _fixed(one.draft_ms, 3), _fixed(one.verify_ms, 3), _fixed(one.round_ms, 3),
        _fixed(one.tokens_per_second, 1), _fixed(one.against_plain, 3), _fixed(one.against_ref, 3),
        _share(one.break_even_acceptance), _points(one.break_even_margin),
        _share(one.break_even_against_ref), _points(one.margin_against_ref),
    ]  # fmt: skip


def _show_sweep(scenario: Scenario, console: Console) -> None:
    """One of K, context and users changed at a time."""
    if not scenario.sweep:
        return
    _say(console, "")
    _say(console, f"{scenario.name}: one thing changed at a time")
    header = ("head", "K", "context", "users", "tokens/s", "× plain", "× REF", "margin")
    lines = [
        [
            clean(one.head), f"{one.slots}", f"{one.context:,}", f"{one.users:,}",
            _fixed(one.tokens_per_second, 1), _fixed(one.against_plain, 3),
            _fixed(one.against_ref, 3), _points(one.break_even_margin),
        ]
        for one in scenario.sweep
    ]  # fmt: skip
    rows(console, header, lines)


def _show_measured(
    measured: Sequence[Measurement], scenarios: Sequence[Scenario], console: Console
) -> None:
    """An engine's own figures, with the model's of each text beside them."""
    _say(console, "")
    header = ("measured by the engine", "engine", "with", "without", "×", "runs", "model ×")
    lines = []
    for one in measured:
        modelled = [
            f"{scenario.name} {_fixed(worth.against_plain, 3)}"
            for scenario in scenarios
            for worth in scenario.worth
            if worth.head == one.head
        ]
        lines.append(
            [
                clean(one.head), clean(one.engine or _DASH), f"{one.tokens_per_second:.1f}",
                f"{one.plain_tokens_per_second:.1f}", _fixed(one.speedup, 3), f"{one.runs:,}",
                clean(", ".join(modelled) or _DASH),
            ]
        )  # fmt: skip
    rows(console, header, lines)


def _gb(value: int) -> str:
    """Decimal, as bandwidths are."""
    if value < 1e5:
        return f"{value:,} B"
    return f"{value / _GB:.3f} GB" if value >= 1e8 else f"{value / 1e6:.2f} MB"


def _share(value: float | None) -> str:
    return _DASH if value is None else f"{100 * value:.1f} %"


def _points(value: float | None) -> str:
    return _DASH if value is None else f"{100 * value:+.1f} pt"


def _fixed(value: float | None, digits: int) -> str:
    return _DASH if value is None else f"{value:,.{digits}f}"


def _times(value: float) -> str:
    return f"{value:.3f} times its rate"


def _say(console: Console, text: str) -> None:
    console.print(clean(text), soft_wrap=True)
