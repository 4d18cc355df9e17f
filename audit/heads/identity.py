"""A head's hash: of everything its proposals depend on, and of nothing else.

The same head in two files with other tensors beside it has one hash; a changed scale, map or norm
has another. Reviews and waivers are bound to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from audit.provenance import canonical_json

_CHUNK_BYTES = 1 << 24


def head_hash(raw: Iterable[tuple[str, str, Tensor]], rules: Mapping[str, Any]) -> str:
    """Hex SHA-256.

    Args:
        raw: (role, encoding, stored bytes) of each tensor, for instance ("rows", "Q8_0", uint8).
        rules: post-head rule, scale, norm convention and the like; JSON values.
    """
    digest = hashlib.sha256()
    for role, encoding, tensor in raw:
        data = tensor.contiguous().flatten().view(torch.uint8)
        digest.update(f"{role} {encoding} {list(tensor.shape)}\n".encode())
        for part in data.split(_CHUNK_BYTES):
            digest.update(memoryview(part.numpy()))
    digest.update(canonical_json(rules).encode())
    return digest.hexdigest()
