"""Audit a compressed draft head against its reference, on identical hidden states.

A file becomes a `Head`, a corpus becomes a `Trace`, two heads on one trace become a position
table, the table becomes estimates, estimates become a verdict, and all of it becomes a `Run`,
which the reports and the command line only read. `audit.run` wires this together: read it first.

The public Python API is `compare`, `gate`, `exit_code` and `AuditError`; it is loaded when it is
first used, so that what only judges or shows starts without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.api import compare, exit_code, gate
    from audit.errors import AuditError

__version__ = "0.1.0"
_PLACES = {
    "AuditError": "audit.errors",
    "compare": "audit.api",
    "exit_code": "audit.api",
    "gate": "audit.api",
}
__all__ = ["AuditError", "__version__", "compare", "exit_code", "gate"]


def __getattr__(name: str) -> Any:
    """A name of the public API. Raises AttributeError for any other."""
    if name not in _PLACES:
        raise AttributeError(f"module 'audit' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
