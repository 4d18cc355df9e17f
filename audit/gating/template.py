"""A made-up run that meets every limit of a policy, for the gate's self-test.

Its numbers come from the policy alone: midway between the bounds that apply at each place, or
beyond the only one. It stands for no real head and is never recorded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from packaging.version import Version

from audit.catalogue import (
    CLASS_MEASURES,
    CONTROLS,
    MEASURES_VERSION,
    SHIFT_MEASURES,
    possible_range,
)
from audit.gating.places import Place
from audit.policy import Limit, Policy, Requirement
from audit.policy.suggest import MEASURES
from audit.provenance import versions
from audit.records import (
    Candidate,
    Control,
    Estimate,
    HeadRecord,
    Provenance,
    Register,
    Run,
    TraceInfo,
    TraceRecord,
    Verdict,
    VerdictKind,
)
from audit.samples import REGISTERS

_HASH = "0" * 64
_KINDS: tuple[VerdictKind, ...] = ("fidelity", "vocabulary", "function", "undecided", "identical")
_AMOUNT = 10_000


def passing_run(policy: Policy, now: datetime) -> Run:
    """A run of one candidate that every limit of the policy should let pass."""
    corpora = _corpora(policy)
    return Run(
        run="",
        reference=_head("reference", 2),
        candidates=(_candidate(policy, corpora),),
        traces=tuple(_trace(name, register) for name, register in corpora.items()),
        preflight=(),
        controls=tuple(_control(name) for name in CONTROLS),
        calibration={"created": now.isoformat()},
        provenance=_provenance(policy, now),
    )


def applies(limit: Limit, estimate: Estimate) -> bool:
    """True where this limit is held against this estimate."""
    named = (limit.measure, limit.token_class) == (estimate.measure, estimate.token_class)
    pooled = (estimate.corpus is None) == (limit.over == "register")
    inside = limit.register_ in (None, estimate.register_)
    return named and pooled and inside and limit.corpus in (None, estimate.corpus)


def _corpora(policy: Policy) -> dict[str, Register]:
    """One corpus of each register, and every one that the policy names."""
    found: dict[str, Register] = {}
    for part in policy.parts:
        named = part.corpora or () if isinstance(part, Requirement) else ()
        shift = isinstance(part, Limit) and part.measure in SHIFT_MEASURES
        register = part.register_ or ("domain_shift" if shift else None)
        for corpus in (*named, *((part.corpus,) if part.corpus else ())):
            if register is not None:
                found[corpus] = register
            else:
                found.setdefault(corpus, "in_distribution")
    return found | {f"self-test {register}": register for register in REGISTERS}


def _candidate(policy: Policy, corpora: dict[str, Register]) -> Candidate:
    allowed = [part.verdicts for part in policy.requirements if part.verdicts]
    kinds = [kind for kind in _KINDS if all(kind in one for one in allowed)]
    return Candidate(
        head=_head("self-test", 1),
        estimates=tuple(_estimates(policy, corpora)),
        verdict=Verdict(kind=(kinds or ["fidelity"])[0], sentence="self-test", evidence=()),
    )


def _estimates(policy: Policy, corpora: dict[str, Register]) -> list[Estimate]:
    places = [Place(register, corpus) for corpus, register in corpora.items()]
    places += [Place(register, None) for register in REGISTERS]
    classes = sorted({limit.token_class for limit in policy.limits if limit.token_class})
    wanted = [(measure, None) for measure in MEASURES]
    by_class = [(measure, name) for measure in CLASS_MEASURES for name in classes]
    amounts = [part.positions or part.sequences or 1 for part in policy.requirements]
    amounts += [limit.ignore_fewer_than or 1 for limit in policy.limits]
    return [
        _estimate(policy.limits, place, measure, token_class, max(_AMOUNT, *amounts))
        for place in places
        for measure, token_class in (*wanted, *by_class)
        if measure not in SHIFT_MEASURES or place.register == "domain_shift"
    ]


def _estimate(
    limits: Sequence[Limit], place: Place, measure: str, token_class: str | None, amount: int
) -> Estimate:
    blank = Estimate(
        measure=measure, corpus=place.corpus, register=place.register, token_class=token_class,
        value=0.0, positions=amount, sequences=amount,
    )  # fmt: skip
    lowest, highest = possible_range(measure)
    own = [limit for limit in limits if applies(limit, blank)]
    low = max([lowest, *(limit.minimum for limit in own if limit.minimum is not None)])
    high = min([highest, *(limit.maximum for limit in own if limit.maximum is not None)])
    value = good_value(low, high)
    return blank.model_copy(update={"value": value, "low": value, "high": value})


def good_value(low: float, high: float) -> float:
    """A value between two bounds of which either may be infinite."""
    if math.isfinite(low) and math.isfinite(high):
        return (low + high) / 2
    if math.isfinite(low):
        return low + 1.0
    return high - 1.0 if math.isfinite(high) else 0.0


def _head(name: str, stored_bytes: int) -> HeadRecord:
    return HeadRecord(
        name=name, path=name, kind="lm", container="self-test", encoding="F32", rows=1, columns=1,
        vocabulary=1, stored_bytes=stored_bytes, bits_per_weight=None, sha256=_HASH, tensors=(),
        tied=None,
    )  # fmt: skip


def _trace(corpus: str, register: Register) -> TraceRecord:
    info = TraceInfo(
        model="self-test", model_sha256=None, tokenizer_sha256=None, vocabulary=None,
        corpus=corpus, register=register, language=None, stage="post_norm",
        oracle="verifier_greedy", captured_by="self-test",
    )  # fmt: skip
    return TraceRecord(
        path=corpus, sha256=_HASH, positions=_AMOUNT, sequences=_AMOUNT, hidden_size=1, info=info
    )


def _control(name: str) -> Control:
    return Control(
        name=name, corpus="self-test", observed=0.0, expected="0", passed=True, sentence="self-test"
    )


def _provenance(policy: Policy, now: datetime) -> Provenance:
    asked = [part.audit_version for part in policy.requirements if part.audit_version]
    measures = [part.measures_version or 0 for part in policy.requirements]
    return Provenance(
        created=now.isoformat(),
        versions={"head-audit": max(asked, key=Version)} if asked else versions(),
        measures_version=max(MEASURES_VERSION, *measures, 0),
        platform="",
        device="",
        settings={},
    )
