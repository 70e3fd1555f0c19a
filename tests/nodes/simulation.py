"""Several agent cores and a host on a simulated network: no sockets, no clock, one seed.

Every connection delivers in order; which connection delivers next, and when an executor ends its
oldest firing, is drawn from a seeded generator. So one seed is one interleaving, and a thousand
seeds are a thousand networks, each replayable.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from nodes.core import actions as act
from nodes.core import events as ev
from nodes.core.agent import Agent, Identity
from nodes.core.fifo import Inlet, Outlet
from nodes.core.reactor import Reactor
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    Hello,
    Order,
    PeerSpec,
    PhaseSpec,
    Start,
    Stop,
    Stopped,
    TensorHeader,
    Welcome,
)

EPOCH = 7
LAUNCHER = b"launcher"
DTYPE, SHAPE, BYTES = "float32", (2,), 8
GRAPH = BlobInfo("a" * 64, 1)


@dataclass(frozen=True)
class Dataflow:
    """Phases in a topological order: the node of each, and the tensors that each reads.

    Phase i makes the tensor `t{i}`; the host makes `x`, and takes every tensor in `results`.
    """

    nodes: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    results: tuple[str, ...]
    capacities: tuple[int, ...]
    order: Order = "pipelined"
    unsent: tuple[int, ...] = (0,)
    """The places that producers have of their own, in channels that leave a node."""

    def channels(self) -> list[ChannelSpec]:
        """One per tensor and node that reads it."""
        index = self.local_index()
        found = []
        for made, tensor in [(None, "x"), *((i, f"t{i}") for i in range(len(self.nodes)))]:
            readers: dict[str, list[int]] = {}
            for phase, tensors in enumerate(self.reads):
                if tensor in tensors:
                    readers.setdefault(self.nodes[phase], []).append(index[phase])
            if tensor in self.results:
                readers[HOST] = []
            for target, phases in readers.items():
                number = len(found)
                source = HOST if made is None else self.nodes[made]
                leaves = source not in (HOST, target)
                unsent = self.unsent[number % len(self.unsent)] * leaves
                found.append(
                    ChannelSpec(
                        number, tensor, DTYPE, SHAPE,
                        source, None if made is None else index[made],
                        target, tuple(phases),
                        self.capacities[number % len(self.capacities)] + unsent,
                        unsent_frames=unsent,
                    )
                )  # fmt: skip
        return found

    def local_index(self) -> list[int]:
        """The number of each phase among those of its node."""
        return [self.nodes[:i].count(node) for i, node in enumerate(self.nodes)]

    def deployments(self) -> dict[str, Deployment]:
        """What each node is told."""
        channels = self.channels()
        return {
            node: Deployment(
                EPOCH, node, self.order,
                tuple(
                    PhaseSpec(f"p{i}", GRAPH, None, self.reads[i], (f"t{i}",))
                    for i in range(len(self.nodes))
                    if self.nodes[i] == node
                ),
                tuple(c for c in channels if node in (c.source_node, c.target_node)),
                tuple(
                    PeerSpec(peer, f"sim://{peer}")
                    for peer in dict.fromkeys(
                        c.target_node
                        for c in channels
                        if c.source_node == node and c.target_node not in (node, HOST)
                    )
                ),
            )
            for node in dict.fromkeys(self.nodes)
        }  # fmt: skip


@dataclass
class Executor:
    """Runs firings one after another; a token is (tensor, frame), and inputs must agree."""

    deployment: Deployment
    queue: deque[act.Fire] = field(default_factory=deque)
    local: dict[tuple[str, int], int] = field(default_factory=dict)
    fired: list[tuple[int, int]] = field(default_factory=list)

    def end_oldest(self) -> ev.FiringEnded:
        fire = self.queue.popleft()
        phase = self.deployment.phases[fire.phase]
        for tensor in phase.inputs:
            if tensor in fire.inputs:
                assert fire.inputs[tensor] == (tensor, fire.frame)
            else:
                self.local[tensor, fire.frame] -= 1
                assert self.local[tensor, fire.frame] >= 0
        for channel in self.deployment.channels:
            local = channel.source_node == channel.target_node
            if local and channel.source_phase == fire.phase:
                self.local[channel.tensor, fire.frame] = len(channel.target_phases)
        self.fired.append((fire.phase, fire.frame))
        outputs = {tensor: (tensor, fire.frame) for tensor in phase.outputs}
        return ev.FiringEnded(fire.epoch, fire.phase, fire.frame, outputs, 0.001)


class Host:
    """Feeds `frames` frames and takes the results: the launcher's data side, in little."""

    def __init__(self, flow: Dataflow, frames: int) -> None:
        self.frames = frames
        self.feeds = {
            c.number: (c, Outlet(c.number, c.capacity_frames))
            for c in flow.channels()
            if c.source_node == HOST
        }
        self.takes = {
            c.number: (c, Inlet(c.number, c.consumer_frames))
            for c in flow.channels()
            if c.target_node == HOST
        }
        self.results: dict[str, list[int]] = {c.tensor: [] for c, _ in self.takes.values()}

    def peers(self) -> set[str]:
        return {c.target_node for c, _ in self.feeds.values()} | {
            c.source_node for c, _ in self.takes.values()
        }

    def attach(self, node: str) -> list[tuple[str, object, object]]:
        grants = [
            (node, Credit(EPOCH, c.number, c.consumer_frames), None)
            for c, _ in self.takes.values()
            if c.source_node == node
        ]
        return [(node, Attach(EPOCH, HOST), None), *grants]

    def receive(self, message: object, payload: object) -> list[tuple[str, object, object]]:
        if isinstance(message, Credit):
            self.feeds[message.channel][1].grant(message.frames)
            return self.feed()
        assert isinstance(message, TensorHeader)
        spec, inlet = self.takes[message.channel]
        assert payload == (spec.tensor, message.frame)
        inlet.put(message.frame, payload)
        self.results[spec.tensor].append(message.frame)
        assert inlet.end(0, message.frame) == 1
        return [(spec.source_node, Credit(EPOCH, spec.number, 1), None)]

    def feed(self) -> list[tuple[str, object, object]]:
        sending = []
        for spec, outlet in self.feeds.values():
            while outlet.places and outlet.claimed < self.frames:
                frame = outlet.claim()
                outlet.send()
                header = TensorHeader(EPOCH, spec.number, frame, DTYPE, SHAPE)
                sending.append((spec.target_node, header, (spec.tensor, frame)))
        return sending

    @property
    def is_done(self) -> bool:
        return all(frames == list(range(self.frames)) for frames in self.results.values())


class Simulation:
    """Deploys a dataflow on agent cores, streams frames, stops; `run` asserts as it goes."""

    def __init__(self, flow: Dataflow, frames: int, random: Random) -> None:
        self.channels = flow.channels()
        self.random = random
        self.deployments = flow.deployments()
        self.agents = {
            node: Agent(Identity(node, "0", f"sim://{node}", "none", "none", 1, 1))
            for node in self.deployments
        }
        self.reactors: dict[str, Reactor[ev.Event, act.Action]] = {
            node: Reactor(agent.handle, partial(self.perform, node), lambda: self.steps * 1e-6)
            for node, agent in self.agents.items()
        }
        self.executors = {node: Executor(d) for node, d in self.deployments.items()}
        self.host = Host(flow, frames)
        self.wires: dict[tuple[str, str, str], deque[tuple[object, object]]] = {}
        """(dialler, dialled, who sends) → messages on their way, in order."""
        self.heard: dict[str, list[object]] = {node: [] for node in self.agents}
        self.commands: dict[str, deque[object]] = {node: deque() for node in self.agents}
        self.unsent: dict[str, deque[ev.Sent]] = {node: deque() for node in self.agents}
        """By node, the reports of sent frames that its agent has not received yet."""
        self.steps = 0

    # ------------------------------------------------------------ one agent

    def tell(self, node: str, event: ev.Event) -> None:
        """Hand an event in and do what the agent wants done."""
        self.steps += 1
        self.reactors[node].take(event)

    def perform(self, node: str, action: act.Action) -> None:
        match action:
            case act.Reply():
                self.heard[node].append(action.message)
            case act.SendData(report_sent=True, message=TensorHeader() as header):
                self.unsent[node].append(ev.Sent(EPOCH, header.channel, header.frame))
                self.perform(node, replace(action, report_sent=False))
            case act.SendData() if isinstance(action.link, str):
                wire = self.wires[node, action.link, node]
                wire.append((action.message, action.payload))
            case act.SendData():
                dialler = action.link.decode()
                self.wires[dialler, node, node].append((action.message, action.payload))
            case act.Dial():
                self.connect(node, action.node)
            case act.LoadPhases():
                times = (0.001,) * len(action.deployment.phases)
                self.tell(node, ev.Loaded(EPOCH, times, 1))
            case act.Fire():
                self.executors[node].queue.append(action)
            case act.Unload():
                self.executors[node].queue.clear()
                self.tell(node, ev.Unloaded(action.epoch))
            case act.Measure():
                self.tell(node, ev.Measured(action.purpose, ev.Usage(1, 1, 1, 0.0)))
            case act.Log() | act.HangUp() | act.CloseAhead():
                pass
            case _:
                raise AssertionError(f"{node} wants {action}")

    def connect(self, dialler: str, dialled: str) -> None:
        self.wires[dialler, dialled, dialler] = deque()
        self.wires[dialler, dialled, dialled] = deque()

    # ------------------------------------------------------------ the network

    def choices(self) -> list[tuple[str, object]]:
        """What could happen next."""
        return [
            *(("wire", key) for key, wire in self.wires.items() if wire),
            *(("executor", node) for node, e in self.executors.items() if e.queue),
            *(("command", node) for node, queue in self.commands.items() if queue),
            *(("sent", node) for node, queue in self.unsent.items() if queue),
        ]

    def step(self) -> bool:
        """Let one of the possible things happen; False if none is possible."""
        possible = self.choices()
        if not possible:
            return False
        kind, key = self.random.choice(possible)
        if kind == "command":
            command = self.commands[key].popleft()
            self.tell(key, ev.ControlReceived(LAUNCHER, command))
        elif kind == "sent":
            self.tell(key, self.unsent[key].popleft())
        elif kind == "executor":
            self.tell(key, self.executors[key].end_oldest())
        else:
            self.deliver(*key)
        self.check_capacities()
        return True

    def deliver(self, dialler: str, dialled: str, sender: str) -> None:
        message, payload = self.wires[dialler, dialled, sender].popleft()
        receiver = dialled if sender == dialler else dialler
        if receiver == HOST:
            self.host_sends(self.host.receive(message, payload))
            return
        link = dialler.encode() if receiver == dialled else dialled
        size = BYTES if isinstance(message, TensorHeader) else 0
        self.tell(receiver, ev.DataReceived(link, message, payload, size))

    def host_sends(self, sending: list[tuple[str, object, object]]) -> None:
        for node, message, payload in sending:
            self.wires[HOST, node, HOST].append((message, payload))

    def check_capacities(self) -> None:
        """No channel ever holds more than its capacity, wherever its frames are."""
        for spec in self.channels:
            outlet, inlet = self.ends(spec)
            if outlet is not None and inlet is not None:
                assert 0 <= outlet.claimed - inlet.freed <= spec.capacity_frames
                assert outlet.sent - inlet.freed <= spec.consumer_frames
                if spec.unsent_frames:
                    assert 0 <= outlet.claimed - outlet.left <= spec.unsent_frames

    def ends(self, spec: ChannelSpec) -> tuple[Outlet | None, Inlet | None]:
        """Both ends of a channel, as far as they are deployed."""
        planes = {node: agent.life.plane for node, agent in self.agents.items()}
        source, target = planes.get(spec.source_node), planes.get(spec.target_node)
        number = spec.number
        if spec.source_node == HOST:
            outlet = self.host.feeds[number][1]
        else:
            outlet = source and source._outlets[number]
        if spec.target_node == HOST:
            inlet = self.host.takes[number][1]
        else:
            inlet = target and target._inlets[number]
        return outlet, inlet

    # ------------------------------------------------------------ a whole run

    def command_all(self, make: object) -> None:
        for node, queue in self.commands.items():
            queue.append(make(node))

    def run_until(self, what: str, reached: object) -> None:
        while not reached():
            assert self.step(), f"deadlock before {what}: {self.stuck()}"

    def stuck(self) -> str:
        return "; ".join(
            f"{node}: {agent.life.stage.value}, at frames {agent.life.plane._actor.next_frame}"
            for node, agent in self.agents.items()
            if agent.life.plane is not None
        )

    def said_by_all(self, kind: type) -> bool:
        return all(any(type(m) is kind for m in said) for said in self.heard.values())

    def run(self) -> dict[str, Stopped]:
        """Deploy, stream, stop; returns what every agent said at its end."""
        self.command_all(lambda _: Hello(PROTOCOL, "session", 5.0))
        self.command_all(lambda node: Deploy(self.deployments[node]))
        self.run_until("all are deployed", lambda: self.said_by_all(Deployed))
        assert self.said_by_all(Welcome)
        self.command_all(lambda _: Start(EPOCH))
        for node in sorted(self.host.peers()):
            self.connect(HOST, node)
            self.host_sends(self.host.attach(node))
        self.run_until("all results are in", lambda: self.host.is_done)
        while self.step():
            pass
        self.command_all(lambda _: Stop(EPOCH))
        self.run_until("all have stopped", lambda: self.said_by_all(Stopped))
        failures = [m for said in self.heard.values() for m in said if isinstance(m, Failed)]
        assert not failures
        return {node: said[-1] for node, said in self.heard.items()}
