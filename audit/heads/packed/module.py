"""The tensors of one quantized layer: by leaf name, typed, and with their shapes checked.

What a format needs and does not find is refused by name here, with one code for all formats:
SCALE_MISSING, SCALE_SHAPE, PACKED_SHAPE.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from audit.errors import MismatchError, UnreadableError, UnsupportedFormatError
from audit.files import Container, TensorEntry, aligned_view, row_bytes
from audit.heads.packed.codes import FLOAT8
from audit.heads.packed.declared import NOTHING_DECLARED, Declared

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_BYTES = frozenset({*FLOAT8, "F8_E8M0", "U8", "I8", "BOOL"})
_JSON_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One quantized layer in a safetensors container; `used` grows as its tensors are read."""

    container: Container
    stem: str
    """The layer's name as in the file, such as `lm_head`."""
    declared: Declared = NOTHING_DECLARED
    used: dict[str, None] = field(default_factory=dict)
    """Names of the tensors that the weights depend on, in the order they were asked for."""

    def name(self, leaf: str) -> str:
        """The full name of a leaf such as `weight_scale`."""
        return f"{self.stem}.{leaf}" if self.stem else leaf

    def has(self, *leaves: str) -> bool:
        """True when the file holds all of them."""
        return all(self.name(leaf) in self.container.entries for leaf in leaves)

    def entry(self, leaf: str) -> TensorEntry:
        """Header of a tensor; SCALE_MISSING when the file does not hold it."""
        if not self.has(leaf):
            raise self.missing(leaf, "other tensors")
        return self.container.entries[self.name(leaf)]

    def first(self, *leaves: str) -> str | None:
        """The first of the leaves that the file holds."""
        return next((leaf for leaf in leaves if self.has(leaf)), None)

    def shape(self, leaf: str) -> tuple[int, ...]:
        """Stored shape of a tensor; raises as `entry`."""
        return self.entry(leaf).shape

    def raw(self, leaf: str) -> Tensor:
        """The stored bytes in the tensor's shape: uint8 [..., bytes of the last dimension].

        Nothing is copied; one-byte types keep their shape.
        """
        entry, self.used[self.name(leaf)] = self.entry(leaf), None
        data = self.container.bytes_of(entry.name)
        if not entry.shape:
            return data
        return data.view(*entry.shape[:-1], row_bytes(entry.encoding, entry.shape[-1]))

    def tensor(self, leaf: str) -> Tensor:
        """A plain tensor in its stored type and shape; one-byte floats are left to `floats`.

        Raises UnsupportedFormatError for a type that has no torch type here.
        """
        entry = self.entry(leaf)
        if entry.encoding not in _DTYPES:
            raise self.odd_type(leaf, "a plain number type")
        raw = self.raw(leaf)
        if entry.encoding in ("U8", "BOOL"):
            return raw.view(entry.shape)
        return aligned_view(raw, _DTYPES[entry.encoding]).view(entry.shape)

    def wide_floats(self, leaf: str) -> Tensor:
        """A float tensor of two bytes or more, in its stored type; PACKED_TYPE for others."""
        return self.tensor(self.check_type(leaf, "F16", "BF16", "F32", "F64"))

    def integers(self, leaf: str) -> Tensor:
        """A small tensor of integers of any width, int64; PACKED_TYPE for others."""
        return self.tensor(self.check_type(leaf, "U8", "I8", "I16", "I32", "I64")).long()

    def floats(self, leaf: str) -> Tensor:
        """A small float tensor of any type as float32 in its shape, checked to be finite.

        Raises UnreadableError NON_FINITE, UnsupportedFormatError for integers.
        """
        entry, self.used[self.name(leaf)] = self.entry(leaf), None
        if not entry.encoding.startswith(("F", "BF")):
            raise self.odd_type(leaf, "floats")
        values = self.container.values(entry.name).float()
        if not bool(torch.isfinite(values).all()):
            raise UnreadableError(
                f"{entry.name} holds NaN or infinity",
                hint="the file is damaged: export the head again",
                where=self.container.path,
                code="NON_FINITE",
            )
        return values

    def need(self, leaf: str, what: str = "scales") -> str:
        """The leaf, which must be there: without its scales a code is no number.

        Raises UnsupportedFormatError SCALE_MISSING.
        """
        if self.has(leaf):
            return leaf
        raise self.missing(leaf, what)

    def missing(self, leaf: str, what: str = "scales") -> UnsupportedFormatError:
        """The error for a tensor without which the codes mean nothing."""
        return UnsupportedFormatError(
            f"{self.stem} holds packed codes without their {what}: there is no "
            f"{self.name(leaf)} in the file, and read as numbers the codes would be wrong",
            hint="export the head again with all its tensors, or as bfloat16",
            where=self.container.path,
            code="SCALE_MISSING",
        )

    def check_shape(self, leaf: str, *allowed: tuple[int, ...], code: str = "SCALE_SHAPE") -> str:
        """The leaf, whose stored shape must be one of `allowed`.

        Raises MismatchError with `code`.
        """
        if self.shape(leaf) in allowed:
            return leaf
        wanted = " or ".join(str(list(shape)) for shape in dict.fromkeys(allowed))
        raise MismatchError(
            f"{self.name(leaf)} has shape {list(self.shape(leaf))} where {wanted} is needed",
            hint="the tensors of this layer do not belong together: export the head again",
            where=self.container.path,
            code=code,
        )

    def check_type(self, leaf: str, *allowed: str) -> str:
        """The leaf, whose stored type must be one of `allowed`; UnsupportedFormatError if not."""
        if self.entry(leaf).encoding in allowed:
            return leaf
        raise self.odd_type(leaf, " or ".join(allowed))

    def odd_type(self, leaf: str, wanted: str) -> UnsupportedFormatError:
        """The error for a tensor of a type that its format does not have."""
        return UnsupportedFormatError(
            f"{self.name(leaf)} is {self.entry(leaf).encoding} where {wanted} is expected",
            hint="export the head again, or as bfloat16",
            where=self.container.path,
            code="PACKED_TYPE",
        )

    def refuse(self, what: str, hint: str = "export the head as bfloat16, or as GGUF") -> Exception:
        """An UnsupportedFormatError about this layer."""
        return UnsupportedFormatError(
            f"{self.stem or self.container.path.name} {what}",
            hint=hint,
            where=self.container.path,
            code="PACKED_UNSUPPORTED",
        )

    def contradiction(self, declared: str, stored: str) -> MismatchError:
        """The error for a configuration and a file that say different things."""
        return MismatchError(
            f"{self.declared.source} says {declared}, but {stored}",
            hint="the configuration and the tensors are of different exports: use those that were "
            "written together",
            where=self.container.path,
            code="DECLARED_VS_STORED",
        )

    def json(self, leaf: str) -> dict[str, Any]:
        """A small JSON object stored as bytes; UnreadableError when it is none."""
        text = bytes(self.raw(leaf).flatten()[: _JSON_LIMIT + 1].tolist())
        try:
            value = json.loads(text) if len(text) <= _JSON_LIMIT else None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnreadableError(
                f"{self.name(leaf)} does not hold a small JSON object",
                hint="export the head again",
                where=self.container.path,
            )
        return value

    def stored_bytes(self) -> int:
        """Bytes of all tensors that the weights depend on."""
        return sum(self.container.entries[name].nbytes or 0 for name in self.used)
