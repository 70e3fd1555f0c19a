"""`ModelStreamInfer`: a client's requests and their answers, both as streams of one gRPC call.

Answers are sent in the order of the requests. A request that is refused is answered with an error,
and the call continues. A bounded number of requests of each call is in flight; while there are as
many, no more are read, so that HTTP/2 slows the client down. Requests of a client that has
disconnected are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc

from launcher.serve.errors import Refusal, RequestError
from launcher.serve.service import ClientLimits

Answer = Callable[[bytes], Coroutine[Any, Any, bytes]]
"""Returns the encoded response to an encoded request, of whatever kind the request is."""


class Streams:
    """The calls in progress."""

    def __init__(
        self,
        answer: Answer,
        limits: ClientLimits,
        must_leave: Callable[[Any], asyncio.TimerHandle],
    ) -> None:
        """`must_leave` ends a call unless the timer that it returns is cancelled in time."""
        self._answer = answer
        self._must_leave = must_leave
        self._limits = limits
        self._readers: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Read no more requests; each call ends once its answers are sent."""
        for reader in self._readers:
            reader.cancel()

    async def handle(self, context: Any) -> None:
        """Answer one call. Raises `RequestError` if there are too many, and after `stop`."""
        if len(self._readers) >= self._limits.streams:
            raise RequestError(
                f"{len(self._readers)} streams are open, which is the maximum", Refusal.FULL
            )
        waiting: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue()
        places = asyncio.Semaphore(self._limits.stream_in_flight)
        reader = asyncio.create_task(self._read(context, places, waiting))
        self._readers.add(reader)
        try:
            while (answer := await waiting.get()) is not None:
                data = await answer
                timer = self._must_leave(context)
                try:
                    await context.write(data)
                finally:
                    timer.cancel()
                places.release()
            await asyncio.wait((reader,))
            if reader.cancelled():
                raise RequestError("the server is shutting down", Refusal.UNAVAILABLE)
            reader.result()
        finally:
            self._readers.discard(reader)
            reader.cancel()
            while not waiting.empty():
                if (answer := waiting.get_nowait()) is not None:
                    answer.cancel()

    async def _read(
        self,
        context: Any,
        places: asyncio.Semaphore,
        waiting: asyncio.Queue[asyncio.Task[bytes] | None],
    ) -> None:
        try:
            await places.acquire()
            while (data := await context.read()) is not grpc.aio.EOF:
                waiting.put_nowait(asyncio.create_task(self._answer(data)))
                await places.acquire()
        finally:
            waiting.put_nowait(None)
