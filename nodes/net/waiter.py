"""Wait for ZeroMQ sockets and file descriptors together, by epoll instead of ZeroMQ's poll.

ZeroMQ's own poll checks every socket twice and makes a system call for each, some thirty per
wake-up of an agent. epoll needs one, which returns the descriptors that are ready. A socket's
descriptor (`ZMQ_FD`) is edge-triggered, however: it becomes readable once when something has
arrived, and any call on the socket may reset it. Before a sleep, every socket that was received
from or sent on must therefore have reported that it has nothing left (zmq_getsockopt(3), ZMQ_FD).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import zmq

STREAK = 8
"""How many times in a row the busy sockets are read before the idle ones are checked as well."""

BATCH = 64
"""Messages or events taken from one socket before the others get their turn."""

MOST_AT_ONCE = 64
"""Descriptors that one call of epoll returns; further ones come with the next call."""

Socket: TypeAlias = "zmq.Socket[bytes]"

Reader: TypeAlias = Callable[[], list[Any]]


@dataclass(frozen=True, slots=True)
class Readable:
    """A watched file descriptor can be read, or has reached its end."""

    descriptor: int


class Waiter:
    """Waits for sockets and file descriptors, and calls the readers of those that are ready.

    Sockets that may have more than what was read come first, at most `STREAK` times in a row.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Reader] = {}
        self._sockets: dict[Socket, int] = {}
        self._due: dict[int, None] = {}
        self._alarms: list[tuple[Callable[[], float | None], Reader]] = []
        self._streak = 0

    def add(self, source: Socket | int, reader: Reader) -> None:
        """Call `reader` whenever this socket or descriptor can be read.

        A socket's reader must read until nothing is left or it has `BATCH` items. It is also called
        when there is nothing to read, and then returns an empty list.
        """
        if isinstance(source, int):
            descriptor = source
        else:
            descriptor = self._sockets[source] = int(source.getsockopt(zmq.FD))
            self._due[descriptor] = None
        self._readers[descriptor] = reader
        self._epoll.register(descriptor, select.EPOLLIN)

    def watch(self, descriptor: int) -> None:
        """Report `Readable` whenever this file descriptor has something to read."""
        self.add(descriptor, lambda: [Readable(descriptor)])

    def remove(self, source: Socket | int) -> None:
        """Stop waiting for a socket or descriptor; call it before that is closed."""
        descriptor = source if isinstance(source, int) else self._sockets.pop(source)
        del self._readers[descriptor]
        self._due.pop(descriptor, None)
        self._epoll.unregister(descriptor)

    def used(self, source: Socket) -> None:
        """Call a socket's reader before the next sleep, because it was used outside its reader."""
        self._due[self._sockets[source]] = None

    def add_alarm(self, due_s: Callable[[], float | None], reader: Reader) -> None:
        """Also call `reader` at the time `due_s()`, on the monotonic clock.

        `due_s` may return None for never, and another value each time, also during `wait`.
        """
        self._alarms.append((due_s, reader))

    def wait(self, timeout_s: float | None) -> list[Any]:
        """Return what the readers of all ready sources return; nothing after `timeout_s` seconds.

        With None it waits for ever. It never returns early with nothing.
        """
        found = self._read_due()
        if found and self._streak < STREAK:
            self._streak += 1
            return found
        self._streak = 0
        if found:
            return found + self._read_ready(0.0)
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not (found := self._read_ready(self._patience_s(until_s))):
            if until_s is not None and time.monotonic() >= until_s:
                break
        return found

    def close(self) -> None:
        """Close the epoll descriptor."""
        self._epoll.close()

    def _read_due(self) -> list[Any]:
        """Call the readers of sockets that may have something, whatever epoll reports."""
        found: list[Any] = []
        for descriptor in tuple(self._due):
            arrived = self._readers[descriptor]()
            found += arrived
            if len(arrived) < BATCH:
                self._due.pop(descriptor, None)
        return found

    def _patience_s(self, until_s: float | None) -> float | None:
        """Return how long to sleep at most; None for ever."""
        due = [at_s for due_s, _ in self._alarms if (at_s := due_s()) is not None]
        if until_s is not None:
            due.append(until_s)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _read_ready(self, timeout_s: float | None) -> list[Any]:
        """Sleep until a descriptor is ready or an alarm is due, and call the readers."""
        found: list[Any] = []
        for descriptor, _ in self._epoll.poll(timeout_s, MOST_AT_ONCE):
            if descriptor in self._due:
                continue  # it has just been read, and will be read again before the next sleep
            arrived = self._readers[descriptor]()
            found += arrived
            if len(arrived) >= BATCH:
                self._due[descriptor] = None
        for due_s, reader in self._alarms:
            at_s = due_s()
            if at_s is not None and time.monotonic() >= at_s:
                found += reader()
        return found
