"""`python -m audit.dashboard run …`: Streamlit as the child of `audit dashboard`, ended with it.

The parent holds the other end of stdin. When it is gone, however it ended, the pipe ends too; that
works on every system, also where the parent was killed and could say nothing.
"""

from __future__ import annotations

import os
import signal
import threading
import time

from streamlit.web.cli import main

_STDIN = 0
_GRACE_SECONDS = 5.0
_KILLED = 128 + signal.SIGKILL


def _end_with_parent() -> None:
    while os.read(_STDIN, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(_KILLED)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(prog_name="streamlit")
