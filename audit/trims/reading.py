"""What was written, read back: the very ids, rows and bias that were meant."""

from __future__ import annotations

import torch

from audit.errors import UnreadableError
from audit.files import decode_rows
from audit.forge.nvfp4 import tensor_scale
from audit.forge.quantize import encode_tile
from audit.forge.tiles import largest
from audit.heads import Head

_TILE_ROWS = 1024


def check_rows(own: Head, head: Head, encoding: str | None) -> None:
    """Compare a head read from a file with the reference's own rows for the same ids.

    Rows must be equal, or equal to what encoding them gives; ids and bias must be equal.

    Raises:
        UnreadableError: they are not.
    """
    if not torch.equal(own.ids, head.ids):
        raise _wrong("its map names other ids than were chosen", head)
    if (own.bias is None) != (head.bias is None) or (
        own.bias is not None and head.bias is not None and not torch.equal(own.bias, head.bias)
    ):
        raise _wrong("its bias is another", head)
    scale = tensor_scale(largest(own.rows)) if encoding == "NVFP4" else 1.0
    for start in range(0, own.rows.count, _TILE_ROWS):
        stop = min(start + _TILE_ROWS, own.rows.count)
        meant, read = own.rows.tile(start, stop), head.rows.tile(start, stop)
        if encoding:
            raw = encode_tile(meant, encoding, scale)
            meant = decode_rows(raw, encoding, own.rows.columns)
            meant = meant if scale == 1.0 else meant * scale
        if not torch.equal(meant, read):
            row = int((meant != read).any(1).nonzero()[0]) + start
            raise _wrong(f"its row for id {int(own.ids[row])} is another", head)


def _wrong(what: str, head: Head) -> UnreadableError:
    return UnreadableError(
        f"the file does not read back as it was meant: {what}",
        hint="nothing was kept; this is a fault of the writer or the reader: report it",
        where=head.record.path,
    )
