"""A reference becomes candidates: cuts of known kind, in files that other tools read.

Read `cuts` first (what can be asked for), then `projection` (a bare LM head under a cut) or
`matrices` (a draft block's named weights). Each cut is a module of pure functions on matrices:
`quantize`, `nvfp4`, `fp8`, `prune`, `lowrank`, `noise`, `trim`. `writers` makes the files.
"""

from audit.forge.cuts import EXAMPLES, Cut, parse_cut
from audit.forge.lowrank import second_moment_of
from audit.forge.matrices import CutMatrix, cut_matrices, find_mlps
from audit.forge.projection import forge_projection, suffix_for
from audit.forge.quantize import ENCODABLE, quantize_rows
from audit.forge.writers import Stored, copied, stored, write_gguf, write_safetensors

__all__ = [
    "ENCODABLE",
    "EXAMPLES",
    "Cut",
    "CutMatrix",
    "Stored",
    "copied",
    "cut_matrices",
    "find_mlps",
    "forge_projection",
    "parse_cut",
    "quantize_rows",
    "second_moment_of",
    "stored",
    "suffix_for",
    "write_gguf",
    "write_safetensors",
]
