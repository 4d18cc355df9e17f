"""The files of runs: written once, named by their content, checked whenever they are read.

    runs/<id>/positions.parquet  the table of positions
    runs/<id>/run.json           the document; a folder without it is no run

The files alone decide what runs there are; the index only finds them faster.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import pandas as pd

from audit.errors import BadUsageError, NotFoundError
from audit.ledger.documents import changed, content_id, parse_run, run_json
from audit.ledger.store import Store
from audit.provenance import sha256_file, sha256_stream
from audit.records import Run
from audit.table import Frame, read_positions, write_positions

FOLDER = "runs"
DOCUMENT = "run.json"
TABLE = "positions.parquet"


class RunFiles:
    """The runs of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self) -> list[str]:
        """What may be a run, without a look inside: for a store far away that look is dear."""
        return [name for name in self._store.children(FOLDER) if not name.startswith(".")]

    def has(self, run: str) -> bool:
        """Whether this run is there."""
        return self._store.exists(f"{FOLDER}/{run}/{DOCUMENT}")

    def ids(self) -> list[str]:
        """Ids of all runs, sorted; the order says nothing of their age."""
        return [name for name in self.names() if self.has(name)]

    def recorded(self, run: str) -> float:
        """When it was written, seconds since 1970."""
        return self._store.modified(f"{FOLDER}/{run}/{DOCUMENT}")

    def save(self, run: Run, frames: Sequence[Frame]) -> Run:
        """Write a run with its position table; return it with id and table hash filled in.

        Writing the same content twice leaves the first copy as it is.

        Raises:
            BadUsageError: the ledger can not be written.
        """
        with self._store.staging() as folder:
            table = folder / TABLE
            write_positions(pd.concat(frames, ignore_index=True), table)
            run = run.model_copy(update={"positions_sha256": sha256_file(table)})
            run = run.model_copy(update={"run": content_id(run)})
            (folder / DOCUMENT).write_text(run_json(run) + "\n", encoding="utf-8")
            self._store.publish(folder, f"{FOLDER}/{run.run}", DOCUMENT)
        return run

    def document(self, run: str) -> Run:
        """The document of a run, checked against its id.

        Raises:
            UnreadableError: no run, of a newer schema, or changed since it was written.
        """
        name = f"{FOLDER}/{run}/{DOCUMENT}"
        where = self._store.where(name)
        try:
            found = parse_run(self._store.read(name), where)
        except OSError as error:
            raise changed("run", f"its document can not be read: {error}", where) from error
        if found.run != run or content_id(found) != run:
            raise changed("run", "its content no longer gives its id", where)
        return found

    def check_table(self, run: Run) -> None:
        """Raises UnreadableError when the run's table is missing or has changed."""
        if not run.positions_sha256:
            return
        name = f"{FOLDER}/{run.run}/{TABLE}"
        try:
            with self._store.open(name) as stream:
                same = sha256_stream(stream) == run.positions_sha256
        except OSError:
            same = False
        if not same:
            why = "the table of positions is missing or has changed"
            raise changed("run", why, self._store.where(name))

    def positions(self, run: Run, columns: Sequence[str] | None = None) -> Frame:
        """The position table of a run, or some columns of it."""
        name = f"{FOLDER}/{run.run}/{TABLE}"
        where = self._store.where(name)
        try:
            with self._store.open(name) as stream:
                return read_positions(stream, columns, where)
        except FileNotFoundError as error:
            raise changed("run", "the table of positions is missing", where) from error

    def find(self, wanted: str) -> str:
        """A full id from a full id or a unique beginning of one.

        Raises:
            NotFoundError: no such run; near matches are named.
            BadUsageError: the beginning fits several runs.
        """
        names = self.names()
        matches = [name for name in names if wanted and name.startswith(wanted) and self.has(name)]
        if wanted in matches:
            return wanted
        if len(matches) == 1:
            return matches[0]
        where = self._store.where()
        if matches:
            raise BadUsageError(
                f"{wanted} fits {len(matches)} runs: {', '.join(matches[:5])}",
                hint="give more characters",
                where=where,
            )
        ids = self.ids()
        if not ids:
            raise no_runs(where)
        near = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.4) or ids[-3:]
        raise NotFoundError(
            f"there is no run {wanted!r} in this ledger",
            hint=f"did you mean {', '.join(near)}?",
            where=where,
        )


def no_runs(where: str) -> NotFoundError:
    """The error of an empty ledger."""
    hint = "make one: audit compare REF CAND"
    return NotFoundError("this ledger holds no runs", hint=hint, where=where)
