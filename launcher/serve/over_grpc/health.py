"""`grpc.health.v1`, which probes ask, and reflection, by which tools such as grpcurl find methods.

Health needs no token, so what its callers can hold is bounded more tightly than for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorProto  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from launcher.serve.errors import Refusal, RequestError
from launcher.serve.over_grpc.messages import SERVICE, descriptors, parsed
from launcher.serve.service import Service
from launcher.serve.tensors import MESSAGE_BYTES

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""The names of one protocol, whose messages are the same."""

MOST_CALLS = 32
"""Calls of `Watch`, and calls of reflection, that may be in progress."""

WATCH_EVERY_S = 1.0
"""How often the health of a watched service is looked at."""

Leave = Callable[[Any], asyncio.TimerHandle]
"""Ends a call unless the timer that it returns is cancelled in time."""

Read = Callable[[Any], Awaitable[Any]]
"""Returns the next message of a call, or `grpc.aio.EOF`."""


class ServerHealth:
    """Answers `Check` and `Watch`: a server is healthy while all its models compute frames."""

    def __init__(self, service: Service, must_leave: Leave) -> None:
        self._service = service
        self._must_leave = must_leave
        self._stopped = asyncio.Event()
        self._watching = 0

    def stop(self) -> None:
        """End all calls of `Watch`."""
        self._stopped.set()

    def check(self, data: bytes) -> bytes:
        """Return the encoded answer to `Check`. Raises `RequestError` for an unknown service."""
        status = self._status(_asked_service(data))
        if status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN:
            raise RequestError(f"the server is asked as '' or {SERVICE!r}", Refusal.NOT_FOUND)
        return _encoded(status)

    async def watch(self, data: bytes, context: Any) -> None:
        """Write the status now and whenever it changes. Raises `RequestError`."""
        name = _asked_service(data)
        if self._watching >= MOST_CALLS:
            raise RequestError(f"{MOST_CALLS} calls watch, which is the maximum", Refusal.FULL)
        self._watching += 1
        try:
            before = None
            while not self._stopped.is_set():
                if (status := self._status(name)) != before:
                    await _write(context, _encoded(status), self._must_leave)
                    before = status
                stopping = asyncio.ensure_future(self._stopped.wait())
                await asyncio.wait((stopping,), timeout=WATCH_EVERY_S)
                stopping.cancel()
        finally:
            self._watching -= 1
        raise RequestError("the server is shutting down", Refusal.UNAVAILABLE)

    def _status(self, name: str) -> int:
        statuses = health_pb2.HealthCheckResponse
        if name not in ("", SERVICE):
            found = statuses.SERVICE_UNKNOWN
        else:
            found = statuses.SERVING if self._service.is_ready else statuses.NOT_SERVING
        return int(found)


def _asked_service(data: bytes) -> str:
    if len(data) > MESSAGE_BYTES:
        raise RequestError("the message is too large", Refusal.TOO_LARGE)
    return str(parsed(health_pb2.HealthCheckRequest, data).service)


def _encoded(status: int) -> bytes:
    return bytes(health_pb2.HealthCheckResponse(status=status).SerializeToString())


async def _write(context: Any, data: bytes, must_leave: Leave) -> None:
    timer = must_leave(context)
    try:
        await context.write(data)
    finally:
        timer.cancel()


class Reflection:
    """Tells clients the services, methods and messages of the server."""

    def __init__(self, must_leave: Leave, limit_s: float) -> None:
        """A call ends after `limit_s` without a message."""
        pool = DescriptorPool()
        known = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
        for file in (*descriptors(), *(_file(one) for one in known)):
            pool.Add(file)
        services = (SERVICE, HEALTH, REFLECTION[-1])
        self._answers = reflection.aio.ReflectionServicer(services, pool=pool)
        self._must_leave = must_leave
        self._limit_s = limit_s
        self._calls = 0

    async def handle(self, context: Any) -> None:
        """Answer one call. Raises `RequestError`."""
        if self._calls >= MOST_CALLS:
            raise RequestError(f"{MOST_CALLS} calls reflect, which is the maximum", Refusal.FULL)
        self._calls += 1
        try:
            async for answer in self._answers.ServerReflectionInfo(self._asked(context), context):
                await _write(context, answer.SerializeToString(), self._must_leave)
        finally:
            self._calls -= 1

    async def _asked(self, context: Any) -> AsyncIterator[Any]:
        while True:
            data = await asyncio.wait_for(context.read(), self._limit_s)
            if data is grpc.aio.EOF:
                return
            if len(data) > MESSAGE_BYTES:
                raise RequestError("the message is too large", Refusal.TOO_LARGE)
            yield parsed(reflection_pb2.ServerReflectionRequest, data)


def _file(descriptor: Any) -> Any:
    return FileDescriptorProto.FromString(descriptor.serialized_pb)
