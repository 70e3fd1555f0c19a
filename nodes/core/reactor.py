"""The turns that a core and its shell take: an event in, actions out, each performed.

Performing an action may make another event (a lookup has its answer at once, a link turns out to be
gone). There is one rule for these: an event is handled when all actions of those before it have
been performed, in the order in which events were reported. So a core never sees an event while part
of what it decided before is still to be done, and the shells of agents, launcher and simulations
agree on the order.
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
        """Handle an event, and all that come of it; or, while an action is performed, let it wait.

        Where handling or performing raises, what waited is dropped with the rest of the actions.
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
