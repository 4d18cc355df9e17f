"""Writers for the tests of concurrency, as processes of their own.

    python -m tests.ledger.writers LEDGER DATABASE write FIRST COUNT   write runs, one review each
    python -m tests.ledger.writers LEDGER DATABASE die KILLS SEED      kill writers at random points

DATABASE is a URL, or `-` for the SQLite file beside the runs. A killed writer is forked, so that it
is killed while it writes, not while Python starts.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

from audit.ledger import Ledger, open_ledger
from tests.ledger.made import POLICY, TABLE, a_candidate, a_gate, a_review, a_run


def write(ledger: Ledger, first: int, count: int) -> None:
    """Judged runs with a policy and a review each; told apart by their seeds."""
    for seed in range(first, first + count):
        policy = ledger.save_policy(f"{POLICY}# {seed % 3}\n")
        gate = a_gate("pass", policy=policy)
        run = ledger.save_run(a_run(seed, a_candidate(gate=gate)), [TABLE])
        ledger.add_review(a_review(run, gate, reason=f"run {seed}"))


def die(place: str, database: str | None, kills: int, seed: int) -> None:
    """Print how many runs were visible after each kill."""
    rng = random.Random(seed)
    open_ledger(place, database).check_writable()
    for number in range(kills):
        busy, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                ledger = open_ledger(place, database)
                write(ledger, 1000 * number, 1)  # the first one loads much that is not ours
                os.write(told, b"!")
                write(ledger, 1000 * number + 1, 999)
            finally:
                os._exit(1)
        os.read(busy, 1)
        time.sleep(rng.uniform(0.0, 0.3))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(busy)
        os.close(told)
        print(len(open_ledger(place, database).run_ids()), flush=True)


def main() -> None:
    place, named, task, first, second = sys.argv[1:]
    database = None if named == "-" else named
    if task == "write":
        write(open_ledger(place, database), int(first), int(second))
    else:
        die(place, database, int(first), int(second))


if __name__ == "__main__":
    main()
