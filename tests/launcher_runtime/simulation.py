"""A supervisor among simulated agents, on a simulated network with a simulated clock.

Everything that happens is an entry in one queue ordered by time. Messages of one node arrive in
order, each after a delay that the test draws. The agents keep the protocol, and check that the
supervisor does.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from launcher.core.events import (
    Begin,
    End,
    Event,
    Heard,
    Report,
    Send,
    SendChunk,
    Stream,
    Taken,
    Tick,
)
from launcher.core.supervisor import Contact, Supervisor
from launcher.core.watch import Limits
from nodes.core.messages import (
    PROTOCOL,
    PUT_WINDOW,
    Bye,
    Control,
    Deploy,
    Deployed,
    Hello,
    Missing,
    Ping,
    Pong,
    Progress,
    Query,
    Shutdown,
    Start,
    Stats,
    Stop,
    Stopped,
    Stored,
    Welcome,
)
from partition.plan import Plan
from tests.launcher_runtime.plans import EPOCH, blueprint_of

LIMITS = Limits(
    connect_timeout_s=10.0, deploy_timeout_s=300.0, silence_timeout_s=10.0, lease_s=15.0
)


def stats_of(phases: int) -> Stats:
    return Stats(EPOCH, (3,) * phases, (0.5,) * phases, 2.0, 1.0, 7, 8, 1, 1, 1, 0, 0)


@dataclass
class SimulatedAgent:
    """An agent that keeps the protocol; `missing` of its blobs are not in its cache."""

    name: str
    missing: int
    heard: list[Control | SendChunk] = field(default_factory=list)
    unanswered: int = 0
    lacks: dict[str, int] = field(default_factory=dict)

    def hear(self, said: Control | SendChunk) -> Iterator[Control]:
        """Its answers. An answer to a chunk counts as given when it arrives, see `World`."""
        self.heard.append(said)
        match said:
            case Hello():
                address = f"tcp://0.0.0.0:{7000 + int(self.name[1:])}"
                yield Welcome(PROTOCOL, self.name, "0", address, "none", "sim", 1, 46 << 20)
            case Query(digests):
                lacked = digests[: self.missing]
                self.lacks = dict.fromkeys(lacked, 0)
                yield Missing(lacked)
            case SendChunk(_, blob, offset, size):
                self.unanswered += 1
                assert self.unanswered <= PUT_WINDOW
                assert self.lacks[blob.digest] == offset, "chunks of a blob come in order"
                self.lacks[blob.digest] += size
                complete = self.lacks[blob.digest] == blob.size_bytes
                yield Stored(blob.digest, offset, complete)
            case Deploy(deployment):
                count = len(deployment.phases)
                for done in range(1, count + 1):
                    yield Progress(EPOCH, done, count, "loading")
                yield Deployed(EPOCH, (0.01,) * count, 99)
            case Stop():
                yield Stopped(EPOCH, stats_of(2))
            case Ping():
                yield Pong()
            case Start() | Bye() | Shutdown():
                pass
            case other:
                raise AssertionError(f"the supervisor sent {other}")

    @property
    def words(self) -> list[str]:
        """What it was told, pings left out."""
        return [type(said).__name__ for said in self.heard if not isinstance(said, Ping)]


class World:
    """Runs a plan among simulated agents to its `End`.

    `delay_s()` is called per message; results come every `frame_s`. An agent in `silent` neither
    hears nor says anything from then on.
    """

    def __init__(
        self,
        plan: Plan,
        frames: int = 5,
        delay_s: Callable[[], float] = lambda: 0.01,
        started_by_us: bool = False,
        missing: int = 2,
        limits: Limits = LIMITS,
        frame_s: float = 0.1,
    ) -> None:
        share = blueprint_of(plan)
        self.agents = {name: SimulatedAgent(name, missing) for name in share.deployments}
        contacts = [
            Contact(name, f"tcp://10.0.0.{i}:7000", started_by_us)
            for i, name in enumerate(self.agents)
        ]
        self.supervisor = Supervisor(share, contacts, frames, "test", limits)
        self.now_s = 0.0
        self.frames = frames
        self.end: End | None = None
        self.end_s = 0.0
        self._frame_s = frame_s
        self.streams: list[Stream] = []
        self.reports: list[Report] = []
        self.silent: set[str] = set()
        self.trace: list[tuple[str, str]] = []
        self._delay_s = delay_s
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._latest: dict[tuple[str, str], float] = {}

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, happen))

    def event(self, event: Event) -> None:
        """Let the supervisor handle an event now, and perform its actions."""
        actions = self.supervisor.handle(event, self.now_s)
        assert self.end is None or not actions, "nothing is done after the end"
        for action in actions:
            match action:
                case Send(node, message):
                    self._travel("to", node, lambda n=node, m=message: self._tell(n, m))
                case SendChunk(node):
                    self._travel("to", node, lambda n=node, a=action: self._tell(n, a))
                case Stream():
                    self.streams.append(action)
                    for taken in range(1, self.frames + 1):
                        at_s = self.now_s + self._frame_s * taken
                        self.at(at_s, lambda t=taken: self.event(Taken(t)))
                case Report():
                    assert 0 <= action.done <= action.total
                    self.reports.append(action)
                case End():
                    self.end, self.end_s = action, self.now_s

    def run(self, until_s: float = 1000.0) -> World:
        """From the beginning until nothing happens any more."""
        self.event(Begin())
        while True:
            deadline_s = self.supervisor.deadline_s
            if deadline_s is not None and (not self._queue or deadline_s < self._queue[0][0]):
                self.now_s = max(self.now_s, deadline_s)
                self.event(Tick())
            elif self._queue:
                at_s, _, happen = heapq.heappop(self._queue)
                self.now_s = max(self.now_s, at_s)
                happen()
            else:
                break
            assert self.now_s < until_s, "it never ends"
        assert self.end is not None
        return self

    def _travel(self, way: str, node: str, arrive: Callable[[], None]) -> None:
        at_s = max(self.now_s + self._delay_s(), self._latest.get((way, node), 0.0))
        self._latest[way, node] = at_s
        self.at(at_s, arrive)

    def _tell(self, node: str, said: Control | SendChunk) -> None:
        if node in self.silent:
            return
        self.trace.append((node, type(said).__name__))
        for answer in self.agents[node].hear(said):
            self._travel("from", node, lambda n=node, a=answer: self._answer(n, a))

    def _answer(self, node: str, answer: Control) -> None:
        if isinstance(answer, Stored):
            self.agents[node].unanswered -= 1
        self.event(Heard(node, answer))
