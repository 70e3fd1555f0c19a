"""The launcher's core among the agents' real cores, on a simulated network with a simulated clock.

Everything that happens is an entry in one queue ordered by time. Each connection delivers in order,
every message after a delay that the test draws. Executors take a fixed time for a firing, and
check that each firing gets the tensors of its own frame. No run of this needs a socket, a process
or a second of real time, and the same delays give the same run.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from launcher.core import events as lev
from launcher.core.stream import Sink, Source
from launcher.core.supervisor import Contact, Supervisor
from launcher.core.watch import Limits
from nodes.core import actions as act
from nodes.core import events as nev
from nodes.core.agent import Agent, Identity
from nodes.core.messages import (
    CHUNK_BYTES,
    HOST,
    PUT_WINDOW,
    Attach,
    Control,
    Credit,
    Data,
    Deployment,
    Put,
    Stored,
    TensorHeader,
)
from partition.plan import Plan
from tests.launcher_runtime.plans import blueprint_of

LIMITS = Limits(
    connect_timeout_s=10.0, deploy_timeout_s=300.0, silence_timeout_s=10.0, lease_s=15.0
)
LAUNCHER = b"launcher"
LOADING_S = 0.05
FIRING_S = 0.01
_ZEROS = bytes(CHUNK_BYTES)


@dataclass
class SimulatedNode:
    """An agent's real core, and a disk and an executor that it is told are there."""

    agent: Agent
    cached: Callable[[str], bool]
    told: list[str] = field(default_factory=list)
    stored: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    deployment: Deployment | None = None
    firings: deque[act.Fire] = field(default_factory=deque)
    made: dict[tuple[str, int], int] = field(default_factory=dict)
    is_gone: bool = False

    @property
    def words(self) -> list[str]:
        """What it was told, pings left out."""
        return [word for word in self.told if word != "Ping"]

    def write(self, put: Put) -> bool:
        """Whether the blob is complete with this chunk, which must be the next of it."""
        assert self.stored.get(put.blob.digest, 0) == put.offset_bytes
        self.stored[put.blob.digest] = put.offset_bytes + len(put.data)
        return self.stored[put.blob.digest] == put.blob.size_bytes

    def end_firing(self) -> nev.FiringEnded:
        """End the oldest firing: its inputs are of its frame, its outputs are too."""
        fire = self.firings.popleft()
        assert self.deployment is not None
        phase = self.deployment.phases[fire.phase]
        for tensor in phase.inputs:
            assert fire.inputs.get(tensor, (tensor, fire.frame)) == (tensor, fire.frame)
            if tensor not in fire.inputs:
                assert (tensor, fire.frame) in self.made
        self.made.update({(tensor, fire.frame): 1 for tensor in phase.outputs})
        outputs = {tensor: (tensor, fire.frame) for tensor in phase.outputs}
        return nev.FiringEnded(fire.epoch, fire.phase, fire.frame, outputs, FIRING_S)


class World:
    """Runs a plan to its `End`; `delay_s()` is called per message, the user takes `take_s` a frame.

    A node in `silent` neither hears nor says anything from then on. One in `closed_data_ports`
    cannot be dialled by the launcher there; the executor of one in `hanging` never ends a firing.
    """

    def __init__(
        self,
        plan: Plan,
        frames: int = 5,
        delay_s: Callable[[], float] = lambda: 0.01,
        started_by_us: bool = False,
        cached: Callable[[str], bool] = lambda _: False,
        limits: Limits = LIMITS,
        take_s: float = 0.1,
    ) -> None:
        share = blueprint_of(plan)
        self.nodes = {}
        for i, name in enumerate(share.deployments):
            identity = Identity(name, "0", f"tcp://0.0.0.0:{7000 + i}", "none", "sim", 1, 46 << 20)
            agent = Agent(identity, obeys_shutdown=started_by_us)
            self.nodes[name] = SimulatedNode(agent, cached)
        contacts = [
            Contact(name, f"tcp://10.0.0.{i}:7000", started_by_us)
            for i, name in enumerate(self.nodes)
        ]
        self.supervisor = Supervisor(share, contacts, frames, "test", limits)
        self.source = Source(share.from_host, frames, share.epoch, share.dealing)
        self.sink: Sink[object] = Sink(share.to_host, frames, share.epoch, share.dealing)
        self.results: list[int] = []
        self.now_s = 0.0
        self.end: lev.End | None = None
        self.end_s = 0.0
        self.streams: list[lev.Stream] = []
        self.reports: list[lev.Report] = []
        self.silent: set[str] = set()
        self.closed_data_ports: set[str] = set()
        self.hanging: set[str] = set()
        self.trace: list[tuple[str, str]] = []
        self._delay_s = delay_s
        self._take_s = take_s
        self._taking = False
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._latest: dict[tuple[str, str, str], float] = {}

    def at(self, at_s: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self._count += 1
        heapq.heappush(self._queue, (at_s, self._count, happen))

    def run(self, until_s: float = 1000.0) -> World:
        """From the beginning until nothing happens any more."""
        self.event(lev.Begin())
        while True:
            at_s, tick = self._next_tick()
            if tick is not None and (not self._queue or at_s < self._queue[0][0]):
                self.now_s = max(self.now_s, at_s)
                tick()
            elif self._queue:
                at_s, _, happen = heapq.heappop(self._queue)
                self.now_s = max(self.now_s, at_s)
                happen()
            else:
                break
            assert self.now_s < until_s, "it never ends"
        assert self.end is not None
        return self

    def _next_tick(self) -> tuple[float, Callable[[], None] | None]:
        ticks: list[tuple[float, Callable[[], None]]] = []
        if self.supervisor.deadline_s is not None:
            ticks.append((self.supervisor.deadline_s, lambda: self.event(lev.Tick())))
        for name, node in self.nodes.items():
            if node.agent.deadline_s is not None and not self._is_off(name):
                ticks.append((node.agent.deadline_s, lambda n=name: self.tell(n, nev.Tick())))
        return min(ticks, key=lambda tick: tick[0], default=(0.0, None))

    def _travel(self, way: tuple[str, str, str], arrive: Callable[[], None]) -> None:
        """Deliver over a connection: (from, to, which), each in order."""
        at_s = max(self.now_s + self._delay_s(), self._latest.get(way, 0.0))
        self._latest[way] = at_s
        self.at(at_s, arrive)

    # ------------------------------------------------------------ the launcher

    def event(self, event: lev.Event) -> None:
        """Let the supervisor handle an event now, and perform its actions."""
        actions = self.supervisor.handle(event, self.now_s)
        assert self.end is None or not actions, "nothing is done after the end"
        for action in actions:
            match action:
                case lev.Send(node, message):
                    self._command(node, message)
                case lev.SendChunk(node, blob, offset, size):
                    self.nodes[node].unanswered += 1
                    assert self.nodes[node].unanswered <= PUT_WINDOW
                    self._command(node, Put(blob, offset, _ZEROS[:size]))
                case lev.Stream(addresses):
                    self.streams.append(action)
                    self._attach(addresses)
                case lev.Report():
                    assert 0 <= action.done <= action.total
                    self.reports.append(action)
                case lev.End():
                    self.end, self.end_s = action, self.now_s

    def _command(self, node: str, message: Control) -> None:
        def arrive() -> None:
            if self._is_off(node):
                return
            self.nodes[node].told.append(type(message).__name__)
            self.trace.append((node, type(message).__name__))
            self.tell(node, nev.ControlReceived(LAUNCHER, message))

        self._travel((HOST, node, "control"), arrive)

    def _attach(self, addresses: dict[str, str]) -> None:
        for node in addresses:
            if node not in self.closed_data_ports:
                self._travel((node, HOST, "data"), lambda n=node: self.event(lev.Linked(n)))
            self._send_data(HOST, node, HOST, Attach(self.source.epoch, HOST), None)
            for credit in self.sink.attach(node):
                self._send_data(HOST, node, HOST, credit, None)

    def _host_receives(self, node: str, message: Data, payload: object) -> None:
        match message:
            case Credit():
                assert self.source.credit(message)
            case TensorHeader():
                assert payload is not None
                assert self.sink.tensor(node, message, payload)
        self._host_works()

    def _host_works(self) -> None:
        while self.source.is_ready:
            for spec, header in self.source.fire():
                payload = (spec.tensor, header.frame)
                self._send_data(HOST, spec.target_node, HOST, header, payload)
        if self.sink.is_ready and not self._taking:
            self._taking = True
            self.at(self.now_s + self._take_s, self._taken)

    def _taken(self) -> None:
        self._taking = False
        frame, outputs = self.sink.result()
        dealing = self.supervisor.blueprint.dealing
        made = {
            dealing.name(c.tensor): (c.tensor, dealing.number(frame))
            for c in self.sink.channels.values()
            if dealing.channel_copy(c.number) == dealing.copy(frame)
        }
        assert outputs == made
        self.results.append(frame)
        for node, credit in self.sink.take():
            self._send_data(HOST, node, HOST, credit, None)
        self.event(lev.Taken(self.sink.taken))
        self._host_works()

    # ------------------------------------------------------------ the nodes

    def tell(self, name: str, event: nev.Event) -> None:
        """Hand an event to an agent's core and do what it wants done."""
        node = self.nodes[name]
        if self._is_off(name):
            return
        for action in node.agent.handle(event, self.now_s):
            self._perform(name, node, action)

    def _is_off(self, name: str) -> bool:
        return name in self.silent or self.nodes[name].is_gone

    def _perform(self, name: str, node: SimulatedNode, action: act.Action) -> None:
        match action:
            case act.Reply(peer, message):
                assert peer == LAUNCHER
                self._travel((name, HOST, "control"), lambda: self._answer(name, message))
            case act.SendData(link, message, payload):
                other = link if isinstance(link, str) else link.decode()
                dialler = name if isinstance(link, str) else other
                self._send_data(name, other, dialler, message, payload)
            case act.LookUp(peer, digests):
                missing = tuple(digest for digest in digests if not node.cached(digest))
                self.tell(name, nev.LookedUp(peer, missing))
            case act.WriteChunk(peer, put):
                complete = node.write(put)
                written = nev.ChunkWritten(peer, put.blob.digest, put.offset_bytes, complete)
                self.tell(name, written)
            case act.Load(deployment):
                self._load(name, node, deployment)
            case act.Fire():
                node.firings.append(action)
                if len(node.firings) == 1:
                    self.at(self.now_s + FIRING_S, lambda: self._end_firing(name, node))
            case act.Unload(epoch):
                node.firings.clear()
                self.tell(name, nev.Unloaded(epoch))
            case act.Measure(purpose):
                self.tell(name, nev.Measured(purpose, nev.Usage(1, 1, 1, self.now_s)))
            case act.Exit():
                node.is_gone = True
            case act.Dial() | act.HangUp() | act.Log():
                pass
            case _:
                raise AssertionError(f"{name} wants {action}")

    def _load(self, name: str, node: SimulatedNode, deployment: Deployment) -> None:
        node.deployment = deployment
        total = len(deployment.phases)
        for done in range(1, total + 1):
            loading = nev.LoadProgress(deployment.epoch, done, total, "loading")
            self.at(self.now_s + done * LOADING_S, lambda event=loading: self.tell(name, event))
        loaded = nev.Loaded(deployment.epoch, (FIRING_S,) * total, 99)
        self.at(self.now_s + total * LOADING_S, lambda: self.tell(name, loaded))

    def _end_firing(self, name: str, node: SimulatedNode) -> None:
        if not node.firings or name in self.hanging:
            return
        ended = node.end_firing()
        if node.firings:
            self.at(self.now_s + FIRING_S, lambda: self._end_firing(name, node))
        self.tell(name, ended)

    def _answer(self, name: str, answer: Control) -> None:
        if name in self.silent:
            return
        if isinstance(answer, Stored):
            self.nodes[name].unanswered -= 1
        self.event(lev.Heard(name, answer))

    def _send_data(
        self, sender: str, receiver: str, dialler: str, message: Data, payload: object
    ) -> None:
        """Over the connection that `dialler` made; the one who was dialled knows it by an id."""

        def arrive() -> None:
            if HOST in (sender, receiver) and {sender, receiver} & self.closed_data_ports:
                return
            if receiver == HOST:
                if sender not in self.silent:
                    self._host_receives(sender, message, payload)
                return
            link = sender if dialler == receiver else sender.encode()
            size = _bytes(message) if isinstance(message, TensorHeader) else 0
            self.tell(receiver, nev.DataReceived(link, message, payload, size))

        self._travel((sender, receiver, f"data, dialled by {dialler}"), arrive)


def _bytes(header: TensorHeader) -> int:
    size = 4
    for axis in header.shape:
        size *= axis
    return size
