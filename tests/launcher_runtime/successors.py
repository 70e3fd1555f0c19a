"""Further faults in the simulated cluster: launchers are killed and succeeded by others.

- A launcher that is killed while frames stream is succeeded by one with the same plan and key. No
  agent refuses it because of the dead one, whether the agent has noticed its end or not, and all
  properties of a run hold for the second one.
- A stranger is admitted only if no launcher is alive or may be alive.
- Messages that arrive late over a closed connection, and messages that are repeated over another
  one, do no harm but the loss of the node concerned.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from launcher.core import events as lev
from launcher.core.session import Contact
from launcher.core.stream import ENDLESS
from launcher.core.supervisor import Supervisor
from nodes.core import actions as act
from nodes.core import events as nev
from nodes.protocol.messages import HOST, PROTOCOL, Control, Hello, Refused
from tests.launcher_runtime.faults import BLOB_BYTES, FaultyWorld
from tests.launcher_runtime.plans import EPOCH, blueprint_of
from tests.launcher_runtime.simulated_host import SimulatedHost
from tests.launcher_runtime.simulated_node import SimulatedNode

STRANGER = "bob, process 1"
MINE, THEIRS = b"m" * 32, b"t" * 32
MOST_REMEMBERED = 12
"""Messages of a connection that may be said again."""

Said = nev.ControlReceived | nev.DataReceived


class Successors(FaultyWorld):
    """See the module's docstring. With `keys` strangers have another key than launchers."""

    def __init__(
        self,
        random: Random,
        *,
        nodes: int,
        standby: int,
        room: int | None,
        keys: bool = True,
        **given: Any,
    ) -> None:
        super().__init__(random, nodes=nodes, standby=standby, room=room, **given)
        self._frames = self.supervisor.frames
        self.key = MINE if keys else b""
        self._stranger_key = THEIRS if keys else b""
        self._said: dict[bytes, list[Said]] = {}
        self._ghosts = 0
        self._is_dead = False
        self._dead: set[str] = set()
        self._seen_dead: set[str] = set()
        self._greeted: dict[str, Hello] = {}

    # ------------------------------------------------------------ launchers

    def kill_launcher(self, *, heard: bool, after_s: float) -> None:
        """SIGKILL; the next one starts after a while. Only if it was `heard` the kernel closes its
        connections; else it is as if the network were gone just then. If all agents have heard of
        it, the next one may be on another machine, where nothing is known of it."""
        if self.end is not None or self._is_dead or self.started_by_us:
            return
        self.tell_story(f"the launcher is killed, heard: {heard}")
        self._is_dead = True
        self._deadline_s = None
        self.era += 1
        self._dead.add(self.supervisor._hello.owner)
        for over in [c for c in self.connections if c.is_open and c.dialler == HOST]:
            if heard:
                self.hang_up(over, HOST)
        self.data.clear()
        self.at(self.now_s + after_s, self._next_launcher)

    def _next_launcher(self) -> None:
        self._is_dead = False
        sessions = [node.agent.session for node in self.nodes.values()]
        have_heard = all(session is None or session.is_lost for session in sessions)
        if not have_heard or self.random.random() < 0.5:
            self._seen_dead.add(self.supervisor._hello.process)
        epoch = EPOCH + self.random.choice((-4, 1000))
        blueprint = blueprint_of(self.plan, BLOB_BYTES, epoch, self.networks)
        frames = self._frames
        hello = Hello(PROTOCOL, f"era {self.era}", 15.0, f"ana, process {self.era}", str(self.era))
        self.tell_story(f"the next launcher begins with epoch {epoch}")
        self.refused_plan = False
        contacts = [Contact(s.node, s.address, False) for s in self.supervisor.sessions.values()]
        limits = self.supervisor._limits
        self.supervisor = Supervisor(blueprint, contacts, frames, hello, limits)
        count = 0 if frames == ENDLESS else frames
        SimulatedHost.__init__(
            self,
            self.networks,
            blueprint,
            self._take_s,
            frames=count,
            programs=self.programs,
        )
        for node in self.nodes.values():
            node.unanswered = 0
        self.unreached = {name for name, node in self.nodes.items() if node.is_gone}
        self.control = self.connect_all()
        self.event(lev.Begin())

    def event(self, event: lev.Event) -> None:
        if not self._is_dead:
            if isinstance(event, lev.MessageReceived) and isinstance(event.message, Refused):
                reason, holder = event.message.reason, event.message.holder
                event = replace(event, holder_has_ended=holder in self._seen_dead)
                # An answer to a greeting before that may come still.
                is_told = self._greeted[event.node].succeeds == holder
                is_refused = not is_told and not event.holder_has_ended
                assert not is_refused or not any(repr(name) in reason for name in self._dead), (
                    f"refused: {reason}"
                )
            super().event(event)

    def command(self, node: str, message: Control) -> None:
        if self._is_dead:
            return
        if isinstance(message, Hello):
            self._greeted[node] = message
            if message.succeeds:
                self.tell_story(f"{node} is told that process {message.succeeds} has ended")
        super().command(node, message)

    def intrude(self, name: str) -> None:
        """A stranger says Hello there, and nothing else."""
        node = self.nodes[name]
        held = node.agent.session
        if self.is_off(name):
            return
        hello = Hello(PROTOCOL, "stranger", 15.0, STRANGER, "1", succeeds="")
        self._ghosts += 1
        self.tell(
            name, nev.ControlReceived(b"stranger %d" % self._ghosts, hello, self._stranger_key)
        )
        if (
            held is None
            or held.is_over(self.now_s)
            or (held.is_lost and held.key == self._stranger_key)
        ):
            self._touch(name, "lets a stranger in")
            assert node.agent.session is not held
        else:
            assert node.agent.session is held, "a stranger has it"

    # ------------------------------------------------------------ connections

    def cut_late(self, number: int, after_s: float) -> None:
        """A connection is reset, and what is on its way over it arrives nevertheless, late."""
        there = [over for over in self.connections if over.is_open]
        if not there:
            return
        over = there[number % len(there)]
        self._touch(over.dialled, f"loses a connection with {over.dialler} that lingers")
        self.touched[over.dialler] = self.now_s
        over.lingers = True
        for end in (over.dialler, over.dialled):
            over.hold(end)
        self.cut(over)
        for end in (over.dialler, over.dialled):
            self.at(self.now_s + after_s, lambda e=end: over.let_go(e))

    def say_again(self, number: int) -> None:
        """A part of what came over one connection comes over another one."""
        if not self._said:
            return
        name = list(self._said)[number % len(self._said)]
        over = next(c for c in self.connections if c.name == name)
        node = over.dialled
        self._touch(node, f"hears again what {over.dialler} said over {name.decode()}")
        self.touched[over.dialler] = self.now_s
        self._ghosts += 1
        ghost = b"ghost %d" % self._ghosts
        said = self._said[name]
        begin = 0 if number % 3 else number % len(said)
        for event in said[begin:]:
            if isinstance(event, nev.ControlReceived):
                self.tell(node, nev.ControlReceived(ghost, event.message, event.key))
            else:
                again = nev.DataReceived(ghost, event.message, event.payload, event.payload_bytes)
                self.tell(node, again)

    def tell(self, name: str, event: nev.Event) -> None:
        session = self.nodes[name].agent.session
        if isinstance(event, Said):
            self._remember(event)
        super().tell(name, event)
        following = self.nodes[name].agent.session
        if (
            following is not session
            and following is not None
            and (session is None or session.name != following.name)
        ):
            self.newest.pop(name, None)
            self.over.pop(name, None)

    def _remember(self, event: Said) -> None:
        where = event.peer if isinstance(event, nev.ControlReceived) else event.link
        if isinstance(where, bytes) and not where.startswith((b"ghost", b"stranger")):
            said = self._said.setdefault(where, [])
            if len(said) < MOST_REMEMBERED:
                said.append(event)

    def _perform(self, name: str, node: SimulatedNode, action: act.Action) -> None:
        if isinstance(action, act.CutOffLink | act.CutOffPeer):
            where = action.link if isinstance(action, act.CutOffLink) else action.peer
            self.tell_story(f"{name} cuts off {where!r}")
            for over in [c for c in self.connections if c.is_open]:
                dialled = over.dialler == name and over.dialled == where
                if over.name == where or (dialled and not over.is_control):
                    self.cut(over)
            return
        super()._perform(name, node, action)
