"""Nodes that were lost and come back: a restarted agent, a restored link, a process that goes on.

Nobody has to tell that a node is back. It is greeted again: once, a while after it was lost, and
anew whenever its connection is made again (the shell sees to that, ever more rarely). What is on
its way when a network is down waits there, so this one greeting is answered when the node can. A
node that answers is idle and has no part in anything until the next plan gives it one.

How often this happens is bounded, because a loss costs all nodes a pause: the while doubles with
each loss of a node, and after `MOST_LOSSES` it stays lost. A node that *failed* (its engine, its
disk, the protocol) would do so again: it is greeted only if its connection is made anew, which a
restart of its agent does.
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core.events import Action, Notice, Send
from launcher.core.sentences import other_protocol
from launcher.core.session import Session, State, Step
from launcher.core.watch import is_past
from nodes.core.messages import PROTOCOL, Control, Hello, Refused, Stop, Welcome

MOST_LOSSES = 3
"""A node that was lost so often stays lost."""

SETTLE_S = 1.0
"""From the first loss of a node until it is greeted again; doubled with each further one."""

REFUSED_S = 2.0
"""From a refusal to the next greeting; doubled with each further one, up to `LONGEST_S`."""

LONGEST_S = 60.0


class Returns:
    """Greets the lost ones of `sessions` with `hello`."""

    def __init__(self, sessions: Mapping[str, Session], hello: Hello) -> None:
        self._sessions = sessions
        self._hello = hello
        self._greet_at_s: dict[str, float] = {}
        self._refusals: dict[str, int] = {}
        self._last_epoch: dict[str, int] = {}

    @property
    def deadline_s(self) -> float | None:
        """When the next greeting is due."""
        return min(self._greet_at_s.values(), default=None)

    def lost(self, session: Session, now_s: float, epoch: int | None, *, failed: bool) -> None:
        """A node is lost, which may have been deployed for `epoch`."""
        node = session.node
        self._refusals.pop(node, None)
        self._greet_at_s.pop(node, None)
        if epoch is not None:
            self._last_epoch[node] = epoch
        if not failed and self.may_return(session):
            self._greet_at_s[node] = now_s + SETTLE_S * 2 ** (session.losses - 1)

    def may_return(self, session: Session) -> bool:
        """Whether it was not lost too often."""
        return session.losses < MOST_LOSSES

    def give_up(self) -> None:
        """The run needs nobody any more."""
        self._greet_at_s.clear()

    # ------------------------------------------------------------ what happens to lost nodes

    def connected(self, session: Session, now_s: float) -> list[Action]:
        """Its control connection was made anew."""
        if session.is_there or not self.may_return(session):
            return []
        if session.state is State.RETURNING:  # what was sent before may be lost
            return [Send(session.node, self._hello)]
        self._greet_at_s.setdefault(session.node, now_s + SETTLE_S)
        return []

    def heard(self, session: Session, message: Control, now_s: float) -> list[Action]:
        """It says something; after the Welcome that was waited for it is there again, idle."""
        if session.state is not State.RETURNING:
            return []
        if isinstance(message, Refused):  # if to what was said before the greeting, Welcome follows
            times = self._refusals[session.node] = self._refusals.get(session.node, 0) + 1
            waiting_s = min(LONGEST_S, REFUSED_S * 2 ** (times - 1))
            self._greet_at_s[session.node] = now_s + waiting_s
            return []
        if not isinstance(message, Welcome):
            return []
        if message.protocol != PROTOCOL:
            session.lose()
            return [Notice(f"{other_protocol(session, message.protocol)}; it is not used again")]
        session.hear(message)
        session.come_back()
        self._greet_at_s.pop(session.node, None)
        epoch = self._last_epoch.pop(session.node, None)
        return [] if epoch is None else [Send(session.node, Stop(epoch))]  # what it may still have

    def due(self, now_s: float) -> list[Action]:
        """Greet those whose time has come."""
        found = [node for node, at_s in self._greet_at_s.items() if is_past(at_s, now_s)]
        actions: list[Action] = []
        for node in found:
            del self._greet_at_s[node]
            session = self._sessions[node]
            if session.state is State.LOST:
                session.step(Step.GREET)
                session.welcome, session.host = None, None
            if session.state is State.RETURNING:
                actions.append(Send(node, self._hello))
        return actions
