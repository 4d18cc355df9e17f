"""Whose names a file uses, and which heads it does not hold, with the names that were looked for.

Reads names only. The names are data in `aliases`; which of the heads can be run is the business of
`audit.blocks`.
"""

from __future__ import annotations

import re
from functools import cache

from audit.files import Container
from audit.heads.aliases import ALIASES, HEADS, Alias, looked_for
from audit.heads.packed import weight_names
from audit.records import AbsentHead, Dialect
from audit.words import some

_PREFIX = r"(?:language_model\.|model\.|medusa_heads?\.){0,3}"
_LEAF = r"(?:\.(?:weight|bias|ALinear\.weight|BLinear\.weight|scale))?"
_BARE, _LEAF_END = re.compile(_PREFIX), re.compile(_LEAF + "$")
_NUMBERS = re.compile(r"\{n\}|\d+")


def dialects_in(container: Container) -> tuple[Dialect, ...]:
    """Role by role, the dialects that names of this container belong to, in the table's order.

    A name that several dialects share is given to the first of them.
    """
    found: dict[tuple[str, str], list[str]] = {}
    taken: set[tuple[str, str]] = set()
    near: dict[str, list[tuple[str, str]]] = {}
    for name, stored in weight_names(container, str).items():
        near.setdefault(_shape(name), []).append((name, stored))
    for alias in ALIASES:
        if alias.format != container.format:
            continue
        for name, stored in near.get(_shape(alias.name), ()):
            if (alias.role, stored) not in taken and _is(alias, name):
                taken.add((alias.role, stored))
                found.setdefault((alias.role, alias.dialect), []).append(stored)
    return tuple(
        Dialect(role=role, dialect=dialect, tensors=tuple(dict.fromkeys(names)))
        for (role, dialect), names in found.items()
    )


def absent_heads(container: Container, present: tuple[str, ...]) -> tuple[AbsentHead, ...]:
    """Every kind of head that is not among `present`, with the names that would have shown it."""
    kinds = {name.partition(":")[0] for name in present}
    return tuple(
        AbsentHead(head=head, looked_for=names)
        for head in HEADS
        if head not in kinds and (names := looked_for(head, container.format))
    )


def others_seen(container: Container) -> str:
    """Parts of draft heads that are there, in words; empty where there are none."""
    parts = [one for one in dialects_in(container) if one.role not in _OF_MODELS]
    return some([f"{one.tensors[0]} ({one.dialect})" for one in parts])


_OF_MODELS = frozenset({"lm_head", "embedding", "final_norm"})


def _shape(name: str) -> str:
    """A name without prefix, leaf and numbers: what can be looked up, for files have many names."""
    bare = _BARE.sub("", name)
    return _NUMBERS.sub("#", _LEAF_END.sub("", bare))


def _is(alias: Alias, name: str) -> bool:
    return _pattern(alias.name).fullmatch(name) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    """The names that an entry of the table stands for, saved with any of the usual prefixes."""
    bare = re.escape(name.removeprefix("model.")).replace(re.escape("{n}"), r"\d{1,6}")
    return re.compile(_PREFIX + bare + _LEAF)
