"""From a path to checked, lazily mapped named tensors.

`opening.open_container` decides what a path means and is where to start reading; `decode` turns the
bytes into float32. Leaves out which tensor is the head and how it is scaled.
"""

from audit.files.container import Container, TensorEntry
from audit.files.decode import (
    aligned_view,
    bits_per_weight,
    decode_rows,
    is_float_encoding,
    row_bytes,
)
from audit.files.opening import open_container

__all__ = [
    "Container",
    "TensorEntry",
    "aligned_view",
    "bits_per_weight",
    "decode_rows",
    "is_float_encoding",
    "open_container",
    "row_bytes",
]
