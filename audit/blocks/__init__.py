"""Draft blocks: what runs from a trace's states and tokens to the states that enter a projection.

Start at `loading.load_block_head`; `block.Block` is what it adds to a head. Every layer is one of
transformers' own, built from the model's configuration, with weights read by name from our files.
Leaves out the projection itself (`audit.heads`) and chains of several slots.
"""

from audit.blocks.block import Block
from audit.blocks.finding import heads_in, layer_count
from audit.blocks.head_names import HeadName, parse_head_name
from audit.blocks.loading import BlockHead, load_block_head
from audit.blocks.options import BlockOptions, check_read

__all__ = [
    "Block",
    "BlockHead",
    "BlockOptions",
    "HeadName",
    "check_read",
    "heads_in",
    "layer_count",
    "load_block_head",
    "parse_head_name",
]
