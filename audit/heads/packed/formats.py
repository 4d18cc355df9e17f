"""What every packed format says of itself, and the shape of its one method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from audit.heads.packed.module import Module
from audit.heads.packed.rows import PackedRows


class PackedFormat(ABC):
    """One way to pack a matrix: how to recognise it, and how to read it."""

    name: ClassVar[str]
    variants: ClassVar[str]
    """What of it is read, for the table in the documentation."""
    verified: ClassVar[str]
    """How the decoder was checked, for the same table."""
    methods: ClassVar[frozenset[str]]
    """The `quant_method` values whose files hold it; empty where any may."""
    primary: ClassVar[str] = "weight"
    """The leaf that holds the codes."""

    @abstractmethod
    def stored(self, module: Module) -> bool:
        """Whether the names, types and shapes in the file are those of this format."""

    @abstractmethod
    def read(self, module: Module) -> tuple[PackedRows, str]:
        """The matrix, and the name of the exact variant for people, such as `GPTQ-4 g128`.

        Raises:
            AuditError: SCALE_MISSING, SCALE_SHAPE, PACKED_SHAPE, PACKED_TYPE, DECLARED_VS_STORED
                or PACKED_UNSUPPORTED.
        """
