"""Nodes that were lost and come back: a restarted agent, a restored link, a process that goes on.

No node has to announce that it is back. It is greeted again: once, a while after it was lost, and
anew whenever its connection is made anew (the shell sees to that, ever more rarely). What is on its
way when a network is down waits there, so this one greeting is answered when the node can. A node
is back when it has answered and has dropped its deployment; then it is idle and has no
part in anything until the next plan gives it one.

A loss costs all nodes a pause, so a node that flaps must not be used again at once. Each loss is a
*strike*; one that made nothing pause counts a quarter. Strikes decay, to half in
`HALF_LIFE_S`. After the first one a node is greeted within `SETTLE_S`, and each further one
multiplies that by `GROWTH`, up to `LONGEST_S`. So in the long run a node that is lost whenever it
is used costs one pause in some minutes, and one that was lost three times last week is as good as
any. Where the run cannot go on without nodes that are lost (`hurry`), strikes do not count.

A node that *failed* (its engine, its disk, the protocol) would do so again: it is greeted only if
its connection is made anew, which a restart of its agent does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launcher.core.events import Action, Notice, Send
from launcher.core.sentences import other_protocol
from launcher.core.session import Session, SessionState, Step
from launcher.core.watch import is_past
from nodes.protocol.messages import PROTOCOL, Control, Hello, Refused, Stop, Stopped, Welcome

SETTLE_S = 1.0
"""From the first loss of a node until it is greeted again."""

GROWTH = 4.0
"""By which each further strike multiplies that."""

HALF_LIFE_S = 600.0
"""Of strikes."""

REFUSED_S = 2.0
"""From a refusal to the next greeting; doubled with each further one, up to `LONGEST_REFUSED_S`."""

LONGEST_REFUSED_S = 30.0

LONGEST_S = 600.0
"""The longest time until a node is greeted again."""

STANDING_BY = 0.25
"""Strikes for the loss of a node that had no part in anything."""

RESTART_S = 30.0
"""How long to wait for agents that failed, in case that they start anew (an engine that hangs is
given time to come back first)."""


@dataclass(slots=True)
class _LossRecord:
    """What is known of a node's losses. `is_failed`: by itself; `has_ended`: its process."""

    strikes: float = 0.0
    struck_s: float = 0.0
    not_before_s: float = 0.0
    refusals: int = 0
    epoch: int = 0
    is_failed: bool = False
    has_ended: bool = False

    def strike(self, strikes: float, now_s: float) -> None:
        """Count another loss."""
        self.strikes *= 0.5 ** ((now_s - self.struck_s) / HALF_LIFE_S)
        self.strikes += strikes
        self.struck_s = now_s
        wait_s = SETTLE_S * GROWTH ** max(0.0, self.strikes - 1.0)
        self.not_before_s = now_s + min(LONGEST_S, wait_s)


class Returns:
    """Greets the lost ones of `sessions` with `hello`."""

    def __init__(self, sessions: Mapping[str, Session], hello: Hello) -> None:
        self._sessions = sessions
        self._hello = hello
        self._greet_at_s: dict[str, float] = {}
        self._records = {node: _LossRecord() for node in sessions}
        self._hurry_s: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """When the next greeting is due."""
        return min(self._greet_at_s.values(), default=None)

    def note_loss(
        self, session: Session, now_s: float, epoch: int, strikes: float, *, failed: bool
    ) -> None:
        """A node is lost, which may have been deployed for `epoch`."""
        record = self._records[session.node]
        record.refusals, record.epoch, record.is_failed = 0, epoch, failed
        record.strike(strikes, now_s)
        self._greet_at_s.pop(session.node, None)
        if not failed:
            self._greet(session.node, record.not_before_s, now_s)

    def process_ended(self, node: str) -> None:
        """Its process, which we started, has ended; nobody starts it again."""
        self._records[node].has_ended = True
        self._greet_at_s.pop(node, None)

    def _greet(self, node: str, at_s: float, now_s: float) -> None:
        record = self._records[node]
        if record.has_ended:
            return
        if self._hurry_s is not None:
            at_s = min(at_s, now_s + self._hurry_s)
        self._greet_at_s[node] = at_s

    # ------------------------------------------------------------ whom to wait for

    def expected_s(self) -> float | None:
        """How long it makes sense to wait for those that are lost; None if nobody can come."""
        missing = [
            self._records[node]
            for node, session in self._sessions.items()
            if not session.is_open and not self._records[node].has_ended
        ]
        if not missing:
            return None
        return RESTART_S if all(record.is_failed for record in missing) else float("inf")

    @property
    def is_complete(self) -> bool:
        """Whether every node that can be expected is there."""
        return all(
            session.is_open or self._records[node].has_ended or self._records[node].is_failed
            for node, session in self._sessions.items()
        )

    def hurry(self, within_s: float, now_s: float) -> None:
        """The run waits for those that are lost: greet them within that time."""
        self._hurry_s = within_s
        for node, session in self._sessions.items():
            if session.state is SessionState.LOST and not self._records[node].is_failed:
                self._greet(node, self._greet_at_s.get(node, float("inf")), now_s)

    def stop_hurrying(self) -> None:
        """Greet lost nodes at their own time again: the run goes on."""
        self._hurry_s = None

    def give_up(self) -> None:
        """Greet nobody any more: the run needs none."""
        self._greet_at_s.clear()

    # ------------------------------------------------------------ what happens to lost nodes

    def connected(self, session: Session, now_s: float) -> list[Action]:
        """Its control connection was made anew."""
        if session.is_present:
            return []
        if session.state is SessionState.RETURNING:  # what was sent before may be lost
            return [Send(session.node, self._hello)]
        if session.node not in self._greet_at_s:
            not_before_s = self._records[session.node].not_before_s
            self._greet(session.node, max(now_s + SETTLE_S, not_before_s), now_s)
        return []

    def receive(
        self, session: Session, message: Control, host: str | None, now_s: float
    ) -> list[Action]:
        """Follow a message of a lost node. After its `Welcome` it has to stop what may still be
        deployed; once it has answered that, it is there again, idle."""
        if session.state is not SessionState.RETURNING:
            return []
        record = self._records[session.node]
        match message:
            case Refused():  # if to what was said before the greeting, Welcome follows
                record.refusals += 1
                waiting_s = min(LONGEST_REFUSED_S, REFUSED_S * 2 ** (record.refusals - 1))
                self._greet_at_s[session.node] = now_s + waiting_s
            case Welcome(protocol) if protocol != PROTOCOL:
                session.lose()
                return [Notice(f"{other_protocol(session, protocol)}; it is not used again")]
            case Welcome():
                session.receive(message)
                session.welcome, session.host = message, host
                # Its lease ends if it takes longer than that to stop.
                self._greet_at_s[session.node] = now_s + self._hello.lease_s
                return [Send(session.node, Stop(record.epoch))]
            case Stopped(epoch) if session.welcome is not None and epoch == record.epoch:
                session.receive(message)
                session.come_back()
                self._greet_at_s.pop(session.node, None)
                record.is_failed = False
        return []

    def due(self, now_s: float) -> list[Action]:
        """Greet those whose time has come."""
        found = [node for node, at_s in self._greet_at_s.items() if is_past(at_s, now_s)]
        actions: list[Action] = []
        for node in found:
            del self._greet_at_s[node]
            session = self._sessions[node]
            if session.state is SessionState.LOST:
                session.step(Step.GREET)
            if session.state is SessionState.RETURNING:
                session.welcome, session.host = None, None
                actions.append(Send(node, self._hello))
        return actions
