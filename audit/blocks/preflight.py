"""Draft heads before anything is measured: declared and there, alike in type, sane in numbers.

Codes: MTP_DECLARED_ABSENT, MTP_PRESENT_UNDECLARED, DRAFT_TYPES, LOW_BIT_DRAFT, HC_MIXER,
REFERENCE_NOT_SERVED, EMBEDDING_OTHER, UNTRAINED; for a pair of blocks SCALE_SUSPECT,
BLOCK_COLLAPSE, DEAD_TENSOR, OTHER_MODEL. Projection rows are the business of
`audit.heads.preflight`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from audit.blocks.block import Block
from audit.blocks.loading import BlockHead
from audit.blocks.mtp_layouts import declared_mtp, find_mtp, mtp_tensors
from audit.blocks.sources import canonical
from audit.errors import AuditError
from audit.files import Container, bits_per_weight
from audit.heads import names
from audit.heads.against import collapse_words, collapsed_half, norm_ratio, unlike
from audit.heads.dialects import dialects_in
from audit.heads.packed import weight_names
from audit.heads.rows import Rows
from audit.heads.scan import looks_untrained, scan_rows
from audit.heads.stored import stored_matrix
from audit.heads.told import Found
from audit.words import some

_LOW_BITS = 4.0
"""Below this a draft's own projection loses most of its acceptance (published: 0 to 4 % left)."""
_SAMPLE = 256
_TRUNK = re.compile(r"(?:layers|blk)\.\d+\.")


def check_container(container: Container) -> Found:
    """What names and types of a file say of the draft heads in it."""
    declared, found = declared_mtp(container), find_mtp(container)
    parts = mtp_tensors(container)
    if declared and not parts:
        yield (
            "MTP_DECLARED_ABSENT",
            "warning",
            f"the configuration declares {declared} MTP layer(s), and the file holds none of their "
            "tensors: many tools drop them on saving",
        )
    if parts and not declared and _has_configuration(container):
        yield (
            "MTP_PRESENT_UNDECLARED",
            "note",
            f"the file holds {len(parts)} MTP tensors that its configuration does not declare: "
            "engines that ask the configuration run without them",
        )
    if found:
        yield from _types(container, parts)
    mixers = [d for d in dialects_in(container) if d.role == "hyper_connection_mixer"]
    for mixer in mixers:
        yield (
            "HC_MIXER",
            "note",
            f"a hyper-connection mixer ({some(mixer.tensors)}, as {mixer.dialect} spells it) makes "
            "one state of several before the norm: states must be taken after it",
        )


def _has_configuration(container: Container) -> bool:
    """A bare head's file has none that could declare anything."""
    if container.format != "gguf":
        return container.config is not None
    arch = container.metadata.get("general.architecture")
    return any(key.startswith(f"{arch}.") for key in container.metadata)


def _types(container: Container, parts: list[str]) -> Found:
    """The draft's stored types beside the trunk's; an imatrix never sees the draft's projection."""
    matrices = {name for name, entry in container.entries.items() if len(entry.shape) == 2}
    draft = [name for name in parts if name in matrices]
    trunk = [n for n in matrices - set(parts) if _TRUNK.match(canonical(n))]
    ours, theirs = (_counted(container, listed) for listed in (draft, trunk))
    if ours and theirs:
        yield "DRAFT_TYPES", "note", f"the draft head is stored as {ours}, the trunk as {theirs}"
    low = [name for name in draft if _bits(container, name) < _LOW_BITS]
    if low:
        told = some([f"{name} {container.entries[name].encoding}" for name in low])
        yield (
            "LOW_BIT_DRAFT",
            "warning",
            f"fewer than {_LOW_BITS:.0f} bits per weight in the draft head ({told}): calibration "
            "data rarely covers it",
        )


def _counted(container: Container, listed: list[str]) -> str:
    types = Counter(container.entries[name].encoding for name in listed)
    return ", ".join(f"{encoding} ({number})" for encoding, number in types.most_common())


def _bits(container: Container, name: str) -> float:
    """Stored bits per weight; those of codes whose scales lie elsewhere say nothing."""
    encoding = container.entries[name].encoding
    if container.format != "gguf" or encoding.startswith("GGML_"):
        return _LOW_BITS
    return bits_per_weight(encoding)


def check_served(head: BlockHead, verifier: Container | None) -> Found:
    """A projection or an embedding of the draft's own beside the target's of the same use."""
    for place in dict.fromkeys([head.block.container, verifier]):
        if place is not None:
            yield from _check_projection(head, place)
    if head.block.embedding is not None:
        yield from _check_embedding(head.block, verifier)


def _check_projection(head: BlockHead, place: Container) -> Found:
    """Some engines ignore a draft's own copy and use the model's head."""
    if len(head.projection.tensors) != 1 or head.block.name == "eagle3":
        return
    own, known = head.projection.tensors[0], weight_names(place, names.plain)
    theirs = next((known[n] for n in names.LM_HEAD[place.format] if n in known), None)
    is_same = place.path == head.block.container.path and own == theirs
    if theirs is None or is_same or head.projection.path != str(head.block.container.path):
        return
    rows = _rows(place, theirs)
    if rows is None or rows.count != head.rows.count or rows.columns != head.rows.columns:
        return
    pick = torch.linspace(0, rows.count - 1, min(_SAMPLE, rows.count)).long()
    gap = (head.rows.gather(pick) - rows.gather(pick)).abs().max()
    if float(gap) > 0:
        yield (
            "REFERENCE_NOT_SERVED",
            "warning",
            f"the draft's own {own} differs from {theirs} of {place.path.name} (by up to "
            f"{float(gap):.3g} in {len(pick)} rows looked at): an engine that shares the model's "
            "head with the draft runs another head than this one",
        )


def _check_embedding(block: Block, verifier: Container | None) -> Found:
    assert block.embedding is not None
    ours = block.embedding.rows
    if looks_untrained(scan_rows(ours)):
        yield (
            "UNTRAINED",
            "note",
            "the draft's token embedding is what random numbers would be: was it exported before "
            "the target's was copied into it?",
        )
    if verifier is None:
        return
    known = weight_names(verifier, names.plain)
    name = next((known[n] for n in names.EMBEDDING[verifier.format] if n in known), None)
    theirs = _rows(verifier, name) if name else None
    if theirs is None or theirs.columns != ours.columns:
        return
    last = min(ours.count, theirs.count) - 1
    pick = torch.linspace(0, last, min(_SAMPLE, last + 1)).long()
    median = unlike(theirs.gather(pick), ours.gather(pick))
    if median is not None:
        yield (
            "EMBEDDING_OTHER",
            "note",
            f"the draft's token embedding has nothing in common with {name} of "
            f"{verifier.path.name} (median cosine {median:.2f}): fine if it was trained with the "
            "draft, random numbers if not",
        )


def _rows(container: Container, name: str) -> Rows | None:
    try:
        return stored_matrix(container, name).rows
    except AuditError:
        return None  # it is another head's, and can not be read: nothing to compare


def check_blocks(ref: BlockHead, cand: BlockHead) -> Found:
    """Matrix by matrix, what no cut does to a block, or does without saying."""
    if cand.block is ref.block:
        return
    for name, before, after in _shared_matrices(ref.block, cand.block):
        stored = cand.block.tensors.get(name, name)
        yield from _check_matrix(before, after, stored)


def _check_matrix(before: Tensor, after: Tensor, stored: str) -> Found:
    if not bool(after.any()) and bool(before.any()):
        yield "DEAD_TENSOR", "warning", f"every weight of {stored} is zero"
        return
    norm = partial(torch.linalg.vector_norm, dim=1, dtype=torch.float64)
    yield from norm_ratio(norm(before), norm(after), f"row norms of {stored} are")
    ref_zeros, cand_zeros = ((m == 0).double().mean(0) for m in (before, after))
    columns = before.shape[1]
    if collapsed := collapsed_half(ref_zeros, cand_zeros):
        yield "BLOCK_COLLAPSE", "warning", collapse_words(collapsed, columns, f" of {stored}")
        return
    pick = torch.linspace(0, len(before) - 1, min(_SAMPLE, len(before))).long()
    alive = pick[before[pick].any(1) & after[pick].any(1)]
    median = unlike(before[alive], after[alive])
    if median is not None:
        yield (
            "OTHER_MODEL",
            "warning",
            f"{stored} has nothing in common with the reference's (median cosine of rows "
            f"{median:.2f}): another model's tensor, rows in another order, or an inverted sign",
        )


def _shared_matrices(ref: Block, cand: Block) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Matrices of one name and shape in both blocks."""
    theirs = ref.modules.state_dict()
    for name, after in cand.modules.state_dict().items():
        before = theirs.get(name)
        if before is not None and before.ndim == 2 and before.shape == after.shape:
            yield name, before, after
