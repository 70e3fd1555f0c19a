"""A web server that answers as a test says, and remembers what was posted."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.answer(self)

    def log_message(self, *_: object) -> None: ...


class WebServer(ThreadingHTTPServer):
    """`answer` answers each request; `posted` has the objects, and `headers` the last headers."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.answer: Answer = accept
        self.posted: list[dict[str, Any]] = []
        self.connections = 0
        self.headers: dict[str, str] = {}
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None: ...

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


def accept(handler: Handler) -> None:
    handler.server.posted.append(json.loads(handler.body))
    handler.server.headers = dict(handler.headers)
    status(204)(handler)


def status(code: int, **headers: str) -> Answer:
    def answer(handler: Handler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if code != 204:
            handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def raw(*parts: bytes, end: Callable[[], object] | None = None) -> Answer:
    """Write these bytes in place of an answer, then wait for `end`, and close."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
        if end is not None:
            end()

    return answer


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
