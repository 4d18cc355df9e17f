"""A reference becomes candidates: cuts of known kind, in files that other tools read.

Read `cuts` first (what can be asked for), then `heads` (any head under a cut, in memory) and
`files` (the same in a file). `blocks` cuts a draft block, `projection` writes a bare LM head,
`calibration` measures what a fitted cut is fitted to. Each cut is a module of pure functions on
matrices: `quantize`, `nvfp4`, `fp8`, `prune`, `lowrank`, `noise`, `trim`.
"""

from audit.forge.blocks import cut_block
from audit.forge.calibration import block_moments
from audit.forge.cuts import EXAMPLES, Cut, parse_cut
from audit.forge.files import Forged, check_forgeable, forge_head
from audit.forge.heads import Only, Parts, check_calibrated, cut_head, parts_of
from audit.forge.lowrank import second_moment_of
from audit.forge.matrices import CutMatrix, cut_matrices, find_mlps
from audit.forge.projection import forge_projection, suffix_for
from audit.forge.quantize import ENCODABLE, quantize_rows
from audit.forge.target import check_target, name_files
from audit.forge.writers import Stored, copied, stored, write_gguf, write_safetensors

__all__ = [
    "ENCODABLE",
    "EXAMPLES",
    "Cut",
    "CutMatrix",
    "Forged",
    "Only",
    "Parts",
    "Stored",
    "block_moments",
    "check_calibrated",
    "check_forgeable",
    "check_target",
    "copied",
    "cut_block",
    "cut_head",
    "cut_matrices",
    "find_mlps",
    "forge_head",
    "forge_projection",
    "name_files",
    "parse_cut",
    "parts_of",
    "quantize_rows",
    "second_moment_of",
    "stored",
    "suffix_for",
    "write_gguf",
    "write_safetensors",
]
