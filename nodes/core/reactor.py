"""The loop between a core and its shell: pass an event to the core, perform the actions, repeat.

Performing an action may cause another event (a lookup has its answer at once, a link turns out to
be gone). One rule holds for these: events are handled in the order in which they were reported,
each when all actions of the events before it have been performed. A core therefore never receives
an event while its earlier decisions are only partly carried out, and the shells of agents, launcher
and simulations agree on the order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Event = TypeVar("Event")
Action = TypeVar("Action")


class Reactor(Generic[Event, Action]):
    """Hands events to a core's `handle(event, now_s)` and performs the actions that come back."""

    def __init__(
        self,
        handle: Callable[[Event, float], Iterable[Action]],
        perform: Callable[[Action], None],
        now_s: Callable[[], float],
    ) -> None:
        self._handle = handle
        self._perform = perform
        self._now_s = now_s
        self._waiting: deque[Event] = deque()
        self._is_busy = False

    def take(self, event: Event) -> None:
        """Handle an event and all events that it causes.

        Within the performance of an action, the event is only queued. If handling or performing
        raises, queued events and the remaining actions are dropped.
        """
        waiting = self._waiting
        if self._is_busy:
            waiting.append(event)
            return
        self._is_busy = True
        try:
            while True:
                for action in self._handle(event, self._now_s()):
                    self._perform(action)
                if not waiting:
                    return
                event = waiting.popleft()
        finally:
            waiting.clear()
            self._is_busy = False
