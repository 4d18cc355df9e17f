"""Audit a compressed draft head against its reference, on identical hidden states.

A file becomes a `Head`, a corpus becomes a `Trace`, two heads on one trace become a position
table, the table becomes estimates, estimates become a verdict, and all of it becomes a `Run`,
which the reports and the command line only read. `audit.run` wires this together: read it first.

This module imports nothing, so that what only judges or shows starts without torch.
"""

__version__ = "0.1.0"
