"""The protocol over gRPC, carried by grpcio.

Methods that take one message are declared as if they took a stream, which is the same on the wire:
so a message that arrives too slowly can be refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

import grpc

from launcher.serve.errors import Refusal, RequestError, as_request_error
from launcher.serve.not_offered import METHODS as NOT_OFFERED
from launcher.serve.over_grpc import form
from launcher.serve.over_grpc.health import HEALTH, REFLECTION, Reflection, ServerHealth
from launcher.serve.over_grpc.messages import METHODS, SERVICE, STREAM
from launcher.serve.over_grpc.stream import Streams
from launcher.serve.room import TransferRoom
from launcher.serve.service import Service

PATIENCE_S = 0.5
"""How long a message may take to arrive while others wait for room; how much of it has arrived is
not known.
"""

FRAME_BYTES = 1 << 20
"""HTTP/2's frame size, instead of 16 KiB: a tensor comes in fewer pieces."""

FOR_EVERYBODY = ("ServerLive", "ServerReady")
"""Methods of the protocol without a token."""

_STRANGERS = {
    *(f"{SERVICE}/{name}" for name in FOR_EVERYBODY),
    f"{HEALTH}/Check",
    f"{HEALTH}/Watch",
}
"""Methods whose callers may be anybody."""

STRANGERS_S = 0.5
"""How long an answer may take to leave if it needs no token, or refuses a call that has none."""

LEAST_PING_MS = 200
"""The least time between two pings of a client that sends nothing else: clients that watch whether
their connection lives send one each few seconds. More frequent ones end the connection."""

_log = logging.getLogger(__name__)
logging.getLogger("grpc._cython.cygrpc").addFilter(
    lambda record: not (record.exc_info and isinstance(record.exc_info[1], grpc.aio.BaseError))
)  # else each client could fill the log with calls that it leaves


@asynccontextmanager
async def grpc_server(
    service: Service, host: str, port: int, *, tls: tuple[bytes, bytes] | None, most: int
) -> AsyncIterator[int]:
    """Serve at this address, and yield the port; answer requests in flight before leaving.

    `tls` is a private key and a chain of certificates, both PEM. At most `most` calls are in
    progress. Raises `OSError` if the address cannot be listened at.
    """
    limits = service.limits
    read_ms = int(limits.read_s * 1000)
    largest_bytes = service.largest_message_bytes
    room = TransferRoom(limits.room_bytes, PATIENCE_S, lambda: largest_bytes)
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
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_MS),
            ("grpc.max_connection_idle_ms", read_ms),
            ("grpc.http2.bdp_probe", 0),  # else the window of a stream grows before it is read
            ("grpc.so_reuseport", 0),
        ],
    )

    async def message(context: Any) -> Any:
        return await context.read()

    async def read(context: Any) -> Any:
        return await room.hold(largest_bytes, lambda _: message(context), limits.read_s)

    strangers_room = TransferRoom(0, PATIENCE_S, lambda: largest_bytes)

    async def read_strangers(context: Any) -> bytes:
        return _message(
            await strangers_room.hold(largest_bytes, lambda _: message(context), limits.read_s)
        )

    ends = _Ends(limits.read_s)
    streams = Streams(partial(_streamed, service), limits, ends.must_leave)
    health = ServerHealth(service, partial(ends.must_leave, is_known=False))

    async def check(context: Any) -> bytes:
        return health.check(await read_strangers(context))

    async def watch(context: Any) -> None:
        await health.watch(await read_strangers(context), context)

    answers: dict[str, Answer] = {
        f"{SERVICE}/{name}": partial(_answer, name, service, read) for name in METHODS
    }
    answers |= {
        f"{SERVICE}/{name}": partial(_refuse, sentence) for name, sentence in NOT_OFFERED.items()
    }
    answers[f"{HEALTH}/Check"] = check
    streaming: dict[str, Answer] = {
        f"{SERVICE}/{STREAM}": partial(_stream, service, streams),
        f"{HEALTH}/Watch": watch,
    }
    reflecting = partial(_reflect, service, Reflection(ends.must_leave, limits.read_s))
    streaming |= {f"{name}/ServerReflectionInfo": reflecting for name in REFLECTION}
    server.add_generic_rpc_handlers((_methods(answers, streaming, ends),))
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if tls is None:
            bound = server.add_insecure_port(address)
        else:
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([tls]))
    except RuntimeError as error:
        raise OSError(None, f"{error}", address) from error
    ends.port = bound
    await server.start()
    try:
        yield bound
    finally:
        streams.stop()
        health.stop()
        await server.stop(limits.grace_s)


class _Ends:
    """Closes connections whose clients do not take an answer in time.

    Their calls would keep their places for ever: grpcio cannot end a call whose answer waits for
    the client's window of HTTP/2.
    """

    def __init__(self, limit_s: float) -> None:
        self.port = 0
        """The port of this server."""
        self._limit_s = limit_s
        self._late: set[str] = set()

    def must_leave(self, context: Any, *, is_known: bool = True) -> asyncio.TimerHandle:
        """Close the connection of a call unless this timer is cancelled in time; a client that is
        not known has less.
        """
        limit_s = self._limit_s if is_known else min(self._limit_s, STRANGERS_S)
        return asyncio.get_running_loop().call_later(limit_s, self._close, context.peer())

    def _close(self, peer: str) -> None:
        if not self._late:  # others of the same connection will also be late
            asyncio.get_running_loop().call_later(STRANGERS_S / 10, self._close_late)
        self._late.add(peer)

    def _close_late(self) -> None:
        late, self._late = {_address(peer) for peer in self._late}, set()
        for number in map(int, os.listdir("/dev/fd")):
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
                if (
                    one.family in (socket.AF_INET, socket.AF_INET6)
                    and one.getsockname()[1] == self.port
                    and _plain(*one.getpeername()[:2]) in late
                ):
                    one.shutdown(socket.SHUT_RDWR)


def _address(peer: str) -> tuple[str, int]:
    """The address in what grpcio calls a peer, such as `ipv6:%5B::1%5D:50211`."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]"), int(port))


def _plain(host: str, port: int) -> tuple[str, int]:
    """Return an address in one form for all kinds of sockets."""
    address = ip_address(host.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), port


Answer = Callable[[Any], Awaitable[bytes | None]]
"""Returns the answer to a call, or None if it has written its answers."""


def _handler(
    method: str, ends: _Ends, answer: Answer
) -> Callable[[Any, Any], Awaitable[bytes | None]]:
    async def handle(_: object, context: Any) -> bytes | None:
        def leaves(*, is_known: bool) -> None:
            timer = ends.must_leave(context, is_known=is_known)
            context.add_done_callback(lambda _: timer.cancel())

        try:
            data = await answer(context)
            leaves(is_known=method not in _STRANGERS)
            return data
        except grpc.aio.BaseError:  # nothing can be written now
            raise asyncio.CancelledError from None
        except Exception as error:  # noqa: BLE001 - whatever it is, this client gets an answer
            known = _known(method, error)
        refused = known.refusal in (Refusal.UNAUTHENTICATED, Refusal.NOT_OFFERED)
        leaves(is_known=method not in _STRANGERS and not refused)
        await context.abort(grpc.StatusCode[known.refusal.grpc_code], str(known))
        raise AssertionError("abort returned")

    return handle


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Handles methods by their names, and refuses others."""

    def __init__(self, handlers: Mapping[str, Any], unknown: Any) -> None:
        self._handlers = handlers
        self._unknown = unknown

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call."""
        return self._handlers.get(handler_call_details.method.removeprefix("/"), self._unknown)


def _methods(
    answers: Mapping[str, Answer], streaming: Mapping[str, Answer], ends: _Ends
) -> _Methods:
    """Return the handlers of methods with one answer, and of those that write answers themselves;
    names are SERVICE/METHOD."""
    one, several = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
    handlers = {name: one(_handler(name, ends, answer)) for name, answer in answers.items()}
    handlers |= {name: several(_handler(name, ends, answer)) for name, answer in streaming.items()}
    no_method = partial(_refuse, "the service has no such method")
    return _Methods(handlers, one(_handler("another", ends, no_method)))


async def _refuse(sentence: str, _: object) -> bytes:
    raise RequestError(sentence, Refusal.NOT_OFFERED)


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
    if method in FOR_EVERYBODY:  # whose messages are empty: nothing is read
        data: Any = b""
    else:
        _check_token(service, context)
        data = await read(context)
    data = _message(data)
    if method == "ModelInfer":
        return await _infer(service, data, dict(context.invocation_metadata() or ()))
    return form.answer(method, data, service.repository, service.version, service.is_ready)


def _message(data: Any) -> bytes:
    """Return a message that was read, unless the call has ended without one."""
    if not isinstance(data, bytes):
        raise RequestError("the call has no message")
    return data


async def _infer(
    service: Service, data: bytes, metadata: Mapping[str, str] = {}, *, is_streamed: bool = False
) -> bytes:
    began_s = time.monotonic()
    given = form.parse_infer(data)
    async with service.routes.bound(given.model, given.version, len(data)) as served:
        call = form.read_infer(given, served.model)
        trace = service.begin_trace(metadata, served, "grpc", began_s)
        outputs = await service.infer_all(served, call, trace)
    return form.write_infer(call, served.model, outputs, is_streamed=is_streamed)


async def _stream(service: Service, streams: Streams, context: Any) -> None:
    _check_token(service, context)
    await streams.handle(context)


async def _reflect(service: Service, reflection: Reflection, context: Any) -> None:
    _check_token(service, context)
    await reflection.handle(context)


async def _streamed(service: Service, data: bytes) -> bytes:
    """Return the response to one request of a stream."""
    try:
        return form.streamed(await _infer(service, data, is_streamed=True))
    except Exception as error:  # noqa: BLE001 - the other requests of the stream are answered
        return form.streamed_error(data, str(_known(STREAM, error)))
