"""Find the tensors of an LM head in a container: its own, the tied embedding, or factors.

Decides only after every shard has been listed, so that a head in another shard is never mistaken
for a tied one. Leaves out: decoding, and what the configuration says (`rules`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from audit.errors import MismatchError, NotFoundError
from audit.files import Container, TensorEntry
from audit.heads import names
from audit.heads.aliases import looked_for
from audit.heads.dialects import others_seen
from audit.heads.options import HeadOptions
from audit.heads.packed import weight_names
from audit.heads.rows import Rows
from audit.heads.stored import stored_matrix
from audit.words import count

_COMPARED_ROWS = 4096
_QUANTIZED = 0.5
"""Two bits per weight leave an error of some 40 %, another tensor one of 140 %."""


@dataclass(frozen=True, slots=True)
class FoundHead:
    """Where the projection lies. Exactly one of `weight` and `factors` is set."""

    weight: str | None = None
    factors: tuple[str, str] | None = None
    tied: bool | None = None
    note: str = ""


def find_head(container: Container, options: HeadOptions, declared_tied: bool | None) -> FoundHead:
    """The LM head's tensors in this container.

    Args:
        container: all shards.
        options: may name the tensor or the factors.
        declared_tied: `tie_word_embeddings` of the configuration, None when it does not say.

    Raises:
        NotFoundError: HEAD_ABSENT, with the names looked for; or a named tensor is not there.
        MismatchError: TIED_BUT_DIFFERENT when the configuration ties two different tensors.
    """
    if options.tensor:
        return FoundHead(weight=_named(container, options.tensor), note="tensor named by the user")
    if options.factors:
        left, right = (_named(container, name) for name in options.factors)
        return FoundHead(factors=(left, right), note="factors named by the user")
    known = weight_names(container, names.plain)
    own = _first(known, names.LM_HEAD[container.format])
    embedding = _first(known, names.EMBEDDING[container.format])
    if own and embedding and declared_tied:
        return _check_tie(container, own, embedding)
    if own:
        return FoundHead(weight=own, tied=False)
    factors = _factors(container, known)
    if factors:
        return FoundHead(factors=factors, tied=False)
    if embedding and declared_tied is not False:
        return FoundHead(weight=embedding, tied=True, note=_tied_note(container, declared_tied))
    raise _absent(container, declared_tied)


def find_norm(container: Container) -> str | None:
    """Stem of the final norm's tensors, as named in this container."""
    known = {names.plain(name): name for name in container.entries}
    for stem in names.FINAL_NORM[container.format]:
        if f"{stem}.weight" in known:
            return known[f"{stem}.weight"].removesuffix(".weight")
    return None


def find_lora(entries: Mapping[str, TensorEntry]) -> tuple[str, str] | None:
    """Names of a PEFT adapter's two factors on the head: output side, input side."""
    known = {names.plain(name): name for name in entries}
    for prefix in names.LORA_PREFIXES:
        for infix in names.LORA_INFIXES:
            pair = [prefix + name.replace(".weight", f"{infix}.weight") for name in names.LORA]
            if all(name in known for name in pair):
                return known[pair[0]], known[pair[1]]
    return None


def _named(container: Container, name: str) -> str:
    known = weight_names(container, str)
    found = name if name in container.entries else known.get(name, known.get(f"{name}.weight"))
    if found:
        return found
    near = difflib.get_close_matches(name, container.entries, n=3, cutoff=0.5)
    matrices = near or _matrices(container.entries.values())[:5]
    raise NotFoundError(
        f"there is no tensor {name!r} in this file",
        hint=f"it holds, for instance: {', '.join(matrices) or 'no matrices at all'}",
        where=container.path,
    )


def _first(known: Mapping[str, str], wanted: Iterable[str]) -> str | None:
    return next((known[name] for name in wanted if name in known), None)


def _matrices(entries: Iterable[TensorEntry]) -> list[str]:
    """Names of the matrices, the tallest first."""
    flat = [entry for entry in entries if len(entry.shape) == 2]
    return [entry.name for entry in sorted(flat, key=lambda e: -e.shape[0])]


def _factors(container: Container, known: Mapping[str, str]) -> tuple[str, str] | None:
    """A factorised head, by its names or, in a file of just two matrices, by their shapes."""
    for left, right in names.FACTOR_PAIRS:
        if left in known and right in known:
            return known[left], known[right]
    matrices = [entry for entry in container.entries.values() if len(entry.shape) == 2]
    if len(matrices) != 2:
        return None
    left_entry, right_entry = sorted(matrices, key=lambda entry: -entry.shape[0])
    rank = left_entry.shape[1]
    fits = right_entry.shape[0] == rank and rank < min(left_entry.shape[0], right_entry.shape[1])
    return (left_entry.name, right_entry.name) if fits else None


def _check_tie(container: Container, own: str, embedding: str) -> FoundHead:
    """The head of two tied tensors: equal ones, or one that is the other's quantization.

    Raises MismatchError for two that differ by more: nobody can tell which one is served.
    """
    ours, theirs = stored_matrix(container, own), stored_matrix(container, embedding)
    gap, share = _difference(ours.rows, theirs.rows)
    if gap == 0.0:
        return FoundHead(weight=own, tied=True, note="tied; the file also holds an equal copy")
    if ours.encoding != theirs.encoding and share < _QUANTIZED:
        note = (
            f"TIE_BROKEN: {own} ({ours.encoding}) and {embedding} ({theirs.encoding}) are tied, and"
            f" quantization made them differ by up to {gap:.3g}; {own} is the head here, an engine "
            "that ties them runs the other"
        )
        return FoundHead(weight=own, tied=True, note=note)
    how = "their shapes differ" if gap == math.inf else f"they differ by up to {gap:.3g}"
    raise MismatchError(
        f"the configuration ties {own} to {embedding}, but {how}",
        hint=f"choose one: --head-tensor {own} or --head-tensor {embedding}",
        where=container.path,
        code="TIED_BUT_DIFFERENT",
    )


def _difference(left: Rows, right: Rows) -> tuple[float, float]:
    """Largest absolute difference, and the root mean square one as a share of the values' own."""
    if (left.count, left.columns) != (right.count, right.columns):
        return math.inf, math.inf
    gap = squares = own = 0.0
    for start in range(0, left.count, _COMPARED_ROWS):
        stop = min(start + _COMPARED_ROWS, left.count)
        theirs = right.tile(start, stop)
        apart = left.tile(start, stop) - theirs
        gap = max(gap, float(apart.abs().max()))
        squares += float(apart.square().sum())
        own += float(theirs.square().sum())
    return gap, math.sqrt(squares / own) if own else math.inf


def _tied_note(container: Container, declared_tied: bool | None) -> str:
    if declared_tied or container.format == "gguf":
        return "tied: the input embedding serves as the head"
    return "no head tensor and no word on tying: the input embedding taken as the head"


def _absent(container: Container, declared_tied: bool | None) -> NotFoundError:
    looked = list(looked_for("lm", container.format))
    if declared_tied is not False:
        looked += names.EMBEDDING[container.format]
    seen = others_seen(container)
    others = f"; of draft heads it holds {seen}" if seen else ""
    tie = " and the configuration says it is not tied" if declared_tied is False else ""
    matrices = _matrices(container.entries.values())[:5]
    if matrices:
        hint = f"name it with --head-tensor; the file's tallest matrices: {', '.join(matrices)}"
    else:
        hint = f"the file holds {count(len(container.entries), 'tensor')} and no matrix"
    return NotFoundError(
        f"no LM head here: looked for {', '.join(looked)}{tie}{others}",
        hint=hint,
        where=container.path,
        code="HEAD_ABSENT",
    )
