"""The launcher's core and the agents' real cores, on a simulated network with a simulated clock.

All events are entries in one queue ordered by time. Each connection delivers its messages in order,
each after a delay that the test draws. Executors compute, and take a fixed time for a firing. A
simulation needs no socket, no process and no real time, and equal delays give an equal run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from launcher.config.run import RecoveryConfig, RunConfig
from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.session import Contact
from launcher.core.stream import ENDLESS
from launcher.core.supervisor import Supervisor
from launcher.core.watch import Limits
from nodes.core import actions as act
from nodes.core import events as nev
from nodes.core.agent import Agent
from nodes.core.reactor import Reactor
from nodes.protocol.messages import (
    HOST,
    PROTOCOL,
    Bye,
    Control,
    Data,
    Deployed,
    Deployment,
    DeviceOffer,
    EngineOffer,
    Hello,
    Missing,
    Order,
    Prepared,
    Progress,
    Shutdown,
    Stored,
    TensorHeader,
    Welcome,
)
from partition.plan import Plan
from tests.launcher_runtime.connections import Clock, Connection, Happening, here
from tests.launcher_runtime.plans import answer, blueprint_of
from tests.launcher_runtime.simulated_host import Program, SimulatedHost
from tests.launcher_runtime.simulated_node import FIRING_S, SimulatedNode

LIMITS = Limits(RunConfig(), RecoveryConfig(enabled=False))
ENGINES = (EngineOffer("none", "", (DeviceOffer("cpu"),)),)
LOADING_S = 0.05
PREPARING_S = 0.7
PLANNING_S = 0.4

Replan = Callable[[int, tuple[str, ...]], Blueprint | str]
"""An epoch and the nodes that are left → its blueprint, or why there is none."""


def no_plan(_: int, __: tuple[str, ...]) -> str:
    return "nobody can plan here"


class World(SimulatedHost):
    """Runs a plan to its `End`; `delay_s()` is called per message, the user takes `take_s` a frame.

    A node in `silent` neither hears nor says anything from then on. One in `closed_data_ports`
    cannot be dialled by the launcher there; the executor of one in `hanging` never ends a firing.
    Nodes in `standby` have no part in the plan. The launcher was told before that those
    `known_absent` are off. Programs may push the frames, one for each of the
    `networks`, which are parts of the plan; without them the plan is one network. Clocks are
    `ahead_s`, nodes' and the `HOST`'s.
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
        replan: Replan = no_plan,
        standby: tuple[str, ...] = (),
        bytes_each: int = 3 << 20,
        programs: Sequence[Program] = (),
        networks: Sequence[Plan] = (),
        known_absent: Collection[str] = (),
        order: Order = "pipelined",
    ) -> None:
        self.plan, self.networks, self.programs = plan, tuple(networks) or (plan,), programs
        blueprint = blueprint_of(plan, bytes_each, networks=self.networks, order=order)
        self.started_by_us = started_by_us
        self.nodes: dict[str, SimulatedNode] = {}
        self._agents: dict[str, Reactor[nev.Event, act.Action]] = {}
        self._launcher: Reactor[lev.Event, lev.Action] = Reactor(
            self._launcher_handles, self.performs, lambda: self.now_s
        )
        for name in (*blueprint.deployments, *standby):
            tick = partial(self.tell, name, nev.Tick())
            self._agents[name] = Reactor(
                partial(self._agent_handles, name),
                partial(self._agent_performs, name),
                lambda: self.now_s,
            )
            self.nodes[name] = SimulatedNode(self.new_agent(name), cached, tick)
        contacts = [
            Contact(
                name,
                f"tcp://10.0.0.{i}:7000",
                started_by_us,
                absence=f"node {name!r} is off" if name in known_absent else "",
            )
            for i, name in enumerate(self.nodes)
        ]
        hello = Hello(PROTOCOL, "test", limits.run.lease_s, "ana, process 0", "0")
        count = ENDLESS if programs else frames
        self.supervisor = Supervisor(blueprint, contacts, count, hello, limits)
        self.key = b""
        super().__init__(self.networks, blueprint, take_s, frames=frames, programs=programs)
        self.clock = Clock()
        self.end: lev.End | None = None
        self.end_s = 0.0
        self.streams: list[lev.Stream] = []
        self.reports: list[lev.StageProgress] = []
        self.notices: list[str] = []
        self.measured_again: list[str] = []
        """Nodes whose boards measure themselves again."""
        self.silent: set[str] = set()
        self.closed_data_ports: set[str] = set()
        self.hanging: set[str] = set()
        self.unheard: set[str] = set()
        """Nodes that were off when a greeting would have arrived, which waits in the socket."""
        self.cannot_prepare: set[str] = set()
        """Nodes that cannot prepare subnets while they compute."""
        self.without_room: set[str] = set()
        """Nodes that have no memory for two plans."""
        self.trace: list[tuple[str, str]] = []
        self.story: list[str] = []
        self.connections: list[Connection] = []
        self.control = self.connect_all()
        self.dialled: dict[str, dict[str, Connection]] = defaultdict(dict)
        self.known: dict[str, dict[bytes, Connection]] = defaultdict(dict)
        self.gain: Callable[[], float] = lambda: 2.0
        """Of the plans that are to be better than the one that streams."""
        self.slow: dict[str, float] = {}
        """Nodes that take so many times as long for a firing."""
        self.slow_in_rehearsal: dict[str, float] = {}
        """Nodes whose phases take this multiple of their planned times in the rehearsal."""
        self.phases_too_many: dict[str, int] = {}
        """Nodes that report the times of this number of phases that they do not have."""
        self.asked: list[lev.PlanRequest] = []
        self.ahead_s: dict[str, float] = {}
        self._deadline_s: float | None = None
        self._replan = replan
        self._delay_s = delay_s

    def new_agent(self, name: str) -> Agent:
        """A core as an agent has that was just started."""
        number = len(self.nodes) if name not in self.nodes else list(self.nodes).index(name)
        address = f"tcp://0.0.0.0:{7000 + number}"
        identity = Welcome(
            PROTOCOL, name, "0", address, "none", "sim", 1, 46 << 20, engines=ENGINES
        )
        return Agent(identity, obeys_shutdown=self.started_by_us)

    @property
    def now_s(self) -> float:
        return self.clock.now_s

    @now_s.setter
    def now_s(self, now_s: float) -> None:
        self.clock.now_s = now_s

    def at(self, at_s: float, happen: Happening) -> None:
        """Let something happen at a time."""
        self.clock.at(at_s, happen)

    def tell_story(self, text: str) -> None:
        """Remember what happened."""
        self.story.append(f"{self.now_s:9.4f} {text}")

    def run(self, until_s: float = 1000.0) -> World:
        """From the beginning until nothing happens any more."""
        self.event(lev.Begin())
        self.go_on(until_s)
        assert self.end is not None
        return self

    def go_on(self, until_s: float) -> None:
        """Until nothing happens any more."""
        while self.step():
            assert self.now_s < until_s, "it never ends"

    def step(self) -> bool:
        """Let the next thing happen; False if nothing ever will."""
        at_s, tick = self._next_tick()
        next_s = self.clock.next_s
        if tick is not None and (next_s is None or at_s < next_s):
            self.now_s = max(self.now_s, at_s)
            tick()
        elif next_s is not None:
            self.clock.step()
        return next_s is not None or tick is not None

    def _next_tick(self) -> tuple[float, Happening | None]:
        """The earliest deadline of a core, and its `Tick`; deadlines are as they were when a core
        last handled something, and change with nothing else."""
        at_s = None if self.is_stopped else self._deadline_s
        found: Happening | None = None if at_s is None else partial(self.event, nev.Tick())
        for name, node in self.nodes.items():
            due_s = node.deadline_s
            if due_s is not None and (at_s is None or due_s < at_s) and not self.is_off(name):
                at_s, found = due_s, node.tick
        return at_s or 0.0, found

    def is_off(self, name: str) -> bool:
        """Whether a node does nothing."""
        node = self.nodes[name]
        return name in self.silent or node.is_gone or node.is_paused

    # ------------------------------------------------------------ the network

    def connect(self, dialler: str, dialled: str, *, is_control: bool = False) -> Connection:
        """A new connection, which nothing has gone over."""
        over = Connection(dialler, dialled, len(self.connections), is_control)
        self.connections.append(over)
        return over

    def connect_all(self) -> dict[str, Connection]:
        """The launcher's control connections."""
        return {name: self.connect(HOST, name, is_control=True) for name in self.nodes}

    def send(self, over: Connection, sender: str, arrive: Happening) -> None:
        """Let something arrive at the other end; nothing if the connection is gone."""
        if over.is_open:
            over.carry(self.clock, sender, self._delay_s(), arrive)

    def hang_up(self, over: Connection, end: str) -> None:
        """Close a connection at one end; what is on its way arrives, then the other end hears."""

        def hear() -> None:
            over.is_open = False
            self.lose_link(over, over.other(end))

        self.send(over, end, hear)

    def lose_link(self, over: Connection, end: str) -> None:
        """One end hears that a connection is gone."""
        if over.is_control and end != HOST:
            self.tell(end, nev.PeerLost(over.name))
        elif end == HOST:
            if self.data.get(over.other(end)) is over:
                self.event(lev.Disconnected(over.other(end)))
        elif over.dialler == end:
            if self.dialled[end].get(over.dialled) is over:
                self.tell(end, nev.LinkLost(over.dialled))
        else:
            self.tell(end, nev.LinkLost(over.name))

    # ------------------------------------------------------------ the launcher

    def event(self, event: lev.Event) -> None:
        """Let the supervisor handle an event now, and perform its actions."""
        if self.is_put_off(lambda: self.event(event)):
            return
        self._launcher.take(event)

    def _launcher_handles(self, event: lev.Event, now_s: float) -> list[lev.Action]:
        ahead_s = self.ahead_s.get(HOST, 0.0)
        actions = self.supervisor.handle(event, now_s + ahead_s)
        self._deadline_s = here(self.supervisor.deadline_s, ahead_s)
        assert self.end is None or not actions, "nothing is done after the end"
        return actions

    def _plan(self, asked: lev.PlanRequest) -> None:
        found = answer(asked, None if asked.better_than is None else self.gain(), self._replan)
        if isinstance(found, lev.PlanReply):
            room = frozenset(found.blueprint.deployments) - self.without_room
            found = replace(found, blueprint=replace(found.blueprint, with_room=room))
        self.event(found)

    def command(self, node: str, message: Control) -> None:
        over = self.control[node]

        def arrive() -> None:
            if self.is_off(node):
                if isinstance(message, Hello):
                    self.unheard.add(node)
                return
            self.nodes[node].told.append(type(message).__name__)
            self.trace.append((node, type(message).__name__))
            is_present = self.supervisor.sessions[node].is_present  # others free it at their end
            if isinstance(message, Bye | Shutdown) and self.ends_after_streaming and is_present:
                assert self.nodes[node].ahead is None, "what was loaded ahead was not freed"
            self.tell(node, nev.ControlReceived(over.name, message, self.key))

        self.send(over, HOST, arrive)

    @property
    def ends_after_streaming(self) -> bool:
        """Whether the run has ended well, and not in the middle of a change of epochs."""
        is_well = self.end is not None and self.end.error is None
        return is_well and self.supervisor._recoverer.outage is None

    # ------------------------------------------------------------ the nodes

    def tell(self, name: str, event: nev.Event) -> None:
        """Hand an event to an agent's core and do what it wants done."""
        if self.is_off(name):
            return
        self._agents[name].take(event)

    def _agent_handles(self, name: str, event: nev.Event, now_s: float) -> list[act.Action]:
        node = self.nodes[name]
        if self.is_off(name):
            return []
        ahead_s = self.ahead_s.get(name, 0.0)
        actions = node.agent.handle(event, now_s + ahead_s)
        node.deadline_s = here(node.agent.deadline_s, ahead_s)
        return actions

    def _agent_performs(self, name: str, action: act.Action) -> None:
        self._perform(name, self.nodes[name], action)

    def _perform(  # noqa: PLR0912 - one case per action
        self, name: str, node: SimulatedNode, action: act.Action
    ) -> None:
        match action:
            case act.Reply(peer, message):
                over = self.control[name]
                if peer == over.name:
                    self.send(over, name, lambda: self._answer(name, over, message))
            case act.SendData(link, message, payload):
                found = self.dialled[name] if isinstance(link, str) else self.known[name]
                if link in found:
                    self.send_data(found[link], name, message, payload)
                    if action.report_sent:
                        sent = nev.Sent(message.epoch, message.channel, message.frame)
                        self.tell(name, sent)
            case act.Dial(peer):
                self.dialled[name][peer] = self.connect(name, peer)
            case act.HangUp(peer):
                if peer in self.dialled[name]:
                    self.hang_up(self.dialled[name].pop(peer), name)
            case act.LookUp(peer, digests):
                missing = tuple(digest for digest in digests if not node.has(digest))
                self.tell(name, nev.Answered(peer, Missing(missing)))
            case act.WriteChunk(peer, put):
                complete = node.write(put)
                written = nev.Answered(peer, Stored(put.blob.digest, put.offset_bytes, complete))
                self.tell(name, written)
            case act.LoadPhases(deployment):
                self._load(name, node, deployment)
            case act.PrepareSubnets(deployment, loads):
                self._prepare(name, node, deployment, loads=loads)
            case act.CloseAhead():
                node.close_ahead()
            case act.Fire():
                node.firings.append(action)
                if len(node.firings) == 1:
                    self.begin_firing(name, node)
            case act.Unload(epoch):
                node.firings.clear()
                if name not in self.hanging:
                    self.tell(name, nev.Unloaded(epoch))
            case act.Measure(purpose):
                self.tell(name, nev.Measured(purpose, nev.Usage(1, 1, 1, self.now_s)))
            case act.FindFigures(_, _, may_measure, again):
                if may_measure and again:
                    self.measured_again.append(name)
            case act.Release():
                node.close_ahead()  # and there is no disk to clean
            case act.Exit() | act.Restart():
                node.is_gone = True
            case act.Log(_, text):
                self.tell_story(f"{name} logs: {text}")
            case _:
                raise AssertionError(f"{name} wants {action}")

    def later(self, name: str, after_s: float, event: nev.Event) -> None:
        """Tell a node something unless it is started again before."""
        node, life = self.nodes[name], self.nodes[name].life

        def happen() -> None:
            if node.is_paused:
                node.late.append(event)
            elif node.life == life:
                self.tell(name, event)

        self.at(self.now_s + after_s, happen)

    def _prepare(
        self, name: str, node: SimulatedNode, deployment: Deployment, *, loads: bool
    ) -> None:
        is_able = name not in self.cannot_prepare
        took_s = PREPARING_S
        if loads and is_able:
            took_s += len(deployment.phases) * LOADING_S
            ready = node.load_ahead(deployment)
            self.at(self.now_s + took_s, ready)
        reason = "" if is_able else "no room for both"
        self.later(name, took_s, Prepared(deployment.epoch, reason))

    def _load(self, name: str, node: SimulatedNode, deployment: Deployment) -> None:
        total, ahead = len(deployment.phases), node.ahead
        node.load(deployment)
        if ahead is not None and ahead == replace(deployment, dial=()):
            self.tell(name, Deployed(deployment.epoch, self._rehearsed_s(name, total), 99))
            return
        for done in range(1, total + 1):
            loading = Progress(deployment.epoch, done, total, "loading")
            self.later(name, done * LOADING_S, loading)
        loaded = Deployed(deployment.epoch, self._rehearsed_s(name, total), 99)
        self.later(name, total * LOADING_S, loaded)

    def _rehearsed_s(self, name: str, phases: int) -> tuple[float, ...]:
        told = phases + self.phases_too_many.get(name, 0)
        return (FIRING_S * self.slow_in_rehearsal.get(name, 1.0),) * told

    def begin_firing(self, name: str, node: SimulatedNode) -> None:
        begun, life = node.firings[0], node.life

        def end() -> None:
            if name in self.hanging or node.life != life or self.is_off(name):
                return
            if not node.firings or node.firings[0] is not begun:
                return
            ended = self.end_firing(name, node)
            if node.firings:
                self.begin_firing(name, node)
            self.tell(name, ended)

        self.at(self.now_s + FIRING_S * self.slow.get(name, 1.0), end)

    def end_firing(self, name: str, node: SimulatedNode) -> nev.Event:
        """How the oldest firing ends."""
        return node.end_firing(FIRING_S * self.slow.get(name, 1.0))

    def _answer(self, name: str, over: Connection, answer: Control) -> None:
        if name in self.silent or self.control[name] is not over:
            return
        if isinstance(answer, Stored):
            self.nodes[name].unanswered -= 1
        self.event(lev.MessageReceived(name, answer))

    def send_data(self, over: Connection, sender: str, message: Data, payload: object) -> None:
        """Over a data connection; the one who was dialled knows it by its name."""
        receiver = over.other(sender)

        def arrive() -> None:
            if HOST in (sender, receiver) and {sender, receiver} & self.closed_data_ports:
                return
            if receiver == HOST:
                if sender not in self.silent:
                    self.host_receives(over, message, payload)
                return
            if over.dialler == receiver:
                if self.dialled[receiver].get(sender) is not over:
                    return
                link: nev.Link = sender
            else:
                self.known[receiver][over.name] = over
                link = over.name
            size = 4 * prod(message.shape) if isinstance(message, TensorHeader) else 0
            self.tell(receiver, nev.DataReceived(link, message, payload, size))

        self.send(over, sender, arrive)
