"""The one wait of an agent's or a launcher's loop: for sockets and file descriptors together.

ZeroMQ's own poll asks every socket twice and the kernel once for each of them, whoever has
something: some thirty system calls per wake-up of an agent. Here the kernel alone is asked, which
names those that are ready. What it is asked about, a socket's descriptor (`ZMQ_FD`), tells of a
change and not of a state: it shows that something came, once, and any call on the socket may take
that sign in. So nobody sleeps before every socket that was read from or sent on has said that it
has nothing (zmq_getsockopt(3), ZMQ_FD).
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import zmq

STREAK = 8
"""How often the busy sockets are read before the idle ones are asked too."""

BATCH = 64
"""Things taken from one socket before the others get their turn."""

MOST_AT_ONCE = 64
"""Descriptors that the kernel names at once; of more, the others come next."""

Socket: TypeAlias = "zmq.Socket[bytes]"

Reader: TypeAlias = Callable[[], list[Any]]


@dataclass(frozen=True, slots=True)
class Readable:
    """A watched file descriptor has something to read, or its end."""

    descriptor: int


class Waiter:
    """Waits for sockets and file descriptors, and reads those that are ready.

    Sockets that may have more than what was read are asked first, at most `STREAK` times in a row.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Reader] = {}
        self._sockets: dict[Socket, int] = {}
        self._due: dict[int, None] = {}
        self._alarms: list[tuple[Callable[[], float | None], Reader]] = []
        self._streak = 0

    def add(self, source: Socket | int, reader: Reader) -> None:
        """Call `reader` when something can be read from this socket or descriptor.

        A socket's reader takes in all that there is, or returns `BATCH` things at least; it is also
        called when nothing can be read, and then returns nothing.
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
        """No longer wait for this one; before it is closed."""
        descriptor = source if isinstance(source, int) else self._sockets.pop(source)
        del self._readers[descriptor]
        self._due.pop(descriptor, None)
        self._epoll.unregister(descriptor)

    def used(self, source: Socket) -> None:
        """Something was done with this socket, not by its reader: ask it before the next sleep."""
        self._due[self._sockets[source]] = None

    def wake(self, due_s: Callable[[], float | None], reader: Reader) -> None:
        """Call `reader` too when it is due, on the monotonic clock; it never is while that is None.

        Its readers may change when it is due, also while `wait` waits.
        """
        self._alarms.append((due_s, reader))

    def wait(self, timeout_s: float | None) -> list[Any]:
        """What the readers of all that is ready return; nothing after `timeout_s` seconds.

        None waits for ever, and the wait never ends early.
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
        """Wait for nothing any more."""
        self._epoll.close()

    def _read_due(self) -> list[Any]:
        """Ask the sockets that may have something, whatever their descriptors show."""
        found: list[Any] = []
        for descriptor in tuple(self._due):
            arrived = self._readers[descriptor]()
            found += arrived
            if len(arrived) < BATCH:
                self._due.pop(descriptor, None)
        return found

    def _patience_s(self, until_s: float | None) -> float | None:
        """How long to sleep at most; None for ever."""
        due = [at_s for due_s, _ in self._alarms if (at_s := due_s()) is not None]
        if until_s is not None:
            due.append(until_s)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _read_ready(self, timeout_s: float | None) -> list[Any]:
        """Sleep until the kernel shows that something came or an alarm is due, and read that."""
        found: list[Any] = []
        for descriptor, _ in self._epoll.poll(timeout_s, MOST_AT_ONCE):
            if descriptor in self._due:
                continue  # it has just been read, and will be again before the next sleep
            arrived = self._readers[descriptor]()
            found += arrived
            if len(arrived) >= BATCH:
                self._due[descriptor] = None
        for due_s, reader in self._alarms:
            at_s = due_s()
            if at_s is not None and time.monotonic() >= at_s:
                found += reader()
        return found
