"""The protocol over HTTP, carried by aiohttp."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http import HttpProcessingError

from launcher.errors import shortened
from launcher.serve import http_form, page
from launcher.serve.control import CONTROL_PATH, MOST_CONTROL_BYTES, Control
from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.http_form import LENGTH_HEADER, Call, Response
from launcher.serve.own_routes import OWN_ROUTES
from launcher.serve.room import Progress, TransferRoom
from launcher.serve.routes import ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.view.model import RunView
from launcher.view.sampling import UNSEEN_EVERY_S, Sampler
from nodes.protocol.addresses import is_own_host

LINGER_S = 10.0
"""The longest time for which the rest of a refused body is read, so that its client can read the
answer."""

PATIENCE_S = 0.25
"""How long a body or an answer may make no progress while others wait for room."""

BUFFER_BYTES = 32 * 1024
"""The bytes that aiohttp reads ahead of a body."""

LARGE_JSON_BYTES = 1 << 20
"""A body that is read in another thread, because that takes long."""

LARGE_BYTES = 64 * 1024
"""An answer that the kernel may not take at once."""

ENCODINGS = ("gzip", "deflate")
"""The encodings in which Triton's clients compress bodies."""

_GIVEN_UP = {one.http_status for one in (Refusal.TOO_LARGE, Refusal.TOO_SLOW, Refusal.FULL)}

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_CLIENTS_ERRORS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)

T = TypeVar("T")

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
    """Serve at this address, and give the port; answer requests in flight before leaving.

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
        with Sampler(look, service.recent.keep, lambda: UNSEEN_EVERY_S):
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
    """Lets requests in, and answers them."""

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
            lambda: self.service.repository.largest_binary_bytes,
        )
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
            if request.method == "GET" and request.path in page.PATHS:
                return web.Response(body=page.BODY, headers=page.HEADERS)
            if origin is not None and allowed is None:
                raise RequestError(
                    f"pages of {origin[:200]!r} may not use this server; see cors_origins",
                    Refusal.FORBIDDEN,
                )
            if request.method == "OPTIONS" and allowed is not None:
                answer = Response(204, ())
            else:
                answer = await _answer(self.service, self.room, request)
        except Exception as error:  # noqa: BLE001 - whatever it is, this client gets an answer
            known = as_request_error(error)
            if known is not error and known.refusal is Refusal.INTERNAL:
                _log.error("%s %s", request.method, request.path, exc_info=error)
            answer = http_form.write_error(known)
        return _as_web(answer, allowed)


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


async def _answer(service: Service, room: TransferRoom, request: web.BaseRequest) -> Response:
    own = OWN_ROUTES.get((request.method, request.path))
    if own is not None:
        return await own(service, request.headers)
    read = partial(_body, room, service.limits.read_s, request)
    if service.control is not None and request.path.startswith(CONTROL_PATH):
        return await _control(service, service.control, request, read)
    call = http_form.route(request.method, request.path)
    if call.what not in ("live", "server_ready"):
        service.check_token(request.headers.get("Authorization"))
    if call.what == "infer":
        async with service.routes.bound(call.model, call.version) as served:
            return await _infer(service, request, served, read)
    models = service.repository.models
    if call.model:
        models = (service.repository.find(call.model, call.version),)
    return _report(service, call, models)


Read = Callable[[int, str, Callable[[bytes], Any]], Awaitable[Any]]
"""Returns what the function makes of the body, if it has no more bytes than that; the text says why
it may not."""


async def _control(
    service: Service, control: Control, request: web.BaseRequest, read: Read
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
    body = await read(MOST_CONTROL_BYTES, "which no command needs", bytes)
    path = request.path.removeprefix(CONTROL_PATH)
    status, data = await control.answer(request.method, path, body)
    return http_form.write_json(data, status)


async def _infer(
    service: Service, request: web.BaseRequest, served: ServedVersion, read: Read
) -> Response:
    began_s = time.monotonic()
    model, json_bytes = served.model, request.headers.get(LENGTH_HEADER)
    most = model.largest_json_bytes if json_bytes is None else model.largest_binary_bytes
    given = await read(
        most,
        "which this model's inputs need at most",
        partial(http_form.read_infer, json_bytes=json_bytes, model=model),
    )
    trace = service.begin_trace(request.headers, served, "http", began_s)
    outputs = await service.infer(served, given.inputs, given.id, trace)
    return http_form.write_infer(given, model, outputs)


async def _body(
    room: TransferRoom,
    limit_s: float,
    request: web.BaseRequest,
    most_bytes: int,
    why: str,
    use: Callable[[bytes], T],
) -> T:
    """Return what `use` makes of the body, inflated, if it arrives in time and has no more bytes,
    which `why` tells."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", *ENCODINGS):
        raise RequestError(
            f"Content-Encoding is {shortened(encoding)!r}; send the body as it is, or as "
            + " or ".join(ENCODINGS),
            Refusal.UNSUPPORTED,
        )
    too_large = RequestError(
        f"the body is larger than {most_bytes} bytes, {why}", Refusal.TOO_LARGE
    )
    if (length := request.content_length or 0) > most_bytes:
        raise too_large
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def read(progress: Progress) -> bytes:
        size_bytes = 0
        parts: list[bytes] = []
        try:
            async for part in request.content.iter_any():
                progress(len(part))
                size_bytes += len(part)
                if size_bytes > most_bytes:
                    raise too_large
                parts.append(part)
            return b"".join(parts)
        finally:
            parts.clear()  # an error may live longer, and with it this frame

    size_bytes = length if length and encoding == "identity" else most_bytes
    try:
        if encoding != "identity":
            return await room.hold_and_read(
                size_bytes, read, limit_s, lambda body: use(_inflated(body, most_bytes, too_large))
            )
        if size_bytes > LARGE_JSON_BYTES and LENGTH_HEADER not in request.headers:
            return await room.hold_and_read(size_bytes, read, limit_s, use)
        return use(await room.hold(size_bytes, read, limit_s))
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RequestError(f"the body cannot be read: {shortened(str(error))}") from None


def _inflated(body: bytes, most_bytes: int, too_large: RequestError) -> bytes:
    """Inflate a body of gzip or zlib, and no more of it than it may have."""
    inflating = zlib.decompressobj(zlib.MAX_WBITS | 32)
    parts, size_bytes = [], 0
    with suppress(zlib.error):
        for at in range(0, len(body), BUFFER_BYTES):
            rest = body[at : at + BUFFER_BYTES]
            while rest and not inflating.eof:
                parts.append(inflating.decompress(rest, BUFFER_BYTES))
                rest = inflating.unconsumed_tail
                size_bytes += len(parts[-1])
                if size_bytes > most_bytes:
                    raise too_large
            if inflating.eof and at + BUFFER_BYTES >= len(body) and not inflating.unused_data:
                return b"".join(parts)
    raise RequestError("the body is not compressed as its Content-Encoding says, or is cut off")


def _report(service: Service, call: Call, models: Sequence[ServedModel]) -> Response:
    """Answer a question about the server, or about `models`."""
    match call.what:
        case "live":
            return Response(200, ())
        case "server_ready" | "ready":
            ready = service.is_ready
            return Response(200 if ready else Refusal.UNAVAILABLE.http_status, ())
        case "server":
            return http_form.write_json(http_form.server_metadata(service.version))
        case "model":
            return http_form.write_json(http_form.model_metadata(models[0]))
        case "config":
            return http_form.write_json(http_form.model_config(models[0]))
        case "stats":
            return http_form.write_json(http_form.model_statistics(models))
        case _:
            return http_form.write_json(http_form.repository_index(models, service.is_ready))
