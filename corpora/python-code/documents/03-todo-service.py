#!/usr/bin/env python3
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_lock = threading.Lock()
_items = {}
_next_id = 1


class TodoHandler(BaseHTTPRequestHandler):
    def _reply(self, status, payload):
        body = json.dumps(payload).encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/todos":
            with _lock:
                self._reply(HTTPStatus.OK, list(_items.values()))
        else:
            self._reply(HTTPStatus.NOT_FOUND, {"error": "no such resource"})

    def do_POST(self):
        global _next_id
        length = int(self.headers.get("Content-Length", 0))
        try:
            data = json.loads(self.rfile.read(length))
            title = data["title"].strip()
        except (ValueError, KeyError, AttributeError, TypeError):
            self._reply(HTTPStatus.BAD_REQUEST, {"error": "a title is required"})
            return
        with _lock:
            item = {"id": _next_id, "title": title, "done": False}
            _items[_next_id] = item
            _next_id += 1
        self._reply(HTTPStatus.CREATED, item)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8080), TodoHandler).serve_forever()
