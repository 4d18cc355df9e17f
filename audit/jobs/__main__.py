"""`python -m audit.jobs JOBS`: the worker of the queue in that folder, as a process of its own."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from audit.jobs.worker import work

# A background process of a shell may have been told to ignore it; its audits must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
work(Path(sys.argv[1]))
