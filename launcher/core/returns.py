"""Greets lost nodes again, so that a restarted agent or a restored link can return to the run.

A lost node does not have to announce its return. It is greeted once, some time after the loss, and
again whenever its connection is re-established (the shell tries this ever more rarely). A message
sent while the network is down waits in the socket, so the single greeting is answered as soon as
the node can. The node has returned when it has answered and dropped its deployment. It is then idle
until a plan gives it a part.

A loss costs all nodes a pause, so a node that is lost repeatedly must not be used at once. Each
loss counts a *strike*, or a quarter of one if nothing had to pause. Strikes decay with the
half-life `HALF_LIFE_S`. After the first strike a node is greeted within `SETTLE_S`; each further
one multiplies this time by `GROWTH`, up to `LONGEST_S`. In the long run a node that is lost
whenever it is used costs one pause in several minutes, and old losses do not count. If the run
cannot continue without lost nodes, strikes are ignored (`hurry`).

A node that *failed* (its engine, its disk, a breach of the protocol) would fail again. It is
greeted only when its connection is re-established, as it is when its agent is restarted. The same
holds for one that cannot be used (*unusable*: another protocol, no such engine): waiting does not
change that, but its agent may be replaced by another one. A node that refuses this launcher's key
is dialled again every `REDIAL_S`.

Nodes that were absent when the run began are greeted in the same way. Before the first frame, a
node that is lost `MOST_LOADS` times while it loads its part is left alone until frames stream:
otherwise a subnet that crashes every agent would keep a run in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from launcher.core.events import Action, MessageReceived, Notice, Redial, Send
from launcher.core.session import Session, SessionState
from launcher.core.watch import is_past
from launcher.errors import LauncherError
from nodes.core.pauses import pause_s
from nodes.protocol.messages import Bye, Hello, Refused, Stop, Stopped, Welcome

SETTLE_S = 1.0
"""From the first loss of a node to the greeting."""

GROWTH = 4.0
"""The factor by which each further strike multiplies this time."""

HALF_LIFE_S = 600.0
"""The time in which strikes decay to half."""

REFUSED_S = 2.0
"""From a refusal to the next greeting; doubled by each further one, up to `LONGEST_REFUSED_S`."""

LONGEST_REFUSED_S = 30.0

LONGEST_S = 600.0
"""The longest time until a node is greeted again."""

REDIAL_S = 30.0
"""From a node's refusal of this launcher's key to the next attempt to connect."""

MOST_LOADS = 3
"""How many times a node may be lost while it loads its part, before the first frame."""

STANDING_BY = 0.25
"""The strikes for the loss of a node that had no part in the plan."""

RESTART_S = 30.0
"""How long to wait for agents that failed, in case they restart (one whose engine hangs waits for
the engine first)."""


Unusable = Callable[[Session, Welcome], LauncherError | None]
"""The reason why a node cannot be used, by its agent's `Welcome`; None if it can."""


@dataclass(slots=True)
class _LossRecord:
    """A node's losses.

    It `is_failed` if the latest was its own failure; it `has_ended` if its process, which this
    launcher started, has ended. It `is_unusable` if waiting will not help, and `is_barred` if it
    has to be dialled again. It was lost `loads` times while it loaded its part, before the first
    frame.
    """

    strikes: float = 0.0
    struck_s: float = 0.0
    not_before_s: float = 0.0
    refusals: int = 0
    epoch: int = 0
    is_failed: bool = False
    has_ended: bool = False
    is_unusable: bool = False
    is_barred: bool = False
    loads: int = 0

    @property
    def is_gone(self) -> bool:
        """Whether the node is not greeted again, or not until frames stream."""
        return self.has_ended or self.loads >= MOST_LOADS

    def strike(self, strikes: float, now_s: float) -> None:
        """Count another loss."""
        self.strikes *= 0.5 ** ((now_s - self.struck_s) / HALF_LIFE_S)
        self.strikes += strikes
        self.struck_s = now_s
        wait_s = SETTLE_S * GROWTH ** max(0.0, self.strikes - 1.0)
        self.not_before_s = now_s + min(LONGEST_S, wait_s)


class Returns:
    """Decides when to greet the lost nodes of `sessions` with `hello`."""

    def __init__(self, sessions: Mapping[str, Session], hello: Hello, unusable: Unusable) -> None:
        self._sessions = sessions
        self._hello = hello
        self._unusable = unusable
        self._greet_at_s: dict[str, float] = {}
        self._records = {node: _LossRecord() for node in sessions}
        self._hurry_s: float | None = None

    @property
    def deadline_s(self) -> float | None:
        """When the next greeting is due; None if none is planned."""
        return min(self._greet_at_s.values(), default=None)

    def note_loss(
        self, session: Session, now_s: float, epoch: int, strikes: float, *, failed: bool
    ) -> None:
        """Note that a node is lost, and may still hold the deployment of `epoch` (0: none)."""
        record = self._records[session.node]
        record.refusals, record.epoch, record.is_failed = 0, epoch, failed
        record.strike(strikes, now_s)
        if record.is_unusable:
            return
        self._greet_at_s.pop(session.node, None)
        if not failed:
            self._greet(session.node, record.not_before_s, now_s)

    def note_unusable(self, node: str, now_s: float, *, is_barred: bool = False) -> None:
        """Note that waiting for a node will not help; `is_barred` if it has to be dialled again
        before its connection can be re-established.
        """
        record = self._records[node]
        record.is_unusable, record.is_barred = True, is_barred
        self._greet_at_s.pop(node, None)
        if is_barred:
            self._greet_at_s[node] = now_s + REDIAL_S

    def note_lost_loading(self, node: str) -> None:
        """Note that a node was lost while it loaded its part, before the first frame."""
        self._records[node].loads += 1
        if self._records[node].is_gone:
            self._greet_at_s.pop(node, None)

    def note_streaming(self, now_s: float) -> None:
        """Greet the nodes again that were left alone because frames did not stream."""
        for node, record in self._records.items():
            was_gone, record.loads = record.is_gone, 0
            is_lost = self._sessions[node].state is SessionState.LOST
            if was_gone and is_lost and not record.is_failed and not record.is_unusable:
                self._greet(node, max(now_s + SETTLE_S, record.not_before_s), now_s)

    def process_ended(self, node: str) -> None:
        """Note that the agent's process, which this launcher started, has ended."""
        self._records[node].has_ended = True
        self._greet_at_s.pop(node, None)

    def _greet(self, node: str, at_s: float, now_s: float) -> None:
        record = self._records[node]
        if record.is_gone:
            return
        if self._hurry_s is not None:
            at_s = min(at_s, now_s + self._hurry_s)
        self._greet_at_s[node] = at_s

    # ------------------------------------------------------------ which nodes can return

    def expected_s(self, *, repairs: bool = False) -> float | None:
        """The longest time to wait for lost nodes; None if none of them can return.

        With `repairs`, the user may make nodes usable while the run waits.
        """
        records = [
            self._records[node] for node, session in self._sessions.items() if not session.is_open
        ]
        missing = [r for r in records if not r.is_gone and (repairs or not r.is_unusable)]
        if not missing:
            return None
        return RESTART_S if all(record.is_failed for record in missing) else inf

    @property
    def is_complete(self) -> bool:
        """Whether every node that can be expected to return has done so."""
        return all(
            session.is_open or record.is_gone or record.is_failed or record.is_unusable
            for session, record in ((self._sessions[n], r) for n, r in self._records.items())
        )

    def hurry(self, within_s: float, now_s: float) -> None:
        """Greet lost nodes within `within_s`, because the run waits for them."""
        self._hurry_s = within_s
        for node, session in self._sessions.items():
            record = self._records[node]
            would_fail = record.is_failed or record.is_unusable
            if session.state is SessionState.LOST and not would_fail:
                self._greet(node, self._greet_at_s.get(node, inf), now_s)

    def stop_hurrying(self) -> None:
        """Greet lost nodes at their usual times again, because the run continues."""
        self._hurry_s = None

    def give_up(self) -> None:
        """Stop greeting nodes, because the run needs none."""
        self._greet_at_s.clear()

    # ------------------------------------------------------------ events of lost nodes

    def connected(self, session: Session, now_s: float) -> list[Action]:
        """Act on the control connection with a lost node being re-established."""
        if session.is_present:
            return []
        if self._records[session.node].is_barred:
            self._records[session.node].is_barred = False
            self._greet_at_s.pop(session.node, None)
        if session.state is SessionState.RETURNING:  # the greeting may be lost
            return [session.greet(self._hello)]
        if session.node not in self._greet_at_s:
            not_before_s = self._records[session.node].not_before_s
            self._greet(session.node, max(now_s + SETTLE_S, not_before_s), now_s)
        return []

    def receive(self, session: Session, event: MessageReceived, now_s: float) -> list[Action]:
        """Act on a message of a lost node.

        After its `Welcome` it has to stop what it may still have deployed. When it has answered
        that it has `Stopped`, it has returned and is idle.
        """
        if session.state is not SessionState.RETURNING:
            return []
        record, message = self._records[session.node], event.message
        match message:
            case Refused() if session.node in self._greet_at_s:
                pass  # the answer to a greeting that was repeated when the connection was made
            case Refused() if again := session.repeat_greeting(event, self._hello):
                return again
            case Refused():  # if it answers an earlier message, a Welcome follows
                record.refusals += 1
                waiting_s = pause_s(record.refusals, REFUSED_S, LONGEST_REFUSED_S)
                self._greet_at_s[session.node] = now_s + waiting_s
            case Welcome() if (why := self._unusable(session, message)) is not None:
                session.lose(str(why))
                self.note_unusable(session.node, now_s)
                notice = Notice(f"{why}; it is not used", "warning", (session.node,))
                return [Send(session.node, Bye()), notice]
            case Welcome():
                session.receive(message, event.host)
                # Its lease ends if it takes longer than that to stop.
                self._greet_at_s[session.node] = now_s + self._hello.lease_s
                return [Send(session.node, Stop(record.epoch))]
            case Stopped(epoch) if session.welcome is not None and epoch == record.epoch:
                session.receive(message)
                self._greet_at_s.pop(session.node, None)
                record.is_failed = record.is_unusable = False
        return []

    def due(self, now_s: float) -> list[Action]:
        """Greet the nodes that are due."""
        found = [node for node, at_s in self._greet_at_s.items() if is_past(at_s, now_s)]
        actions: list[Action] = []
        for node in found:
            del self._greet_at_s[node]
            session = self._sessions[node]
            if self._records[node].is_barred:
                self._greet_at_s[node] = now_s + REDIAL_S
                actions.append(Redial(node))
                continue
            if not session.is_present:
                actions.append(session.greet(self._hello))
        return actions
