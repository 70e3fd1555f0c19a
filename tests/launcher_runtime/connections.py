"""Simulated TCP connections, which deliver in order and with delays until they are cut.

If a connection is cut, what is on its way is lost and both ends are notified. With `lingers`, it
arrives late, when both ends have been notified and may have another connection. If one end closes
the connection, what is on its way still arrives, and then the other end is notified.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Happening = Callable[[], None]


class Clock:
    """Everything that is going to happen, by time; at the same time in the order of planning."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._queue: list[tuple[float, int, Happening]] = []
        self._count = 0

    def at(self, at_s: float, happen: Happening) -> None:
        """Let something happen at a time."""
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, happen))

    @property
    def next_s(self) -> float | None:
        """When the next thing happens."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> None:
        """Let the next thing happen."""
        at_s, _, happen = heapq.heappop(self._queue)
        self.now_s = max(self.now_s, at_s)
        happen()


def here(deadline_s: float | None, ahead_s: float) -> float | None:
    """A deadline by a clock that is ahead, by the simulation's, and not before it is due."""
    if deadline_s is None or not ahead_s:
        return deadline_s
    return deadline_s - ahead_s + 1e-9 * abs(deadline_s)


@dataclass(eq=False)
class Connection:
    """From the node that dialled to the one that was; `number` tells it from all others."""

    dialler: str
    dialled: str
    number: int
    is_control: bool = False
    is_open: bool = True
    lingers: bool = False
    """It is no longer open, but what is on its way arrives."""
    latest_s: dict[str, float] = field(default_factory=dict)
    held: dict[str, list[Happening]] = field(default_factory=dict)
    """What could not arrive yet, by its receiver: see `hold`."""
    name: bytes = b""
    """What the one who was dialled calls it."""

    def __post_init__(self) -> None:
        self.name = f"{self.dialler}#{self.number}".encode()

    def other(self, end: str) -> str:
        """The node at the other end."""
        return self.dialled if end == self.dialler else self.dialler

    def carry(self, clock: Clock, sender: str, delay_s: float, arrive: Happening) -> None:
        """Deliver from `sender` to the other end, after what it sent before."""
        at_s = max(clock.now_s + delay_s, self.latest_s.get(sender, 0.0))
        self.latest_s[sender] = at_s
        receiver = self.other(sender)

        def come() -> None:
            if receiver in self.held:
                self.held[receiver].append(arrive)
            elif self.is_open or self.lingers:
                arrive()

        clock.at(at_s, come)

    def hold(self, receiver: str) -> None:
        """What comes for that end waits from now on, as TCP sends it again and again."""
        self.held.setdefault(receiver, [])

    def let_go(self, receiver: str) -> None:
        """What has waited arrives."""
        for arrive in self.held.pop(receiver, []):
            if self.is_open or self.lingers:
                arrive()
