"""The one wait of an agent's loop: for sockets and file descriptors together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import zmq

STREAK = 8
"""How often the busy sockets are read before the idle ones are asked too."""

Socket: TypeAlias = "zmq.Socket[bytes]"


class Waiter:
    """Waits for sockets and file descriptors, and reads those that are ready.

    Sockets that had something the last time are asked first, at most `STREAK` times in a row: under
    load they mostly have more, and a poll costs as much as a message.
    """

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Socket | int, Callable[[], list[Any]]] = {}
        self._busy: list[Socket] = []
        self._streak = 0

    def add(self, source: Socket | int, reader: Callable[[], list[Any]]) -> None:
        """Call `reader` when something can be read from this socket or descriptor.

        A socket's reader is also called when nothing can be read, and then returns nothing; so it
        may for what concerns nobody else.
        """
        self._readers[source] = reader
        self._poller.register(source, zmq.POLLIN)

    def remove(self, source: Socket | int) -> None:
        """No longer wait for this one; before it is closed."""
        del self._readers[source]
        self._poller.unregister(source)
        self._busy.clear()

    def wait(self, timeout_s: float | None) -> list[Any]:
        """What the readers of all that is ready return; nothing after `timeout_s` seconds.

        None waits for ever, and the wait never ends early.
        """
        found: list[Any] = []
        if self._streak < STREAK:
            for source in self._busy:
                found += self._readers[source]()
            if found:
                self._streak += 1
                return found
        self._streak = 0
        self._busy.clear()
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not found and (ready := self._poller.poll(_left_ms(until_s))):
            for source, _ in ready:
                found += self._readers[source]()
                if not isinstance(source, int):
                    self._busy.append(source)
        return found


def _left_ms(until_s: float | None) -> int | None:
    return None if until_s is None else max(0, math.ceil((until_s - time.monotonic()) * 1000))
