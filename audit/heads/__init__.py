"""A file becomes a `Head`: read `loading` first."""

from audit.heads.head import FinalNorm, Head, PostHead
from audit.heads.loading import load_candidate, load_head, trim_reference
from audit.heads.options import HeadOptions
from audit.heads.proposals import Proposals

__all__ = [
    "FinalNorm",
    "Head",
    "HeadOptions",
    "PostHead",
    "Proposals",
    "load_candidate",
    "load_head",
    "trim_reference",
]
