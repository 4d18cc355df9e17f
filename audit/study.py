"""The study of one reference: make the yardsticks, audit them all, check every rule on them.

Yardsticks are cuts of known family, made in memory from the reference and run on the same traces.
They go through the very code that measures a candidate, a few at a time, so that memory stays at a
few heads. What comes out is the reference's *calibration*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from audit.anchor import check_anchor, settle_anchors
from audit.blocks import BlockHead
from audit.calibration import Calibration, Family, Yardstick
from audit.comparable import check_belonging
from audit.errors import BadUsageError
from audit.estimates import Facts, estimate_all
from audit.forge import Cut, block_moments, cut_head, parse_cut, parts_of, second_moment_of
from audit.heads import Head, HeadOptions
from audit.measure import Measured, measure_trace, states_for, valid_ids
from audit.pair import PairOptions, choose_head, load_ref
from audit.provenance import now_utc
from audit.ranking import RankCorrelation, spearman
from audit.records import Control
from audit.rulecheck import check_rules
from audit.stats import MIN_SEQUENCES, Resampling
from audit.traces import Trace, lookahead_rows, read_trace
from audit.trial import try_verdicts

BLOCK_CUTS = (
    "q8_0", "q4_0", "nvfp4", "prune:0.5:activation", "prune:0.25:activation", "lowrank:0.5",
    "lowrank:0.25", "lowrank:0.25:calibrated",
)  # fmt: skip
BARE_CUTS = ("q8_0", "q4_0", "nvfp4", "lowrank:0.5", "lowrank:0.25", "lowrank:0.25:calibrated")
LADDER = (0.05, 0.1, 0.2, 0.3, 0.45)
MIN_POSITIONS = 300
"""Of text in distribution and under shift each; a yardstick at D = 5 % then flips about 15."""
_AT_ONCE = 4
_MORE_RUNGS = 4
_STEP = 1.5

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """Everything a user can ask of one study."""

    ref: Path
    traces: tuple[Path, ...]
    ref_options: HeadOptions = field(default_factory=HeadOptions)
    pair: PairOptions = field(default_factory=PairOptions)
    cuts: tuple[str, ...] = ()
    """Further cuts beside the standard ones."""
    fit: tuple[Path, ...] = ()
    """Traces that calibrated cuts are fitted to; else those in distribution that are measured."""
    device: str = "cpu"
    resampling: Resampling = field(default_factory=Resampling)


def run_study(request: StudyRequest, progress: Progress | None = None) -> Calibration:
    """Make and audit the yardsticks of a reference.

    Raises:
        BadUsageError: the traces lack text in distribution or under domain shift.
        AuditError: as an audit does.
    """
    report = progress or (lambda what, done, total: None)
    own = [_study_cut(text) for text in request.cuts]
    choice = choose_head(request.ref, [], request.pair.head)
    ref = load_ref(request.ref, choice, request.ref_options, request.pair.block)
    for cut in own:
        parts_of(ref, cut, None)  # refuses what this head can not have
    traces = [read_trace(path) for path in request.traces]
    _check_registers(traces)
    check_belonging(ref, traces)
    _check_substance(traces)
    inside = [trace for trace in traces if trace.info.register_ == "in_distribution"]
    fit = [read_trace(path) for path in request.fit] or inside
    _check_fit(fit, traces)
    moments = _moments_of(ref, fit, request.device)
    names = BLOCK_CUTS if isinstance(ref, BlockHead) else BARE_CUTS
    # Twins among the yardsticks would tell on each other when one of them is left out.
    cuts = dict.fromkeys([*map(parse_cut, names), *own])
    work = _Work(request, ref, traces, moments, report)
    yardsticks = work.audit(list(cuts))
    yardsticks += work.audit([parse_cut(f"noise:{strength}") for strength in LADDER])
    yardsticks += _extend_ladder(work, yardsticks)
    return make_calibration(ref, str(choice.name), traces, yardsticks, fit)


@dataclass(frozen=True, slots=True, eq=False)
class _Moments:
    """What calibrated cuts are fitted to: second moments on text in distribution."""

    projection: Tensor
    """float64 [hidden, hidden] of what enters the projection."""
    block: Mapping[str, Tensor] | None


def _moments_of(ref: Head, traces: Sequence[Trace], device: str) -> _Moments:
    states = []
    for trace in traces:
        rows, _ = lookahead_rows(trace, ref.lookahead)
        states.append(states_for(ref, trace, rows, device))
    block = block_moments(ref.block, traces, device=device) if isinstance(ref, BlockHead) else None
    return _Moments(second_moment_of(torch.cat(states)), block)


def make_calibration(
    ref: Head,
    head: str,
    traces: Sequence[Trace],
    yardsticks: Sequence[Yardstick],
    fit: Sequence[Trace],
) -> Calibration:
    """Check every rule and the verdict on the yardsticks; rank their losses by disagreement."""
    cuts = [yardstick for yardstick in yardsticks if yardstick.family != "noise"]
    loss, tax = (_ranked(cuts, measure) for measure in ("shift_loss", "shift_tax"))
    made = Calibration(
        reference=ref.record.sha256,
        head=head,
        created=now_utc(),
        traces={trace.info.corpus: trace.sha256 or "" for trace in traces},
        fitted_to={trace.info.corpus: trace.sha256 or "" for trace in fit},
        yardsticks=tuple(yardsticks),
        rules=check_rules(yardsticks),
        spearman_loss=loss.rho,
        spearman_loss_p=loss.p,
        spearman_tax=tax.rho,
        spearman_tax_p=tax.p,
        spearman_exact=loss.exact and tax.exact,
    )
    return made.model_copy(update={"trials": try_verdicts(made)})


def _ranked(cuts: Sequence[Yardstick], measure: str) -> RankCorrelation:
    """Does disagreement in distribution rank this loss over the cuts (without the ladder)?"""
    pairs = [
        (x, y)
        for cut in cuts
        if (x := cut.value("disagreement", "in_distribution")) is not None
        and (y := cut.value(measure, "domain_shift")) is not None
    ]
    xs, ys = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return spearman(xs, ys)


def _check_registers(traces: Sequence[Trace]) -> None:
    found = {trace.info.register_ for trace in traces}
    missing = [r for r in ("in_distribution", "domain_shift") if r not in found]
    if missing:
        raise BadUsageError(
            f"a study needs traces in distribution and under domain shift; {missing[0]} is missing",
            hint="record one: audit capture MODEL --corpus german -o german.trace.safetensors",
        )


def _check_substance(traces: Sequence[Trace]) -> None:
    """A calibration is kept and believed later, so it must not rest on a handful of positions."""
    for register in ("in_distribution", "domain_shift"):
        own = [trace for trace in traces if trace.info.register_ == register]
        positions, sequences = (sum(getattr(t, n) for t in own) for n in ("positions", "sequences"))
        if positions < MIN_POSITIONS or sequences < MIN_SEQUENCES:
            raise BadUsageError(
                f"{positions} positions in {sequences} sequences of {register.replace('_', ' ')} "
                f"are too few to judge rules on; {MIN_POSITIONS} in {MIN_SEQUENCES} are needed",
                hint="capture more text, or with a shorter --context for more sequences",
            )


def _check_fit(fit: Sequence[Trace], traces: Sequence[Trace]) -> None:
    shifted = {t.sha256 for t in traces if t.info.register_ == "domain_shift"}
    for trace in fit:
        if trace.sha256 in shifted:
            raise BadUsageError(
                f"{trace.info.corpus} is measured as text under domain shift, so calibrated cuts "
                "can not be fitted to it: their loss there would be hidden",
                hint="fit to text in distribution",
                where=trace.path or "",
            )


@dataclass(frozen=True, slots=True)
class _Work:
    """One reference and its traces, ready to audit cuts."""

    request: StudyRequest
    ref: Head
    traces: Sequence[Trace]
    moments: _Moments
    report: Progress

    def audit(self, cuts: Sequence[Cut]) -> list[Yardstick]:
        """Make and audit cuts, a few at a time."""
        out: list[Yardstick] = []
        for start in range(0, len(cuts), _AT_ONCE):
            part = cuts[start : start + _AT_ONCE]
            self.report(f"yardsticks {', '.join(map(str, part))}", start, len(cuts))
            out += self._audit_some(part)
        return out

    def _audit_some(self, cuts: Sequence[Cut]) -> list[Yardstick]:
        seed = self.request.resampling.seed
        heads = [
            cut_head(
                self.ref,
                cut,
                second_moment=self.moments.projection,
                moments=self.moments.block,
                seed=seed,
            )
            for cut in cuts
        ]
        measured = self._measure(heads)
        made = []
        for i, (cut, head) in enumerate(zip(cuts, heads, strict=True)):
            frames = [m.frames[i] for m in measured]
            made.append(
                Yardstick(
                    cut=str(cut),
                    family=_family(cut),
                    head_sha256=head.record.sha256,
                    calibrated=cut.calibrated,
                    stored_bytes=head.record.stored_bytes,
                    estimates=tuple(estimate_all(frames, Facts(), self.request.resampling)),
                )
            )
        return made

    def _measure(self, heads: Sequence[Head]) -> list[Measured]:
        measured: list[Measured] = []
        anchors: list[Control] = []
        for trace in self.traces:
            found = measure_trace(self.ref, heads, trace, device=self.request.device)
            anchors.append(check_anchor(self.ref, trace, found, valid_ids(self.ref, trace)))
            measured.append(found)
        settle_anchors(self.ref, anchors, measured, self.ref.vocabulary)
        return measured


def _study_cut(text: str) -> Cut:
    """A further cut; BadUsageError for one that a study can not use, before any work."""
    cut = parse_cut(text)
    _family(cut)
    return cut


def _family(cut: Cut) -> Family:
    if cut.family == "vocabulary":
        raise BadUsageError(
            f"{cut} is a vocabulary cut, which no rule of the study is about",
            hint="leave it out; `audit compare REF --trim CARD` measures it",
        )
    return cut.family


def _extend_ladder(work: _Work, yardsticks: Sequence[Yardstick]) -> list[Yardstick]:
    """Stronger noise until the ladder spans the cuts' disagreement, or a few times in vain."""
    added: list[Yardstick] = []
    strength = LADDER[-1]
    for _ in range(_MORE_RUNGS):
        known = [(y.family, y.value("disagreement", "in_distribution") or 0.0)
                 for y in (*yardsticks, *added)]  # fmt: skip
        highest = max(d for family, d in known if family != "noise")
        if max(d for family, d in known if family == "noise") >= highest:
            break
        strength = round(strength * _STEP, 3)
        added += work.audit([parse_cut(f"noise:{strength}")])
    return added
