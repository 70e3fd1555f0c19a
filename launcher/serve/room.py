"""Bounds the bytes of requests that are arriving and of answers that are leaving, over all
connections of a server.

Each such transfer has a place of its size for as long as it lasts. While there is no room, the next
ones wait. A transfer that is late gives way to one that waits: its client is slower than `SLOW`, or
has stopped. Its place goes to the newest one, so that many clients that stop in the middle do not
hold up the others; a place that is given back goes to the one that has waited for longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from launcher.serve.errors import Refusal, RequestError

SLOW = 64 * 1024
"""Bytes per second, below which a transfer is late after a while."""

LARGEST = 8
"""Transfers for which there is room, however large they may be, so that slow clients of a network
with large inputs do not keep others waiting."""

MOST_WAITING = 64
"""Transfers that wait; beyond them the one that has waited for longest is refused."""

Progress = Callable[[int], None]
"""Called with the number of bytes of a transfer that have passed since the last call."""

T = TypeVar("T")
U = TypeVar("U")

Transfer = Callable[[Progress], Coroutine[Any, Any, T]]


@dataclass(eq=False)
class _Place:
    size_bytes: int
    task: asyncio.Task[Any]
    late_s: float
    """When it will be late, if no more bytes pass, by the loop's clock."""
    given_up: bool = False

    def give_up(self) -> None:
        self.given_up = True
        self.task.cancel()


class TransferRoom:
    """Places of `least_bytes` in all, or of the `LARGEST` present transfers, for one event loop."""

    def __init__(
        self, least_bytes: int, patience_s: float, largest_bytes: Callable[[], int] = int
    ) -> None:
        """A transfer of which nothing passes for `patience_s` is late; one that is larger than the
        room has all of it."""
        self._least_bytes = least_bytes
        self._largest_bytes = largest_bytes
        self._used_bytes = 0
        self._patience_s = patience_s
        self._places: set[_Place] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._reading = asyncio.Lock()

    async def hold_and_read(
        self,
        size_bytes: int,
        transfer: Callable[[Progress], Coroutine[Any, Any, T]],
        limit_s: float,
        read: Callable[[T], U],
    ) -> U:
        """Return what `read` makes of what is transferred, in another thread, one after the other.

        The transfer has its place until that is done. Raises as `hold` does.
        """

        async def then(found: T) -> U:
            async with self._reading:
                reading = asyncio.ensure_future(asyncio.to_thread(read, found))
                try:
                    return await asyncio.shield(reading)
                finally:
                    await asyncio.wait((reading,))  # a cancelled request's thread continues

        return await self._hold(size_bytes, transfer, limit_s, then)

    async def hold(
        self,
        size_bytes: int,
        transfer: Callable[[Progress], Coroutine[Any, Any, T]],
        limit_s: float,
    ) -> T:
        """Return what `transfer` returns, which has a place of its size meanwhile.

        Raises `RequestError` if it gives way to another one, and `asyncio.TimeoutError` if it takes
        longer than `limit_s`, its waiting included.
        """

        async def then(found: T) -> T:
            return found

        return await self._hold(size_bytes, transfer, limit_s, then)

    async def _hold(
        self,
        size_bytes: int,
        transfer: Callable[[Progress], Coroutine[Any, Any, T]],
        limit_s: float,
        then: Callable[[T], Coroutine[Any, Any, U]],
    ) -> U:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s
        await self._enter(size_bytes, limit_s)

        def progress(passed_bytes: int) -> None:
            place.late_s = min(place.late_s + passed_bytes / SLOW, loop.time() + self._patience_s)

        task = asyncio.create_task(transfer(progress))
        place = _Place(size_bytes, task, loop.time() + self._patience_s)
        self._places.add(place)
        self._admit()
        try:
            found = await asyncio.wait_for(task, end_s - loop.time())
            self._places.discard(place)  # it is no longer late
            return await then(found)
        except (asyncio.CancelledError, asyncio.TimeoutError) as error:
            # The task keeps its error, whose frames would keep the task, and the transfer's bytes.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            if place.given_up:
                raise self._refusal() from None
            raise
        finally:
            self._places.discard(place)
            if not place.given_up:
                self._used_bytes -= size_bytes
                self._admit()

    async def _enter(self, size_bytes: int, limit_s: float) -> None:
        """Take a number of bytes, once they are free."""
        if self._has_room(size_bytes):  # a small transfer does not wait behind large ones
            self._used_bytes += size_bytes
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, admitted))
        if len(self._waiting) > MOST_WAITING:
            self._waiting.pop(0)[1].set_exception(self._refusal())
        self._admit()
        try:
            await asyncio.wait_for(admitted, limit_s)
        except BaseException:
            if (size_bytes, admitted) in self._waiting:
                self._waiting.remove((size_bytes, admitted))
            elif not admitted.cancelled() and admitted.exception() is None:
                self._used_bytes -= size_bytes
            self._admit()
            raise

    def _admit(self) -> None:
        """Give places to those that wait, and check again once one of the others will be late."""
        if not self._waiting:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop, next_one = asyncio.get_running_loop(), 0
        while self._waiting:
            size_bytes, admitted = self._waiting[next_one]
            if self._has_room(size_bytes):
                del self._waiting[next_one]
                if not admitted.done():
                    self._used_bytes += size_bytes
                    admitted.set_result(None)
                continue
            first = min(self._places, key=lambda place: place.late_s, default=None)
            if first is None:
                return  # those admitted just now, or read now, call this later
            if first.late_s > loop.time():
                self._timer = loop.call_at(first.late_s, self._admit)
                return
            self._places.discard(first)
            self._used_bytes -= first.size_bytes
            first.give_up()
            next_one = -1

    @property
    def _limit_bytes(self) -> int:
        return max(self._least_bytes, LARGEST * self._largest_bytes())

    def _has_room(self, size_bytes: int) -> bool:
        return not self._used_bytes or self._used_bytes + size_bytes <= self._limit_bytes

    def _refusal(self) -> RequestError:
        return RequestError(
            f"more than {self._limit_bytes} bytes of requests are on their way, and this one is "
            "the slowest; try again later",
            Refusal.FULL,
        )
