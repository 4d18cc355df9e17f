"""All packed formats, and the way from a tensor's name to its rows.

A format must be the configuration's and the file's: what is declared plain and stored packed, or
declared as one method and stored as another, is refused (DECLARED_VS_STORED), and so are scales
that lie beside a weight and are not used (SCALE_UNUSED).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from audit.errors import MismatchError, UnsupportedFormatError
from audit.files import Container
from audit.heads.packed.awq import Awq
from audit.heads.packed.bnb import BitsAndBytes4, BitsAndBytes8
from audit.heads.packed.compressed import PackQuantized
from audit.heads.packed.declared import declared_for
from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.fp4 import CompressedMxfp4, CompressedNvfp4, ModelOptNvfp4
from audit.heads.packed.gptq import Gptq
from audit.heads.packed.hqq import Hqq
from audit.heads.packed.modelopt import ModelOptInt4
from audit.heads.packed.module import Module
from audit.heads.packed.refused import Aqlm, Exl2, Exl3, Marlin, SparseMask
from audit.heads.packed.rows import PackedRows
from audit.heads.packed.scaled import ScaledFloat8, ScaledInt8
from audit.heads.packed.torchao import TorchAo

FORMATS: tuple[PackedFormat, ...] = (
    PackQuantized(), CompressedNvfp4(), CompressedMxfp4(), ScaledFloat8(), BitsAndBytes8(),
    ScaledInt8(), Gptq(), Awq(), BitsAndBytes4(), ModelOptNvfp4(), ModelOptInt4(), TorchAo(), Hqq(),
    Exl3(), Exl2(), Aqlm(), Marlin(), SparseMask(),
)  # fmt: skip
"""In the order in which they are tried and shown."""

_PRIMARY = tuple(dict.fromkeys(f.primary for f in FORMATS if f.primary != "weight"))
_METHODS = frozenset().union(*(f.methods for f in FORMATS))
_CODES = ("U8", "I8", "F8", "I32", "F4")
_SCALE_LIKE = re.compile(r"scale|zero|absmax|SCB|quant|svdquant|g_idx|bitmask", re.IGNORECASE)
_HARMLESS = re.compile(
    r"(^|_)(input|act|activation|output|k|v|q|kv)_(.*_)?(scale|zero|amax|quant)|qscale_act"
    r"|quant_scale$|quant_zero$|stores_quant_config|weight_g_idx|weight_shape|encoded_state_dict"
)
"""Scales of activations and caches, and descriptions: no weight depends on them."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A packed matrix, and what its record says of it."""

    rows: PackedRows
    label: str
    """Such as `GPTQ-4 g128`."""
    tensors: tuple[str, ...]
    """Everything the weights depend on, the codes first."""
    stored_bytes: int


def weight_names(container: Container, spelled: Callable[[str], str]) -> dict[str, str]:
    """Canonical name -> name in the file, packed matrices also as the `.weight` they stand for.

    Args:
        spelled: drops from a name what differs between saves of one model.
    """
    known = {spelled(name): name for name in container.entries}
    if container.format == "safetensors":
        for name in container.entries:
            stem, _, leaf = name.rpartition(".")
            if leaf in _PRIMARY:
                known.setdefault(spelled(f"{stem}.weight"), name)
    return known


def weight_stem(name: str) -> str:
    """The layer's name in the name of its weight or of its packed codes."""
    stem, _, leaf = name.rpartition(".")
    return stem if leaf in (*_PRIMARY, "weight") else name


def packed_matrix(container: Container, name: str) -> Packed | None:
    """The packed matrix whose codes are in tensor `name`; None where that is a plain matrix.

    Raises:
        AuditError: see `PackedFormat.read` and the top of this file.
    """
    if container.format != "safetensors":
        return None
    stem, _, leaf = name.rpartition(".")
    if leaf not in _PRIMARY and leaf != "weight":
        return None
    module = Module(container, stem, declared_for(container, stem))
    found = [f for f in FORMATS if f.primary == leaf and f.stored(module)]
    if not found:
        if leaf == "weight":
            _check_plain(module)
            return None
        raise module.refuse(f"holds {leaf}, but not as any packed format that is read has it")
    _check_declared(module, found[0])
    rows, label = found[0].read(module)
    _check_used(module, found[0])
    if rows.count < 1 or rows.columns < 1:
        raise module.refuse("is an empty matrix")
    names = (name, *(used for used in module.used if used != name))
    return Packed(rows, label, names, replace(module).stored_bytes())


def check_declared_plain(container: Container, name: str) -> None:
    """Refuse a plain head that the configuration says is packed: DECLARED_VS_STORED."""
    stem = name.removesuffix(".weight")
    if container.format != "safetensors":
        return
    declared = declared_for(container, stem)
    if declared.state == "packed":
        module = Module(container, stem, declared)
        said = " ".join(word for word in (declared.method, declared.format) if word)
        stored = f"{name} holds plain {container.entries[name].encoding} numbers"
        raise module.contradiction(f"that {stem} is packed ({said})", stored)


def _check_plain(module: Module) -> None:
    """A weight that no format claims must be numbers, and have no scales beside it."""
    entry = module.entry("weight")
    if entry.encoding.startswith(_CODES) and len(entry.shape) == 2:
        raise module.missing("weight_scale")
    also = module.first(*_PRIMARY)
    if also:
        raise MismatchError(
            f"{module.stem} is in the file twice: {module.name('weight')} and {module.name(also)}",
            hint="choose one with --head-tensor, or export the head again",
            where=module.container.path,
            code="STORED_TWICE",
        )
    _refuse_unused(module)


def _check_declared(module: Module, form: PackedFormat) -> None:
    declared = module.declared
    stored = f"the file holds {module.name(form.primary)} packed as {form.name}"
    if declared.state == "plain":
        raise module.contradiction(f"that {module.stem} is not packed", stored)
    if not declared.method or declared.method in form.methods:
        return
    if declared.method not in _METHODS:
        raise module.refuse(
            f"is packed by {declared.method[:40]}, a method that this version does not know"
        )
    raise module.contradiction(f"the method {declared.method}", stored)


def _check_used(module: Module, form: PackedFormat) -> None:
    if module.has("weight") and form.primary != "weight":
        raise MismatchError(
            f"{module.stem} is in the file twice: {module.name('weight')} and "
            f"{module.name(form.primary)}",
            hint="choose one with --head-tensor, or export the head again",
            where=module.container.path,
            code="STORED_TWICE",
        )
    _refuse_unused(module)


def _refuse_unused(module: Module) -> None:
    """Scales that lie beside a weight and are not applied: it is not what it seems to be."""
    prefix = module.name("")
    beside = [n.removeprefix(prefix) for n in module.container.entries if n.startswith(prefix)]
    unused = sorted(
        leaf
        for leaf in beside
        if module.name(leaf) not in module.used
        and ("." not in leaf or leaf.startswith("weight."))
        and _SCALE_LIKE.search(leaf)
        and not _HARMLESS.search(leaf)
    )
    if unused:
        raise UnsupportedFormatError(
            f"{', '.join(module.name(leaf) for leaf in unused[:4])} beside {module.stem} has no "
            "place in its format; read without them its numbers would be wrong",
            hint="export the head again, or as bfloat16",
            where=module.container.path,
            code="SCALE_UNUSED",
        )
