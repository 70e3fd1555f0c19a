"""A bounded queue between two threads that says what happens to an item that finds no place.

- `block`: `put` waits for a place; nothing is dropped, and the producer is slowed down.
- `drop-oldest`: the item that has waited longest is dropped, so that recent ones are used.
- `drop-newest`: the new item is dropped, so that those in the queue are used.

An item that `put` accepted is taken or dropped, or it waits: the counts add up whenever they are
read. An item that was taken is never dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from launcher.config.run import Overload

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Counts of the items that were offered to a queue, by outcome."""

    offered: int = 0
    taken: int = 0
    dropped: int = 0

    @property
    def waiting(self) -> int:
        """How many items were neither taken nor dropped."""
        return self.offered - self.taken - self.dropped


class OverloadQueue(Generic[Item]):
    """A queue of `places` items; all methods may be called from any thread.

    `on_drop` is called with each dropped item in the thread that puts, in the order of dropping if
    a single thread puts.
    """

    def __init__(
        self,
        places: int,
        on_overload: Overload,
        on_drop: Callable[[Item], None] | None = None,
    ) -> None:
        self.places = places
        self.on_overload = on_overload
        self._on_drop = on_drop
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._offered = self._taken = self._dropped = 0

    @property
    def counts(self) -> QueueCounts:
        """The counts of the items so far."""
        with self._changed:
            return QueueCounts(self._offered, self._taken, self._dropped)

    def put(self, item: Item, *, timeout_s: float | None = None) -> bool:
        """Offer an item; return False, counting nothing, if the queue is closed.

        With `block` this waits for a place, for at most `timeout_s`; it returns False, counting
        nothing, if there is none by then.
        """
        with self._changed:
            if self.on_overload == "block":
                self._changed.wait_for(lambda: self._is_closed or self._has_place, timeout_s)
            if self._is_closed or (self.on_overload == "block" and not self._has_place):
                return False
            self._offered += 1
            has_place = self._has_place
            dropped = item
            if not has_place:
                self._dropped += 1
                if self.on_overload == "drop-oldest":
                    dropped = self._items.popleft()
            if self._has_place:
                self._items.append(item)
                self._changed.notify_all()
        if not has_place and self._on_drop is not None:
            self._on_drop(dropped)
        return True

    def drop(self, item: Item) -> None:
        """Count an item as offered and dropped."""
        with self._changed:
            self._offered += 1
            self._dropped += 1
        if self._on_drop is not None:
            self._on_drop(item)

    @property
    def is_closed(self) -> bool:
        """Whether it accepts nothing more."""
        return self._is_closed

    @property
    def _has_place(self) -> bool:
        return len(self._items) < self.places

    def take(self, *, timeout_s: float | None = None) -> Item | None:
        """Wait for the item that has waited longest, and remove it.

        Returns None once the queue is closed and empty, and if nothing came within `timeout_s`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._items, timeout_s)
            if not self._items:
                return None
            self._taken += 1
            self._changed.notify_all()
            return self._items.popleft()

    def close(self) -> None:
        """Accept nothing more; `put` returns, and items in the queue can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Close the queue, and drop its items, which remain counted as waiting."""
        with self._changed:
            self._is_closed = True
            self._items.clear()
            self._changed.notify_all()
