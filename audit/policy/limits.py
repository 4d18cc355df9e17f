"""Bounds on one measure. Refused is what can not have been meant: bounds outside what the measure
can be, a limit that looks the wrong way, shares given in per cent."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from audit.catalogue import CLASS_MEASURES, SHIFT_MEASURES, better_when_lower, possible_range
from audit.policy.suggest import known_class, known_measure
from audit.policy.values import Bound, Count, Named, Words
from audit.records import Register


class Limit(Named):
    """Bounds on one measure, wherever it is to hold."""

    measure: Annotated[str, BeforeValidator(known_measure)]
    minimum: Bound = None
    maximum: Bound = None
    """In the measure's own unit: rates, retention, tax and loss as fractions of one."""
    register_: Register | None = Field(default=None, alias="register")
    """Only text of this register; every register by default."""
    corpus: Words | None = None
    """Only this corpus; every corpus of the register by default."""
    token_class: Annotated[str | None, BeforeValidator(known_class)] = None
    """Only positions whose right token is of this class."""
    over: Literal["corpora", "register"] = "corpora"
    """Each corpus must hold the limit, or only all of a register's positions together."""
    ignore_fewer_than: Count | None = None
    """With a token class: pass over corpora with fewer positions of it, since a few in passing
    have no interval. One corpus at least must have so many."""
    allow_predicted: StrictBool = False
    """Where tax or loss was not measured, the prediction from text in distribution counts."""

    model_config = ConfigDict(populate_by_name=True)

    @property
    def is_hollow(self) -> bool:
        """True when the measure never leaves these bounds, so that nothing could fail."""
        low, high = self.minimum, self.maximum
        lowest, highest = possible_range(self.measure)
        return (low is None or low <= lowest) and (high is None or high >= highest)

    @model_validator(mode="after")
    def _sound(self) -> Limit:
        _check_scope(self)
        _check_bounds(self)
        return self


def _check_scope(limit: Limit) -> None:
    shift = limit.measure in SHIFT_MEASURES
    if shift and limit.register_ not in (None, "domain_shift"):
        raise ValueError(f"{limit.measure} exists under domain_shift only: leave register out")
    if limit.allow_predicted and (not shift or limit.corpus or limit.token_class):
        raise ValueError(
            "only shift_tax and shift_loss over the whole register are ever predicted: leave "
            "allow_predicted out"
        )
    if limit.token_class and limit.measure not in CLASS_MEASURES:
        raise ValueError(
            f"{limit.measure} is not estimated per token class; {', '.join(CLASS_MEASURES)} are"
        )
    if limit.ignore_fewer_than and (not limit.token_class or limit.corpus):
        raise ValueError("ignore_fewer_than belongs to a token_class over several corpora")
    if limit.over == "register" and limit.corpus:
        raise ValueError('over = "register" pools corpora, so it can not name one: drop either')


def _check_bounds(limit: Limit) -> None:
    low, high = limit.minimum, limit.maximum
    if low is None and high is None:
        raise ValueError("it has neither minimum nor maximum: it could not fail")
    if low is not None and high is not None and low > high:
        raise ValueError(f"its minimum {low:g} lies above its maximum {high:g}: swap them")
    lower_is_better = better_when_lower(limit.measure)
    for key, bound, wrong, other in (
        ("minimum", low, lower_is_better is True, "maximum"),
        ("maximum", high, lower_is_better is False, "minimum"),
    ):
        if bound is None:
            continue
        _check_range(limit.measure, key, bound)
        if wrong:
            better = "lower" if lower_is_better else "higher"
            raise ValueError(
                f"{limit.measure} is better when {better}: {other} = {bound:g} was probably meant"
            )


def _check_range(measure: str, key: str, bound: float) -> None:
    """Raise ValueError for a bound that the measure can never reach."""
    lowest, highest = possible_range(measure)
    said = "is always"
    if measure in ("retention", *SHIFT_MEASURES):
        # Without an upper end, but no policy can ask that a cut be better than its reference.
        highest, said = 1.0, "is asked to be"
    if lowest <= bound <= highest:
        return
    meant = bound / 100
    if highest == 1.0 and 1.0 < bound <= 100.0:
        raise ValueError(
            f"{key} = {bound:g}: {measure} is a fraction of one, {meant:g} was probably meant"
        )
    ends = f"between {lowest:g} and {highest:g}" if math.isfinite(lowest) else f"up to {highest:g}"
    if not math.isfinite(highest):
        ends = f"{lowest:g} or more"
    raise ValueError(f"{key} = {bound:g}: {measure} {said} {ends}")
