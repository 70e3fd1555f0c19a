"""Answers `GET /metrics` for Prometheus, in a separate thread from the agent's loop.

The thread asks the loop for an `AgentFigures`, which is immutable, and writes it in Prometheus'
text format. That needs no library, so an agent stays as small as it is; without `--metrics` nothing
of this is imported. The loop does nothing until a request arrives.

Each connection has a thread, so that a slow client does not hold up Kubernetes, which asks here
whether the agent lives. Beyond `MOST_CONNECTIONS`, a newcomer replaces the oldest one.

Anyone who reaches the port can read the figures. They are not encrypted. On loopback, a page that
has its own name resolved to this machine is refused.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer, TCPServer
from typing import Any

from nodes.core.agent import AgentFigures
from nodes.protocol.addresses import is_loopback_host, is_own_host
from nodes.protocol.errors import NodeError

READ_S = 5.0
"""How long a client may take to send its request, and the answer to leave."""

MOST_CONNECTIONS = 16

ANSWER_S = 2.0
"""How long the agent's loop may take to answer; it may be busy with a large message."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


Look = Callable[[], "Future[AgentFigures]"]
"""Asks the agent's loop for its figures."""


class MetricsServer:
    """Listens at `host` and `port` from now on, and answers once it has begun."""

    def __init__(self, host: str, port: int) -> None:
        """Raises `NodeError` if the address cannot be listened at."""
        try:
            self._server = _Server(host, port)
        except OSError as error:
            raise NodeError(f"--metrics {host}:{port}: {error.strerror or error}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="metrics", daemon=True
        )

    @property
    def address(self) -> str:
        """Where it listens, as HOST:PORT."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def begin(self, look: Look) -> None:
        """Answer from now on."""
        self._server.look = look
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    look: Look

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.is_local = is_loopback_host(host)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind as the base class does, without looking up this machine's name in the DNS."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "node-agent", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; the oldest connection ends if there are too many."""
        with self._lock:
            self._open.append(request)
            if len(self._open) > MOST_CONNECTIONS:
                with suppress(OSError):  # its client has closed it
                    self._open.pop(0).shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock, suppress(ValueError):  # it has given way
            self._open.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect: they are not logged."""


class _Handler(BaseHTTPRequestHandler):
    timeout = READ_S
    server_version = "node-agent"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request."""
        server: BaseServer = self.server
        assert isinstance(server, _Server)  # noqa: S101 - for the type checker
        if server.is_local and not is_own_host(self.headers.get("Host", "")):
            self._answer(HTTPStatus.FORBIDDEN, "ask for the address of this machine\n")
            return
        if self.path != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, "only /metrics is served\n")
            return
        try:
            figures = server.look().result(ANSWER_S)
        except FutureTimeoutError:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "the agent is busy\n")
            return
        self._answer(HTTPStatus.OK, written(figures))

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        """Requests are not logged."""


def written(figures: AgentFigures) -> str:
    """Return the figures in Prometheus' text format."""
    lines = []
    for name, kind, text, value in _metrics(figures):
        metric = f"csdf_edge_agent_{name}"
        plain = metric.partition("{")[0]
        lines += [f"# HELP {plain} {text}", f"# TYPE {plain} {kind}", f"{metric} {value}"]
    return "\n".join(lines) + "\n"


def _metrics(figures: AgentFigures) -> Iterator[tuple[str, str, str, float]]:
    stats = figures.stats
    me = figures.identity
    named = {"node": me.name, "version": me.version, "engine": me.engine}
    labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in named.items())
    yield f"info{{{labels}}}", "gauge", "Name, version and engine of this agent.", 1
    yield "has_session", "gauge", "1 if a launcher is using this agent.", int(figures.has_session)
    yield "running", "gauge", "1 if frames stream through this agent.", int(figures.is_running)
    yield "resident_memory_bytes", "gauge", "Memory that this agent holds.", stats.rss_bytes
    counted = "counter"  # counters of a deployment start again at 0 with each
    yield "firings_total", counted, "Firings in this deployment.", sum(stats.firings)
    yield "busy_seconds_total", counted, "Time of these firings.", sum(stats.busy_s)
    waited_s = max(stats.waited_s, default=0.0)
    text = "Time for which nothing was computed because a phase lacked a credit."
    yield "credit_wait_seconds_total", counted, text, waited_s
    yield "sent_bytes_total", counted, "Bytes of tensors sent.", stats.sent_bytes
    yield "received_bytes_total", counted, "Bytes of tensors received.", stats.received_bytes
    if stats.energy_j is not None:
        yield "energy_joules_total", counted, "Energy of this machine.", stats.energy_j
    held = sum(stats.channel_frames)
    yield "channel_frames", "gauge", "Frames in all channels of this agent.", held
    text = "Messages that broke the protocol, since the agent's start."
    yield "bad_messages_total", counted, text, stats.bad_messages
    text = "Messages of other epochs or sessions, since the agent's start."
    yield "stale_messages_total", counted, text, stats.stale_messages


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
