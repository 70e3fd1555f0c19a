"""The protocol over gRPC, carried by grpcio.

Methods take one message, but are declared as if they took a stream, which looks the same on the
wire: so a message that arrives too slowly can be given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from launcher.serve import grpc_form
from launcher.serve.errors import RequestError, as_request_error
from launcher.serve.messages import METHODS, SERVICE
from launcher.serve.service import Service

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
    server = grpc.aio.server(
        maximum_concurrent_rpcs=most,
        options=[
            ("grpc.max_receive_message_length", service.repository.largest_json_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.http2.max_frame_size", FRAME_BYTES),
            ("grpc.max_concurrent_streams", most),
            ("grpc.max_metadata_size", 16 * 1024),
            ("grpc.max_allowed_incoming_connections", limits.connections),
            ("grpc.server_handshake_timeout_ms", read_ms),
            ("grpc.keepalive_time_ms", read_ms),
            ("grpc.so_reuseport", 0),
        ],
    )
    handlers = {
        name: grpc.stream_unary_rpc_method_handler(_handler(name, service)) for name in METHODS
    }
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
        await server.stop(limits.grace_s)


def _handler(method: str, service: Service) -> Callable[[Any, Any], Awaitable[bytes]]:
    async def handle(_: object, context: Any) -> bytes:
        try:
            return await _answer(method, service, context)
        except Exception as error:  # noqa: BLE001 - whatever it is, this client gets an answer
            known = as_request_error(error)
            if known is not error and known.refusal.grpc_code == "INTERNAL":
                _log.error("%s", method, exc_info=error)
        await context.abort(grpc.StatusCode[known.refusal.grpc_code], str(known))
        raise AssertionError("abort returned")

    return handle


async def _answer(method: str, service: Service, context: Any) -> bytes:
    if method not in ("ServerLive", "ServerReady"):
        metadata = dict(context.invocation_metadata() or ())
        service.check_token(metadata.get("authorization"))
    data = await asyncio.wait_for(context.read(), service.limits.read_s)
    if not isinstance(data, bytes):
        raise RequestError("the call has no message")
    if method != "ModelInfer":
        return grpc_form.answer(method, data, service.repository, service.version, service.is_ready)
    call = grpc_form.read_infer(data, service.repository)
    return grpc_form.write_infer(call, await service.infer(call.model, call.inputs))
