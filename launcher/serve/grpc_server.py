"""The protocol over gRPC, carried by grpcio.

Methods that take one message are declared as if they took a stream, which looks the same on the
wire: so a message that arrives too slowly can be given up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc

from launcher.serve import grpc_form
from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.grpc_stream import Streams
from launcher.serve.messages import METHODS, SERVICE, STREAM
from launcher.serve.room import TransferRoom
from launcher.serve.service import Service

PATIENCE_S = 0.5
"""How long a message may take to arrive while others wait for room; how much of it has come is not
known."""

READERS = 8
"""Messages for which there is room, however large they may be."""

FRAME_BYTES = 1 << 20
"""Of HTTP/2, instead of 16 KiB: a tensor comes in fewer pieces."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def grpc_server(
    service: Service, host: str, port: int, *, tls: tuple[bytes, bytes] | None, most: int
) -> AsyncIterator[int]:
    """Serve at this address, and give the port; answer what is under way before leaving.

    `tls` is a private key and a chain of certificates, both PEM. At most `most` calls are under
    way. Raises `OSError` if the address cannot be listened at.
    """
    limits = service.limits
    read_ms = int(limits.read_s * 1000)
    largest_bytes = service.largest_message_bytes
    room = TransferRoom(max(limits.room_bytes, READERS * largest_bytes), PATIENCE_S)
    server = grpc.aio.server(
        maximum_concurrent_rpcs=most,
        options=[
            ("grpc.max_receive_message_length", largest_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.max_frame_size", FRAME_BYTES),
            ("grpc.max_concurrent_streams", most),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.server_handshake_timeout_ms", read_ms),
            ("grpc.keepalive_time_ms", read_ms),
            ("grpc.max_connection_idle_ms", read_ms),
            ("grpc.http2.bdp_probe", 0),  # else the window of a stream grows before it is read
            ("grpc.so_reuseport", 0),
        ],
    )

    async def message(context: Any) -> Any:
        return await context.read()

    async def read(context: Any) -> Any:
        return await room.hold(largest_bytes, lambda _: message(context), limits.read_s)

    streams = Streams(partial(_streamed, service), limits)
    handlers = {
        name: grpc.stream_unary_rpc_method_handler(
            _handler(name, partial(_answer, name, service, read))
        )
        for name in METHODS
    }
    handlers[STREAM] = grpc.stream_stream_rpc_method_handler(
        _handler(STREAM, partial(_stream, service, streams))
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
    except RuntimeError as error:
        raise OSError(None, f"{error}", address) from error
    await server.start()
    try:
        yield bound
    finally:
        streams.stop()
        await server.stop(limits.grace_s)


def _handler(
    method: str, answer: Callable[[Any], Awaitable[bytes | None]]
) -> Callable[[Any, Any], Awaitable[bytes | None]]:
    async def handle(_: object, context: Any) -> bytes | None:
        try:
            return await answer(context)
        except Exception as error:  # noqa: BLE001 - whatever it is, this client gets an answer
            known = _known(method, error)
        await context.abort(grpc.StatusCode[known.refusal.grpc_code], str(known))
        raise AssertionError("abort returned")

    return handle


def _known(method: str, error: Exception) -> RequestError:
    known = as_request_error(error)
    if known is not error and known.refusal is Refusal.INTERNAL:
        _log.error("%s", method, exc_info=error)
    return known


def _check_token(service: Service, context: Any) -> None:
    metadata = dict(context.invocation_metadata() or ())
    service.check_token(metadata.get("authorization"))


Read = Callable[[Any], Awaitable[Any]]
"""Returns the next message of a call, or `grpc.aio.EOF`."""


async def _answer(method: str, service: Service, read: Read, context: Any) -> bytes:
    if method in ("ServerLive", "ServerReady"):  # whose messages are empty: nothing is read
        data: Any = b""
    else:
        _check_token(service, context)
        data = await read(context)
    if not isinstance(data, bytes):
        raise RequestError("the call has no message")
    if method == "ModelInfer":
        return await _infer(service, data, dict(context.invocation_metadata() or ()))
    return grpc_form.answer(method, data, service.repository, service.version, service.is_ready)


async def _infer(
    service: Service, data: bytes, metadata: Mapping[str, str] = {}, *, is_streamed: bool = False
) -> bytes:
    began_s = time.monotonic()
    given = grpc_form.parse_infer(data)
    async with service.routes.bound(given.model, given.version) as served:
        call = grpc_form.read_infer(given, served.model)
        trace = service.begin_trace(metadata, served, "grpc", began_s)
        outputs = await service.infer(served, call.inputs, call.id, trace)
    return grpc_form.write_infer(call, outputs, is_streamed=is_streamed)


async def _stream(service: Service, streams: Streams, context: Any) -> None:
    _check_token(service, context)
    await streams.handle(context)


async def _streamed(service: Service, data: bytes) -> bytes:
    """Return the response to one request of a stream."""
    try:
        return grpc_form.streamed(await _infer(service, data, is_streamed=True))
    except Exception as error:  # noqa: BLE001 - the other requests of the stream are answered
        return grpc_form.streamed_error(data, str(_known(STREAM, error)))
