"""Formats that are recognised and not read, so that the refusal can name them."""

from __future__ import annotations

from audit.heads.packed.formats import PackedFormat
from audit.heads.packed.module import Module
from audit.heads.packed.rows import PackedRows


class _Refused(PackedFormat):
    """A format known by the leaf that holds its codes."""

    why: str

    def stored(self, module: Module) -> bool:
        """Whether the leaf is there."""
        return module.has(self.primary)

    def read(self, module: Module) -> tuple[PackedRows, str]:
        """Always raises PACKED_UNSUPPORTED."""
        raise module.refuse(f"is packed as {self.name}, which is not read: {self.why}")


class Exl3(_Refused):
    """Trellis codes of exllamav3."""

    name = "EXL3"
    primary = "trellis"
    why = "the order of values in its tiles is its kernel's own"
    variants = why
    verified = "named refusal"
    methods = frozenset({"exl3"})


class Exl2(_Refused):
    """Mixed bit widths of exllamav2."""

    name = "EXL2"
    primary = "q_weight"
    why = "its layout is its kernel's own"
    variants = why
    verified = "named refusal"
    methods = frozenset({"exl2"})


class Aqlm(_Refused):
    """Additive codebooks."""

    name = "AQLM"
    primary = "codebooks"
    why = "additive codebooks are not implemented"
    variants = why
    verified = "named refusal"
    methods = frozenset({"aqlm"})


class Marlin(_Refused):
    """Words in the order of the Marlin kernel."""

    name = "Marlin"
    primary = "B"
    why = "the order of its words is its kernel's own"
    variants = why
    verified = "named refusal"
    methods = frozenset({"marlin"})

    def stored(self, module: Module) -> bool:
        """`B` int32 with the scales `s`."""
        return module.has("B", "s") and module.entry("B").encoding == "I32"


class SparseMask(_Refused):
    """Values under a bit mask, of older compressed-tensors releases."""

    name = "compressed-tensors sparse bitmask"
    primary = "bitmask"
    why = "the library no longer reads it either"
    variants = why
    verified = "named refusal"
    methods = frozenset({"compressed-tensors"})
