"""Faults of the whole cluster or of the launcher, and nodes that lie.

- Nodes fall silent and return together, as when a switch reboots or a power strip fails.
- The launcher is stopped, as with a laptop whose lid is closed, for less or more than its lease.
- The clock of a node or of the launcher jumps ahead, as it does on a machine that was suspended.
- A node lies: it accuses others, reports progress that it has not made, invents counters.

The run continues without a liar, and it continues when a common fault is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from launcher.core.session import SessionState
from nodes.protocol.messages import HOST, Control, Failed, Progress, Stats
from tests.launcher_runtime.connections import Connection
from tests.launcher_runtime.faults import TCP_GIVES_UP_S
from tests.launcher_runtime.successors import Successors

LIES = 6
"""A liar tells this many, and then no more."""

MOST_COUNT = 1 << 20


class Outages(Successors):
    """See the module's docstring."""

    liars: frozenset[str] = frozenset()

    # ------------------------------------------------------------ all together

    def silence(self, names: Iterable[str], seconds: float) -> None:
        """All of these are stopped for a while."""
        paused = [name for name in names if not self.is_off(name)]
        for name in paused:
            self.pause(name)
            self.at(self.now_s + seconds, lambda n=name: self.resume(n))

    def switch_fails(self, behind: Iterable[str], seconds: float) -> None:
        """A switch is off for a while: nothing gets through to these, from anywhere."""
        cut_off = set(behind)
        for one, other in combinations((HOST, *self.nodes), 2):
            if {one, other} & cut_off:
                self.partition(one, other, seconds)

    def stop_launcher(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        if self.is_stopped or self._is_dead or self.end is not None:
            return
        self.tell_story(f"the launcher is stopped for {seconds} s")
        self.touched |= dict.fromkeys(self.nodes, self.now_s)
        self.is_stopped = True
        era = self.era
        self._hold()
        if seconds > TCP_GIVES_UP_S:
            self.at(self.now_s + TCP_GIVES_UP_S, lambda: self._give_up_launcher(era))
        self.at(self.now_s + seconds, lambda: self._resume_launcher(era))

    def _give_up_launcher(self, era: int) -> None:
        if self.era == era:
            for over in [c for c in self.connections if c.is_open and c.dialler == HOST]:
                self.cut(over)

    def _resume_launcher(self, era: int) -> None:
        if self.era != era:
            return
        self.tell_story("the launcher goes on")
        self.touched |= dict.fromkeys(self.nodes, self.now_s)
        self.go_on_with_launcher()
        self._hold()

    def kill_launcher(self, *, heard: bool, after_s: float) -> None:
        """See `Successors`; a launcher that is stopped is not killed."""
        if not self.is_stopped:
            super().kill_launcher(heard=heard, after_s=after_s)

    def clock_jumps(self, name: str, seconds: float) -> None:
        """A clock is ahead by so much more from now on."""
        self.tell_story(f"the clock of {name} jumps by {seconds} s")
        self.touched |= dict.fromkeys(self.nodes if name == HOST else [name], self.now_s)
        self.ahead_s[name] = self.ahead_s.get(name, 0.0) + seconds

    # ------------------------------------------------------------ lies

    def begin_to_lie(self, name: str, every_s: float) -> None:
        """From now on a node says what is not so."""
        self._touch(name, "lies")
        self.liars |= {name}
        self._lie(name, every_s, LIES)

    def _lie(self, name: str, every_s: float, left: int) -> None:
        if self.end is not None or not left:
            return
        self.touched[name] = self.now_s
        blueprint, session = self.supervisor.blueprint, self.supervisor.sessions[name]
        others = [node for node in blueprint.deployments if node != name]
        if session.state is SessionState.RUNNING and others:
            self._say(name, Failed(blueprint.epoch, "a lie", self.random.choice(others)))
        elif session.state is SessionState.DEPLOYING:
            self._say(name, Progress(blueprint.epoch, MOST_COUNT, 1, "nothing"))
        self.at(self.now_s + every_s, lambda: self._lie(name, every_s, left - 1))

    def _say(self, name: str, message: Control) -> None:
        self.tell_story(f"{name} says {message}")
        over = self.control[name]
        if not self.is_off(name):
            self.send(over, name, lambda: self._answer(name, over, message))

    def _answer(self, name: str, over: Connection, answer: Control) -> None:
        if name in self.liars and isinstance(answer, Stats):
            made_up = tuple(self.random.randrange(MOST_COUNT) for _ in answer.firings)
            seconds = tuple(self.random.random() * MOST_COUNT for _ in answer.busy_s)
            answer = replace(answer, firings=made_up, busy_s=seconds)
        super()._answer(name, over, answer)

    def may_be_of_use(self, name: str) -> bool:
        """See `FaultyWorld`; nobody need rely on a liar."""
        return name not in self.liars and super().may_be_of_use(name)
