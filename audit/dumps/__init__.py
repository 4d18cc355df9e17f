"""Other people's hidden-state dumps become a trace: `audit import`. Read `importing` first.

`listing` and `detect` find out what was dumped, one module per tool reads it, `collect` streams its
sequences into one trace, and what the dump does not say is measured (`stage`, `alignment`) or asked
for. Leaves out everything that runs a model: that is `audit capture`.
"""

from audit.dumps.detect import READERS
from audit.dumps.importing import Imported, import_dump
from audit.dumps.request import ImportRequest

__all__ = ["READERS", "ImportRequest", "Imported", "import_dump"]
