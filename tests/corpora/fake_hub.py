"""A hub on this machine that answers as the real one does: one data set of one Parquet file.

It speaks the part of the hub's interface that `datasets` uses to stream: the revision's commit,
the tree of files, and the files themselves with byte ranges.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pyarrow.parquet as pq

ID = "someone/texts"
COMMIT = "ab" * 20
FILE = "data/train-00000-of-00001.parquet"
TEXTS = [f"Row {i} says {i * i}." for i in range(50)]


class Hub(ThreadingHTTPServer):
    """Serves until closed; `asked` lists the paths.

    Data sets of the owner `hang` are never answered, those of `fail` with an error of the server.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        stream = io.BytesIO()
        pq.write_table(pa.table({"body": TEXTS}), stream)
        self.file = stream.getvalue()
        self.asked: list[str] = []
        self.closed = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a client that gave up waiting is no news, and stderr belongs to a later test."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def fake_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.closed.set()
        hub.shutdown()
        hub.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        if path.startswith("/api/datasets/hang/"):
            self.server.closed.wait(30)
        if path.startswith("/api/datasets/fail/"):
            return self._say(500, b"")
        api = f"/api/datasets/{ID}"
        if path in (f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return self._json({"_id": "1", "id": ID, "sha": COMMIT, "siblings": []})
        if path.startswith(f"{api}/revision/"):
            return self._say(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if path.startswith(f"{api}/tree/{COMMIT}"):
            return self._json(self._tree(path.removeprefix(f"{api}/tree/{COMMIT}").strip("/")))
        if path == f"/datasets/{ID}/resolve/{COMMIT}/{FILE}":
            return self._file()
        known = path.startswith((api, f"/datasets/{ID}/"))
        return self._say(404, b"", {"X-Error-Code": "EntryNotFound" if known else "RepoNotFound"})

    def _tree(self, folder: str) -> list[dict[str, object]]:
        file = {"type": "file", "path": FILE, "size": len(self.server.file), "oid": "b" * 40}
        data = {"type": "directory", "path": "data", "size": 0, "oid": "c" * 40}
        return [file] if folder == "data" else [data]

    def _file(self) -> None:
        data, wanted = self.server.file, self.headers.get("Range")
        first, last = 0, len(data) - 1
        if wanted:
            first, last = (int(n or last) for n in wanted.removeprefix("bytes=").split("-"))
            last = min(last, len(data) - 1)
        headers = {"ETag": '"1"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if wanted:
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        self._say(206 if wanted else 200, data[first : last + 1], headers)

    def _json(self, value: object) -> None:
        self._say(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _say(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
