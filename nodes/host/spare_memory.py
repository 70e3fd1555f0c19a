"""Gives the heap's free memory back to the system some time after it was freed.

What is closed or dropped in one thread is often freed in another: ZeroMQ's thread frees what it had
read from a connection, or still held for one, a moment after that was closed. Giving back at once
would miss it, and giving back too often costs whoever streams: what is used again and again has to
be mapped anew.
"""

from __future__ import annotations

from math import inf

from nodes.executors.heap import give_back_free_memory

FREED_S = 1.0
"""By then, other threads have freed what belonged to something that was closed."""

EVERY_S = 5.0
"""Memory is given back once in so long at most."""


class SpareMemory:
    """`freed` notes that memory is about to be free, `look` gives it back once `due_s` has come."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        """When to `look`, on the clock that the calls tell; None while nothing was freed."""
        self._is_asked_again = False
        self._given_back_s = -inf

    def freed(self, now_s: float) -> None:
        """Something is being closed that may have held much."""
        if self.due_s is None:
            self.due_s = max(now_s + FREED_S, self._given_back_s + EVERY_S)
        else:
            self._is_asked_again = True

    def look(self, now_s: float) -> None:
        """Give free memory back if that is due."""
        if self.due_s is None or now_s < self.due_s:
            return
        give_back_free_memory()
        self._given_back_s = now_s
        self.due_s = now_s + EVERY_S if self._is_asked_again else None
        self._is_asked_again = False
