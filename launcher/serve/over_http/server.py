"""The protocol over HTTP, carried by aiohttp."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http import HttpProcessingError

from launcher.serve import described
from launcher.serve.control import CONTROL_PATH, MOST_CONTROL_BYTES, Control
from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.over_http import form, pages
from launcher.serve.over_http.bodies import BUFFER_BYTES, Bodies
from launcher.serve.over_http.form import LENGTH_HEADER, Call, Response
from launcher.serve.over_http.own_routes import OWN_ROUTES
from launcher.serve.over_http.predicting import Predicting
from launcher.serve.room import Progress, TransferRoom
from launcher.serve.routes import ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.view.model import RunView
from launcher.view.sampling import UNSEEN_EVERY_S, sampling
from nodes.protocol.addresses import is_own_host

LINGER_S = 10.0
"""The longest time for which the rest of a refused body is read, so that its client can read the
answer."""

PATIENCE_S = 0.25
"""How long a body or an answer may make no progress while others wait for room."""

LARGE_BYTES = 64 * 1024
"""An answer that the kernel may not take at once."""

_GIVEN_UP = {one.http_status for one in (Refusal.TOO_LARGE, Refusal.TOO_SLOW, Refusal.FULL)}

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_CLIENTS_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)

_log = logging.getLogger(__name__)
_protocol_log = logging.getLogger(f"{__name__}.protocol")
_protocol_log.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], _CLIENTS_ERRORS))
)  # else each client could fill the log with bytes that are not HTTP


@asynccontextmanager
async def http_server(
    service: Service,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    cors_origins: Collection[str] = (),
) -> AsyncIterator[int]:
    """Serve at this address, and yield the port; answer requests in flight before leaving.

    Browsers may use it from pages of `cors_origins` only ("*": of all). Raises `OSError` if the
    address cannot be listened at.
    """

    limits = service.limits
    doors = _Doors(service, frozenset(cors_origins), {host, socket.gethostname().lower()})

    def look() -> Sequence[RunView]:
        return service.views()

    server = web.Server(
        doors.handle,
        keepalive_timeout=limits.read_s,
        lingering_time=min(limits.read_s, LINGER_S),
        handler_cancellation=True,
        access_log=None,
        logger=_protocol_log,
        auto_decompress=False,  # it would inflate any body without a bound
        read_bufsize=BUFFER_BYTES,
    )

    def connection() -> asyncio.Protocol:
        if len(server.connections) < limits.connections or doors.close_idle(server):
            return server()
        return _Surplus()

    loop = asyncio.get_running_loop()
    handshake_s = None if tls is None else min(limits.read_s, LINGER_S)
    listener = await loop.create_server(
        connection, host, port, ssl=tls, ssl_handshake_timeout=handshake_s
    )
    try:
        with sampling(look, service.recent.keep, lambda: UNSEEN_EVERY_S):
            yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        server.pre_shutdown()
        await server.shutdown(limits.grace_s)


class _Surplus(asyncio.Protocol):
    """A connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.write(_FULL)
            transport.close()


@dataclass
class _Doors:
    """Admits requests, and answers them."""

    service: Service
    cors_origins: frozenset[str]
    hosts: Collection[str]
    """Names of this machine, in addition to addresses and private names."""
    busy: set[web.RequestHandler] = field(default_factory=set)
    """Connections with a request in flight."""

    def __post_init__(self) -> None:
        self.room = TransferRoom(
            self.service.limits.room_bytes,
            PATIENCE_S,
            lambda: self.service.repository.largest_frame_bytes,
        )
        self.predicting = Predicting(self.service)
        self.hosts = {*self.hosts, *(urlsplit(one).hostname or "" for one in self.cors_origins)}

    def close_idle(self, server: web.Server) -> bool:
        """Close the oldest connection without a request; return whether there was one."""
        for one in server.connections:
            if one not in self.busy and one.connected:
                one.force_close()
                return True
        return False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request."""
        self.busy.add(request.protocol)
        try:
            response = await self._respond(request)
            if isinstance(response.body, bytes) and len(response.body) > LARGE_BYTES:
                await self._send(request, response, len(response.body))
        finally:
            self.busy.discard(request.protocol)
        return response

    def _check_host(self, header: str) -> None:
        """Refuse requests of a page whose own name resolves to this machine (DNS rebinding)."""
        if not is_own_host(header, self.hosts):
            raise RequestError(
                f"the request is for {header[:200]!r}, which may be a page's name for this "
                "machine: use its address, give the server a token, or add "
                f"{'http://' + header[:200]!r} to cors_origins",
                Refusal.FORBIDDEN,
            )

    async def _send(
        self, request: web.BaseRequest, response: web.Response, size_bytes: int
    ) -> None:
        """Send a large answer, in time; close its connection otherwise."""

        async def send(_: Progress) -> None:
            await response.prepare(request)
            await response.write_eof()

        try:
            await self.room.hold(size_bytes, send, self.service.limits.read_s)
        except (RequestError, asyncio.TimeoutError):
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionError("the client reads too slowly") from None

    async def _respond(self, request: web.BaseRequest) -> web.Response:
        origin = request.headers.get("Origin")
        everybody = "*" in self.cors_origins
        allowed = "*" if everybody else origin if origin in self.cors_origins else None
        try:
            if self.service.token is None and not everybody:
                self._check_host(request.headers.get("Host", ""))
            if request.method in ("GET", "HEAD") and request.path in pages.FILES:
                body, headers = pages.FILES[request.path]
                return web.Response(body=body, headers=headers)
            if origin is not None and allowed is None and not _is_own_page(origin, request):
                raise RequestError(
                    f"pages of {origin[:200]!r} may not use this server; see cors_origins",
                    Refusal.FORBIDDEN,
                )
            if request.method == "OPTIONS" and allowed is not None:
                answer = Response(204, ())
            else:
                answer = await self._answer(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, this client gets an answer
            known = as_request_error(error)
            if known is not error and known.refusal is Refusal.INTERNAL:
                _log.error("%s %s", request.method, request.path, exc_info=error)
            answer = form.write_error(known)
        return _as_web(answer, allowed)

    async def _answer(self, request: web.BaseRequest) -> Response:
        service = self.service
        method = "GET" if request.method == "HEAD" else request.method
        own = OWN_ROUTES.get((method, request.path.rstrip("/")))
        if own is not None:
            return await own(service, request.headers)
        bodies = Bodies(self.room, service.limits.read_s, request)
        if service.control is not None and request.path.startswith(CONTROL_PATH):
            return await _control(service, service.control, request, bodies)
        call = form.route(method, request.path)
        if call.what not in ("live", "server_ready"):
            service.check_token(request.headers.get("Authorization"))
        if call.what in ("infer", "predict"):
            async with service.routes.bound(call.model, call.version) as served:
                if call.what == "infer":
                    return await _infer(service, request, served, bodies)
                return await self.predicting.answer(request, served, bodies)
        models = service.repository.models
        if call.model:
            models = (service.repository.find(call.model, call.version),)
        return _report(service, call, models)


def _is_own_page(origin: str, request: web.BaseRequest) -> bool:
    """Whether a request comes from a page of this server.

    A page whose own name resolves to this machine has no token, and is refused without one.
    """
    return urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower() != ""


def _as_web(answer: Response, allowed: str | None) -> web.Response:
    headers = {}
    if answer.json_bytes is not None:
        headers[LENGTH_HEADER] = str(answer.json_bytes)
        headers["Content-Type"] = "application/octet-stream"
    elif answer.parts:
        headers["Content-Type"] = answer.content_type
    if answer.status == Refusal.UNAUTHENTICATED.http_status:
        headers["WWW-Authenticate"] = "Bearer"
    if allowed is not None:
        headers |= {
            "Access-Control-Allow-Origin": allowed,
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": f"Authorization, Content-Type, {LENGTH_HEADER}",
            "Access-Control-Expose-Headers": LENGTH_HEADER,
            "Vary": "Origin",
        }
    body = answer.parts[0] if len(answer.parts) == 1 else b"".join(answer.parts)
    response = web.Response(status=answer.status, body=body, headers=headers)
    if answer.status in _GIVEN_UP:
        response.force_close()  # the rest of the body is not read
    return response


async def _control(
    service: Service, control: Control, request: web.BaseRequest, bodies: Bodies
) -> Response:
    """Answer an operator of the service."""
    authorization = request.headers.get("Authorization")
    if not control.is_operator(authorization):
        if request.method != "GET":
            raise RequestError(
                "this needs the operator's token, which is in control.json in the state folder of "
                "the service: send the header 'Authorization: Bearer TOKEN'",
                Refusal.UNAUTHENTICATED,
            )
        service.check_token(authorization)
    body = await bodies.read(MOST_CONTROL_BYTES, "which no command needs", bytes)
    path = request.path.removeprefix(CONTROL_PATH)
    status, data = await control.answer(request.method, path, body)
    return form.write_json(data, status)


async def _infer(
    service: Service, request: web.BaseRequest, served: ServedVersion, bodies: Bodies
) -> Response:
    began_s = time.monotonic()
    model, json_bytes = served.model, request.headers.get(LENGTH_HEADER)
    most = model.largest_json_bytes if json_bytes is None else model.largest_binary_bytes
    given = await bodies.read(
        most,
        "which this model's inputs need at most",
        partial(form.read_infer, json_bytes=json_bytes, model=model),
    )
    trace = service.begin_trace(request.headers, served, "http", began_s)
    outputs = await service.infer_all(served, given, trace)
    return form.write_infer(given, model, outputs)


def _report(service: Service, call: Call, models: Sequence[ServedModel]) -> Response:
    """Answer a question about the server, or about `models`."""
    match call.what:
        case "live":
            return Response(200, ())
        case "server_ready" | "ready":
            ready = service.is_ready
            return Response(200 if ready else Refusal.UNAVAILABLE.http_status, ())
        case "server":
            return form.write_json(described.server_metadata(service.version))
        case "model":
            return form.write_json(described.model_metadata(models[0]))
        case "config":
            return form.write_json(described.model_config(models[0]))
        case "stats":
            return form.write_json(described.model_statistics(models))
        case _:
            return form.write_json(described.repository_index(models, service.is_ready))
