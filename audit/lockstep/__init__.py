"""Two heads and a trace -> answers at every position, streamed in vocabulary tiles.

Read `stream` first; `lane` holds the trick that keeps the cost at one product per head.
"""

from audit.lockstep.heads import compare_heads
from audit.lockstep.stream import Answers

__all__ = ["Answers", "compare_heads"]
