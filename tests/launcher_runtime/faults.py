"""Faults in the simulated cluster, and the properties that must hold for every history of them.

- Every frame has exactly one result, in order, which is the whole network's (`World` checks this).
- Credits are never negative nor above the capacity, and no channel holds more than its capacity.
- A node does not act upon an epoch after it was commanded to stop it or to deploy a later one.
- Every run ends. If it fails, its error names a node.
- A run succeeds unless too few nodes for a plan are sound and have had no fault for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from launcher.config.run import RecoveryConfig, RunConfig
from launcher.core import events as lev
from launcher.core.blueprint import Blueprint
from launcher.core.session import SessionState
from launcher.core.watch import Limits
from nodes.core import actions as act
from nodes.core import events as nev
from nodes.protocol.messages import HOST, Deploy, Stop
from partition.plan import Plan
from tests.launcher_runtime.connections import Connection
from tests.launcher_runtime.plans import blueprint_of, part_of, spread
from tests.launcher_runtime.simulated_host import Program
from tests.launcher_runtime.simulated_node import SimulatedNode
from tests.launcher_runtime.simulation import World

BLOB_BYTES = (1 << 20) + 1
"""Two chunks."""

TCP_GIVES_UP_S = 30.0
"""After which both ends of a silent data connection hear that it is gone."""

RECONNECTING_S = 0.2
"""Until a connection that was reset is made again."""

HEARS_S = 0.02
"""After which an agent hears that its launcher's connection was reset."""


def recovering(**changes: object) -> Limits:
    """Limits under which a run continues without nodes that are lost."""
    recovery = RecoveryConfig(wait_s=120.0, adapt=False).model_copy(update=changes)
    run = RunConfig(deploy_timeout_s=60.0)
    return Limits(run, recovery, start_wait_s=recovery.wait_s, consent="say so")


UNEVEN = (1.0, 1.0, 3.0, 0.2)
"""What nodes take in the rehearsal, in multiples of what was planned."""


RECOVERING = recovering()

CALM_S = 60.0
"""After which a node to which nothing happens must be of use to a run that waits for any."""


class FaultyWorld(World):
    """A random network on random nodes, all drawn from `random`, with room for `room` phases on
    each node; streams with recovery. Phases with the numbers `keeps`, modulo how many there are,
    keep state from frame to frame. Each of several `programs` pushes the frames of a network of its
    own, which shares the nodes with the others."""

    def __init__(
        self,
        random: Random,
        *,
        nodes: int,
        standby: int,
        room: int | None,
        keeps: Collection[int] = (),
        programs: Sequence[Program] = (),
        **given: Any,
    ) -> None:
        self.random = random
        self.room = room
        self.touched: dict[str, float] = {}
        """Nodes that something happened to, and when it did last."""
        self.broken: set[str] = set()
        self.full: set[str] = set()
        self.newest: dict[str, int] = {}
        self.over: dict[str, set[int]] = {}
        self.blocked: set[frozenset[str]] = set()
        self.refused_plan = False
        self.unreached: set[str] = set()
        """Nodes whose control connection is not made again yet."""
        self.blows: list[tuple[str, float]] = []
        """Crashes in store for the next recovery: of whom, how long after its plan is made."""
        names = [f"n{i}" for i in range(nodes + standby)]
        several = max(1, len(programs))
        count = random.randint(nodes, nodes + 3) + several - 1
        self.reads = [
            sorted({random.randint(-1, i - 1) for _ in range(random.randint(1, 2))})
            for i in range(count)
        ]
        self.members = [set(range(count))]
        if several > 1:
            network_of = [*range(several), *random.choices(range(several), k=count - several)]
            self.members = [
                {i for i in range(count) if network_of[i] == own} for own in range(several)
            ]
            for own, members in enumerate(self.members):
                for i in members:
                    of_own = [-1 - own, *sorted(j for j in members if j < i)]
                    self.reads[i] = sorted(set(random.choices(of_own, k=random.randint(1, 2))))
        uneven = Random(repr(self.reads))
        self.keeps = sorted({number % count for number in keeps})
        owner = names[:nodes] + [random.choice(names[:nodes]) for _ in range(count - nodes)]
        delays = (0.0, 0.0, 0.001, 0.02, 0.1)
        rebalance = random.choice(("auto", "auto", "ask", "never"))
        few = random.randint(1, 40)
        drawn = {
            "frames": random.choice((few, random.randint(100, 400) // 4)),
            "delay_s": lambda: random.choice(delays),
            "started_by_us": random.random() < 0.5,
            "limits": replace(
                recovering(rebalance=rebalance, adapt=True), searches_on=uneven.random() < 0.5
            ),
            "take_s": random.choice((0.0, 0.02, 0.1)),
        }
        plan = spread(self.reads, owner, self._capacity, self.keeps)
        super().__init__(
            plan,
            **(drawn | given),
            programs=programs,
            networks=self._networks(plan),
            replan=self._plan_again,
            standby=tuple(names[nodes:]),
            bytes_each=BLOB_BYTES,
        )
        self.gain = lambda: random.choice((0.9, 1.1, 1.5, 3.0))
        if uneven.random() < 0.5:
            self.slow_in_rehearsal = {name: uneven.choice(UNEVEN) for name in names}
        for name, node in self.nodes.items():
            node.cached = lambda digest, n=name: self._has(n, digest)

    def _networks(self, plan: Plan) -> list[Plan]:
        return [part_of(plan, {f"p{i}" for i in members}) for members in self.members]

    def _capacity(self) -> int:
        return self.random.randint(1, 3)

    def _has(self, name: str, digest: str) -> bool:
        sizes = {BLOB_BYTES, *(1000 + i for i in range(len(self.reads)))}
        return self.nodes[name].stored.get(digest, 0) in sizes

    def _plan_again(self, epoch: int, left: tuple[str, ...]) -> Blueprint | str:
        while self.blows:  # strike while the nodes turn to their new parts
            name, after_s = self.blows.pop()
            self.at(self.now_s + after_s, lambda n=name: self.crash(n))
        if self.room is not None and self.room * len(left) < len(self.reads):
            self.refused_plan = True
            return f"{len(self.reads)} phases on {len(left)} nodes with room for {self.room} each"
        used = self.random.sample(left, self.random.randint(1, len(left)))
        if self.room is not None:
            used = list(left)
        places = used * (self.room or len(self.reads))
        self.random.shuffle(places)
        plan = spread(self.reads, places[: len(self.reads)], self._capacity, self.keeps)
        return blueprint_of(plan, BLOB_BYTES, epoch, self._networks(plan))

    # ------------------------------------------------------------ what may happen

    def is_absent(self, name: str, until_s: float | None) -> None:
        """A node is off before the run begins, and is switched on at some time, or never."""
        self._touch(name, "is off")
        self.nodes[name].is_gone = True
        self.unreached.add(name)

        def come() -> None:
            self.restart(name)
            session = self.supervisor.sessions[name]
            if session.state is SessionState.CONNECTING and name in self.unheard:
                self.command(name, self.supervisor._hello)

        if until_s is not None:
            self.at(until_s, come)

    def crash(self, name: str, *, exits: bool = True) -> None:
        """Its process ends or restarts, and all its connections end."""
        node = self.nodes[name]
        if node.is_gone:
            return
        self._touch(name, "crashes")
        node.is_gone, node.is_paused = True, False
        node.life += 1
        node.firings.clear()
        node.close_ahead()
        for over in list(self.connections):
            if over.is_open and name in (over.dialler, over.dialled):
                self.cut(over)
        if self.started_by_us and exits:
            self.launcher_at(self.now_s + 0.01, lambda: self.event(lev.AgentExited(name, -9, "")))

    def restart(self, name: str, *, exits: bool = True) -> None:
        """A daemon is started again at the same address, or in the same process."""
        node = self.nodes[name]
        if not node.is_gone or (self.started_by_us and exits):
            return
        self._touch(name, "is started again")
        node.agent, node.is_gone, node.deadline_s = self.new_agent(name), False, None
        self.newest.pop(name, None)
        self.over.pop(name, None)
        self.broken.discard(name)
        self.hanging.discard(name)
        self._reach(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        if not self.is_off(name):
            self._touch(name, "is stopped by a signal")
            self.nodes[name].is_paused = True
            self._hold()

    def resume(self, name: str) -> None:
        """SIGCONT."""
        node = self.nodes[name]
        if not node.is_paused:
            return
        self._touch(name, "continues")
        node.is_paused = False
        self._hold()
        late, node.late = node.late, []
        for event in late:
            self.tell(name, event)
        if node.firings:
            self.begin_firing(name, node)
        self._reach(name)

    def hang(self, name: str) -> None:
        """Its engine never ends a firing again."""
        self._touch(name, "hangs")
        self.hanging.add(name)

    def break_engine(self, name: str) -> None:
        """Every firing of its engine fails."""
        self._touch(name, "computes no more")
        self.broken.add(name)

    def fill_disk(self, name: str) -> None:
        """No blob can be stored there any more."""
        self._touch(name, "has no room for blobs")
        self.full.add(name)

    def slow_down(self, name: str, times: float) -> None:
        """It takes so many times as long for everything that it computes."""
        self.tell_story(f"{name} takes {times} times as long")
        self.slow[name] = times

    def agree(self) -> None:
        """The user agrees to a better plan."""
        self.tell_story("the user agrees")
        self.event(lev.Consented())

    def partition(self, one: str, other: str, seconds: float) -> None:
        """Nothing gets through between two machines for a while."""
        if one == other:
            return
        self._touch(one, f"cannot reach {other} for {seconds} s")
        self.touched[other] = self.now_s
        pair = frozenset((one, other))
        self.blocked.add(pair)
        self._hold()
        if seconds > TCP_GIVES_UP_S:
            self.at(self.now_s + TCP_GIVES_UP_S, lambda: self._cut_between(pair))
        self.at(self.now_s + seconds, lambda: self._heal(pair))

    def cut(self, over: Connection) -> None:
        """A connection is reset: what is on its way is lost, both ends hear of it."""
        if not over.is_open:
            return
        over.is_open = False
        control = self.control.get(over.dialled)
        if over is control:
            node = over.dialled
            self.control[node] = self.connect(HOST, node, is_control=True)
            self._hold()
            self.launcher_at(
                self.now_s + self._delay_s(), lambda: self.event(lev.Disconnected(node))
            )
            self.at(self.now_s + HEARS_S, lambda: self.lose_link(over, node))
            self.unreached.add(node)
            self.launcher_at(self.now_s + RECONNECTING_S, lambda: self._reach(node))
            return
        for end in (over.dialler, over.dialled):
            self.at(self.now_s + self._delay_s(), lambda e=end: self.lose_link(over, e))

    def cut_any(self, number: int) -> None:
        """A connection that is open is reset."""
        there = [over for over in self.connections if over.is_open]
        if not there:
            return
        over = there[number % len(there)]
        self._touch(over.dialled, f"loses its connection with {over.dialler}")
        self.touched[over.dialler] = self.now_s
        self.cut(over)

    def _cut_between(self, pair: frozenset[str]) -> None:
        if pair in self.blocked:
            for over in list(self.connections):
                if over.is_open and {over.dialler, over.dialled} == pair:
                    self.cut(over)

    def _heal(self, pair: frozenset[str]) -> None:
        self.blocked.discard(pair)
        self._hold()
        self.touched |= dict.fromkeys(pair, self.now_s)
        for name in pair & self.unreached:
            self._reach(name)

    def _reach(self, name: str) -> None:
        """The launcher's connection with a node is made again, if nothing is in the way."""
        way = frozenset((HOST, name))
        if name in self.unreached and not self.is_off(name) and way not in self.blocked:
            self.unreached.discard(name)
            self.tell_story(f"{name} can be reached again")
            self.event(lev.ControlConnected(name))

    def _hold(self) -> None:
        """Let connections wait that cannot deliver, and deliver what can be."""
        for over in list(self.connections):
            if not over.is_open:
                continue
            for end in (over.dialler, over.dialled):
                paused = self.is_stopped if end == HOST else self.nodes[end].is_paused
                if paused or frozenset((over.dialler, over.dialled)) in self.blocked:
                    over.hold(end)
                else:
                    over.let_go(end)

    def connect(self, dialler: str, dialled: str, *, is_control: bool = False) -> Connection:
        over = super().connect(dialler, dialled, is_control=is_control)
        if hasattr(self, "data"):
            self._hold()
        return over

    def _touch(self, name: str, what: str) -> None:
        self.touched[name] = self.now_s
        self.tell_story(f"{name} {what}")

    # ------------------------------------------------------------ what must hold

    def tell(self, name: str, event: nev.Event) -> None:
        if self.is_off(name):
            return
        session = self.nodes[name].agent.session
        if isinstance(event, nev.ControlReceived) and session and session.peer == event.peer:
            self._note(name, event.message)
        super().tell(name, event)
        if isinstance(event, nev.DataReceived | nev.FiringEnded):
            self.check_credits(name)

    def _note(self, name: str, message: object) -> None:
        if isinstance(message, Deploy):
            self.tell_story(f"{name} gets epoch {message.deployment.epoch}")
            self.newest[name] = max(self.newest.get(name, 0), message.deployment.epoch)
        elif isinstance(message, Stop):
            self.over.setdefault(name, set()).add(message.epoch)

    def _perform(self, name: str, node: SimulatedNode, action: act.Action) -> None:
        epoch = None
        if isinstance(action, act.Fire):
            epoch = action.epoch
        elif isinstance(action, act.SendData):
            epoch = action.message.epoch
        if epoch is not None:
            assert epoch == self.newest[name], f"{name} acts upon epoch {epoch}"
            assert epoch not in self.over.get(name, ()), f"{name} acts upon epoch {epoch}, stopped"
        if isinstance(action, act.WriteChunk) and name in self.full:
            self.tell(name, nev.ChunkFailed(action.peer, "no space left on device"))
            return
        if isinstance(action, act.Restart):
            self.crash(name, exits=False)
            self.at(self.now_s + 1.0, lambda: self.restart(name, exits=False))
            return
        super()._perform(name, node, action)

    def end_firing(self, name: str, node: SimulatedNode) -> nev.Event:
        if name in self.broken:
            fire = node.firings.popleft()
            return nev.FiringFailed(fire.epoch, fire.phase, fire.frame, "the engine broke")
        return super().end_firing(name, node)

    def check_credits(self, name: str) -> None:
        """The node's ends of its channels keep within their capacities."""
        plane = self.nodes[name].agent.life.plane
        if plane is None:
            return
        for outlet in plane._outlets.values():
            assert 0 <= outlet.places <= (outlet.unsent or outlet.capacity)
            assert 0 <= outlet.claimed - outlet.sent <= outlet.capacity
        for inlet in plane._inlets.values():
            assert 0 <= inlet.held <= inlet.capacity

    def check_end(self) -> None:
        """What must hold once nothing happens any more."""
        assert self.end is not None, "there is no end"
        error = self.end.error
        if error is None:
            for lane in self.lanes:
                settled = sorted(lane.results + lane.dropped)
                assert settled == list(range(lane.frames)), "a result is missing"
            return
        assert "node 'n" in str(error), f"no node is named: {error}"
        assert self.touched or self.refused_plan, f"nothing happened to any node: {error}"
        hopeful = [name for name in self.nodes if self.may_be_of_use(name)]
        waiting = self.supervisor._recoverer._waiting
        if self._suffice(hopeful) and waiting.waited_s < waiting.patience_s - 0.001:
            raise AssertionError(f"it did not wait for {hopeful}: {error}")
        fit = [name for name in hopeful if self.is_fit(name)]
        if self._suffice(fit):
            raise AssertionError(f"{fit} could have gone on: {error}")

    def _suffice(self, names: list[str]) -> bool:
        """Whether there is a plan on so many nodes."""
        return len(names) * (self.room or len(self.reads)) >= len(self.reads)

    def may_be_of_use(self, name: str) -> bool:
        """Whether a node is in order, or is out of reach and may come back."""
        if name in self.hanging | self.broken | self.full | self.silent:
            return False
        return not (self.nodes[name].is_gone and self.started_by_us)

    def is_fit(self, name: str) -> bool:
        """Whether a node can be reached and has been left in peace for a while."""
        is_reached = not self.is_off(name) and frozenset((HOST, name)) not in self.blocked
        return is_reached and self.now_s - self.touched.get(name, -CALM_S) >= CALM_S
