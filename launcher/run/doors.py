"""Finds a node's data port, from its agent's Welcome on and before anything is deployed there.

An agent announces the number that its data port has on its own machine. Behind forwarded ports (a
container's, those of NAT, an ssh tunnel) it may have another number for everybody else, and the
announced one may lead nowhere or to another agent. So there are up to three candidates, in this
order: the address that the user gives (`data:` in `cluster.yaml`), the announced one, and the port
next to the control port, where a pair of forwarded ports usually is.

A single candidate, as with an agent that is directly reachable, is right if it answers. An answer
does not suffice for several: without keys every agent answers alike, and two containers whose
agents have the same ports inside announce the same number. One is right if a message to it reaches
this agent: an agent counts the messages of epochs that are not deployed (`Stats.stale_messages`),
also one of the protocol's version before. So the launcher asks for that number, knocks by attaching
to an epoch that never exists, and asks again. Another launcher's late message at that moment could
make a wrong candidate seem right; the run then loses the node.

Whether other nodes reach the port is found when they dial it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from nodes.protocol.addresses import MOST_PORT, data_address, host_of, on_host

SEARCH_S = 3.0
"""How long the search may take."""

KNOCK_S = 0.8
"""How long a knock may take to reach the agent."""

AGAIN_S = 0.02
"""From an answer that has not counted the knock to the next question."""

NO_EPOCH = 0
"""No deployment has this number."""


def candidates(given: str | None, announced: str, control: str, reached: str | None) -> list[str]:
    """Return the addresses at which the data port of the agent at `control` may be reached.

    `given` is the user's; the agent announces it as `announced`, and answers from the IP address
    `reached`.

    >>> candidates(None, "tcp://0.0.0.0:5501", "tcp://pi:5500", "10.0.0.7")
    ['tcp://10.0.0.7:5501']
    >>> candidates(None, "tcp://0.0.0.0:5501", "tcp://pi:5740", "10.0.0.7")
    ['tcp://10.0.0.7:5501', 'tcp://10.0.0.7:5741']
    """
    host, port = reached or host_of(control), int(control.rpartition(":")[2]) + 1
    found = [] if given is None else [given]
    found.append(data_address(announced, host))
    if host is not None and port <= MOST_PORT:
        found.append(on_host(host, port))
    return list(dict.fromkeys(found))


class SearchStep(Enum):
    """The shell's next step in a search."""

    ASK = "send GetStats"
    KNOCK = "send an Attach of `NO_EPOCH` to `DoorSearch.knocked`, then GetStats"


@dataclass(slots=True)
class _Knock:
    address: str
    until_s: float


class DoorSearch:
    """The search for one agent's data port, without I/O; `found` is its address once it is known.

    The shell dials all `candidates`, reports what happens, and takes the steps that are returned.
    """

    def __init__(self, candidates: list[str], now_s: float) -> None:
        self.candidates = candidates
        self.found: str | None = None
        self.until_s = now_s + SEARCH_S
        self._open: deque[str] = deque()
        self._knock: _Knock | None = None
        self._counted: int | None = None
        self._ask_at_s: float | None = None

    @property
    def deadline_s(self) -> float:
        """When `due` has something to do."""
        return self.until_s if self._ask_at_s is None else min(self.until_s, self._ask_at_s)

    @property
    def knocked(self) -> str | None:
        """The candidate that was knocked at last."""
        return None if self._knock is None else self._knock.address

    def begin(self) -> list[SearchStep]:
        """Begin; a single candidate needs no proof."""
        return [SearchStep.ASK] if len(self.candidates) > 1 else []

    def connected(self, address: str, now_s: float) -> list[SearchStep]:
        """Note that something answers at a candidate."""
        if len(self.candidates) == 1:
            self.found = address
            return []
        self._open.append(address)
        return self._next(now_s)

    def counted(self, stale_messages: int, now_s: float) -> list[SearchStep]:
        """Note how many messages of no deployment the agent has counted."""
        before, self._counted = self._counted, stale_messages
        if self._knock is not None and before is not None:
            if stale_messages > before:
                self.found = self._knock.address
                return []
            if now_s < self._knock.until_s:
                self._ask_at_s = now_s + AGAIN_S
                return []
            self._knock = None
        return self._next(now_s)

    def due(self, now_s: float) -> list[SearchStep]:
        """Ask again if it is time; the search is over at `until_s`."""
        if self._ask_at_s is None or now_s < self._ask_at_s:
            return []
        self._ask_at_s = None
        return [SearchStep.ASK]

    def _next(self, now_s: float) -> list[SearchStep]:
        if self._knock is not None or self._counted is None or not self._open:
            return []
        self._knock = _Knock(self._open.popleft(), now_s + KNOCK_S)
        return [SearchStep.KNOCK]
