"""The protocol over HTTP, carried by aiohttp."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http import HttpProcessingError

from launcher.errors import shortened
from launcher.serve import http_form, page
from launcher.serve.control import CONTROL_PATH, MOST_CONTROL_BYTES, Control
from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.http_form import LENGTH_HEADER, Call, Response
from launcher.serve.own_routes import OWN_ROUTES
from launcher.serve.routes import ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.view.model import RunView
from launcher.view.sampling import UNSEEN_EVERY_S, Sampler

LINGER_S = 10.0
"""The longest time for which the rest of a refused body is read, so that its client can read the
answer."""

_FULL = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

_log = logging.getLogger(__name__)
_protocol_log = logging.getLogger(f"{__name__}.protocol")
_protocol_log.addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))
)  # else each client could fill the log with what is no HTTP


@asynccontextmanager
async def http_server(
    service: Service,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    cors_origins: Collection[str] = (),
) -> AsyncIterator[int]:
    """Serve at this address, and give the port; answer what is under way before leaving.

    Browsers may use it from pages of `cors_origins` only ("*": of all). Raises `OSError` if the
    address cannot be listened at.
    """

    limits = service.limits

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return await _handle(service, request, cors_origins)

    def look() -> Sequence[RunView]:
        return service.views()

    server = web.Server(
        handle,
        keepalive_timeout=limits.read_s,
        lingering_time=min(limits.read_s, LINGER_S),
        handler_cancellation=True,
        access_log=None,
        logger=_protocol_log,
    )

    def connection() -> asyncio.Protocol:
        return _Surplus() if len(server.connections) >= limits.connections else server()

    listener = await asyncio.get_running_loop().create_server(connection, host, port, ssl=tls)
    try:
        with Sampler(look, service.recent.keep, lambda: UNSEEN_EVERY_S):
            yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        server.pre_shutdown()
        await server.shutdown(limits.grace_s)


class _Surplus(asyncio.Protocol):
    """A connection beyond those that there may be."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.write(_FULL)
            transport.close()


async def _handle(
    service: Service, request: web.BaseRequest, cors_origins: Collection[str]
) -> web.StreamResponse:
    if request.method == "GET" and request.path in page.PATHS:
        return web.Response(body=page.BODY, headers=page.HEADERS)
    origin = request.headers.get("Origin")
    allowed = "*" if "*" in cors_origins else origin if origin in cors_origins else None
    try:
        if origin is not None and allowed is None:
            raise RequestError(
                f"pages of {origin[:200]!r} may not use this server; see cors_origins",
                Refusal.FORBIDDEN,
            )
        if request.method == "OPTIONS" and allowed is not None:
            answer = Response(204, ())
        else:
            answer = await _answer(service, request)
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
    if answer.status in (Refusal.TOO_LARGE.http_status, Refusal.TOO_SLOW.http_status):
        response.force_close()  # the rest of the body is not read
    return response


async def _answer(service: Service, request: web.BaseRequest) -> Response:
    own = OWN_ROUTES.get((request.method, request.path))
    if own is not None:
        return await own(service, request.headers)
    if service.control is not None and request.path.startswith(CONTROL_PATH):
        return await _control(service, service.control, request)
    call = http_form.route(request.method, request.path)
    if call.what not in ("live", "server_ready"):
        service.check_token(request.headers.get("Authorization"))
    if call.what == "infer":
        async with service.routes.bound(call.model, call.version) as served:
            return await _infer(service, request, served)
    models = service.repository.models
    if call.model:
        models = (service.repository.find(call.model, call.version),)
    return _report(service, call, models)


async def _control(service: Service, control: Control, request: web.BaseRequest) -> Response:
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
    body = await _body(service, request, MOST_CONTROL_BYTES, "which no command needs")
    path = request.path.removeprefix(CONTROL_PATH)
    status, data = await control.answer(request.method, path, body)
    return http_form.write_json(data, status)


async def _infer(service: Service, request: web.BaseRequest, served: ServedVersion) -> Response:
    began_s = time.monotonic()
    model, json_bytes = served.model, request.headers.get(LENGTH_HEADER)
    most = model.largest_json_bytes if json_bytes is None else model.largest_binary_bytes
    body = await _body(service, request, most, "which this model's inputs need at most")
    given = http_form.read_infer(body, json_bytes, model)
    trace = service.begin_trace(request.headers, served, "http", began_s)
    outputs = await service.infer(served, given.inputs, given.id, trace)
    return http_form.write_infer(given, model, outputs)


async def _body(service: Service, request: web.BaseRequest, most_bytes: int, why: str) -> bytes:
    """The body, if it arrives in time and has no more bytes; `why` says why it may not."""
    try:
        return await asyncio.wait_for(_read(request, most_bytes, why), service.limits.read_s)
    except (web.RequestPayloadError, ConnectionError) as error:
        raise RequestError(f"the body cannot be read: {shortened(str(error))}") from None


async def _read(request: web.BaseRequest, most_bytes: int, why: str) -> bytes:
    too_large = RequestError(
        f"the body is larger than {most_bytes} bytes, {why}", Refusal.TOO_LARGE
    )
    if (request.content_length or 0) > most_bytes:
        raise too_large
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    parts, size_bytes = [], 0
    async for part in request.content.iter_any():
        size_bytes += len(part)
        if size_bytes > most_bytes:
            raise too_large
        parts.append(part)
    return b"".join(parts)


def _report(service: Service, call: Call, models: Sequence[ServedModel]) -> Response:
    """Say what is asked of the server, or of `models`."""
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
