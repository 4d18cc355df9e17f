"""Names that a policy may use, and what was probably meant by others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from audit.catalogue import (
    CATALOGUE,
    COMPOSED,
    CONTROLS,
    FINDING_CODES,
    TOKEN_CLASSES,
)

MEASURES = (*CATALOGUE, *COMPOSED)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean …?`, or all there is where nothing is near."""
    names = list(known)
    lowered = {one.lower(): one for one in names}
    wanted = name.lower().replace("-", "_")
    near = difflib.get_close_matches(wanted, lowered, n=2, cutoff=0.6)
    if not near and len(wanted) > 1:
        near = [one for one in lowered if wanted in one][:2]
    if near:
        return f"did you mean {' or '.join(lowered[one] for one in near)}?"
    return f"there are {', '.join(names)}"


def known_measure(value: Any) -> Any:
    """Raises ValueError unless it names a measure."""
    return _known(value, MEASURES, "a measure")


def known_class(value: Any) -> Any:
    """Raises ValueError unless it names a token class or is None."""
    return value if value is None else _known(value, TOKEN_CLASSES, "a token class")


def known_control(value: Any) -> Any:
    """Raises ValueError unless it names a control."""
    return _known(value, CONTROLS, "a control")


def known_finding(value: Any) -> Any:
    """Raises ValueError unless it is the code of a finding."""
    return _known(value, FINDING_CODES, "the code of a finding")


def _known(value: Any, names: Iterable[str], what: str) -> Any:
    if isinstance(value, str) and value not in names:
        raise ValueError(f"{value!r} is not {what}: {did_you_mean(value, names)}")
    return value
