"""The agent's core: one state machine without I/O, `handle(event, now_s) → [action]`.

An agent has at most one session (`nodes.core.session`) and one deployment (`nodes.core.lifecycle`)
at any time. This module dispatches events to the two, and handles peers that break the protocol:
their connection is closed. If the peer is the launcher, its session ends; if it is a node of the
current deployment, that deployment has failed. The agent continues.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from nodes.core import events as ev
from nodes.core.actions import (
    Action,
    CloseAhead,
    CutOffLink,
    CutOffPeer,
    Exit,
    ExitIfUnused,
    FindFigures,
    Log,
    LookUp,
    Measure,
    PrepareSubnets,
    Release,
    Reply,
    Restart,
    SendTrace,
    WriteChunk,
)
from nodes.core.admission import Rejections
from nodes.core.lifecycle import MAX_REASON, Lifecycle, Stage, Tally
from nodes.core.session import LONGEST_LEASE_S, OpenSession, admit
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    PROTOCOL,
    Bye,
    Command,
    Control,
    Deploy,
    Deployed,
    Deployment,
    Failed,
    Figures,
    GetFigures,
    GetStats,
    GetTrace,
    Hello,
    Ping,
    Pong,
    Prepare,
    Prepared,
    Progress,
    Put,
    Query,
    Refused,
    Shutdown,
    Start,
    Stats,
    Stop,
    Welcome,
)
from nodes.protocol.schema import has_message

STORY_EVENTS = 24
"""The number of last events that the report of a bug describes."""

_ENDED = "phase {} ended frame {}"
"""The description of a firing's end in a story, which keeps the two numbers only."""

CLOSED_PEERS = 64
"""Closed control connections that are remembered, because their last messages are read later."""


@dataclass(frozen=True, slots=True)
class AgentFigures:
    """The figures that an agent shows: its identity, its state and its deployment's statistics."""

    identity: Welcome
    has_session: bool
    is_running: bool
    stats: Stats


class Agent:
    """The state of one agent, which reports its `identity` to each launcher that greets it.

    With `obeys_shutdown`, the message `Shutdown` ends it. `longest_lease_s` bounds the lease that a
    launcher may have. If `idle_s` is not None, it exits when no launcher has had it for that long;
    the shell then sends a `Tick` at the start.
    """

    def __init__(
        self,
        identity: Welcome,
        *,
        obeys_shutdown: bool = False,
        longest_lease_s: float = LONGEST_LEASE_S,
        idle_s: float | None = None,
    ) -> None:
        self.identity = identity
        self._idle_s = idle_s
        self._free_since_s: float | None = None
        self.obeys_shutdown = obeys_shutdown
        self.longest_lease_s = longest_lease_s
        self.session: OpenSession | None = None
        self.tally = Tally()
        self.life = Lifecycle(self.tally, self._to_launcher)
        self._exit_is_due = False
        self._is_preparing = False
        self._rejections = Rejections()
        self._closed_peers: deque[ev.Peer] = deque(maxlen=CLOSED_PEERS)
        self._story: deque[tuple[float, object]] = deque(maxlen=STORY_EVENTS)

    def handle(self, event: ev.Event, now_s: float) -> list[Action]:
        """Return the actions that an event causes; `now_s` is a monotonic clock.

        It never raises because of what a peer has sent. A bug of the agent fails the deployment.
        """
        self._story.append((now_s, _summary(event)))
        if (plane := self.life.plane) is not None:
            plane.now_s = now_s
        try:
            return self._dispatch(event, now_s)
        except RemoteProtocolError as error:
            return self._breach(event, str(error), now_s)
        except LocalProtocolError as error:
            return self.life.fail(f"a bug of the agent: {error}. {self.story()}")

    def _dispatch(  # noqa: PLR0912 - one case per event, the frequent ones first
        self, event: ev.Event, now_s: float
    ) -> list[Action]:
        match event:
            case ev.DataReceived():
                return self.life.data(event)
            case ev.FiringEnded():
                return self.life.firing_ended(event)
            case ev.Sent():
                return self.life.sent(event)
            case ev.ControlReceived():
                return self._control(event, now_s)
            case ev.Tick():
                return self._tick(now_s)
            case ev.ControlMalformed(_, reason) | ev.DataMalformed(_, reason):
                raise RemoteProtocolError(reason)
            case ev.Rejected(reason):
                self.tally.bad_messages += 1
                return self._warn("dropped a connection", reason, now_s)
            case ev.PeerLost(peer):
                return self._peer_lost(peer)
            case ev.LinkLost():
                return self.life.link_lost(event)
            case ev.Answered(peer, message):
                return self._reply(peer, message)
            case ev.ChunkFailed(peer, reason):
                return [*self._reply(peer, Failed(0, reason)), Log("error", reason)]
            case Progress():
                return self.life.load_progress(event)
            case Prepared(epoch, reason):
                self._is_preparing = False
                return self._to_launcher(Prepared(epoch, reason[:MAX_REASON]))
            case ev.FiguresFound(session, figures, reason):
                if self.session is None or self.session.name != session:
                    return []  # they are kept for the next launcher
                return self._to_launcher(Figures(figures, reason[:MAX_REASON]))
            case Deployed():
                return self.life.loaded(event)
            case ev.LoadFailed():
                return self.life.load_failed(event)
            case ev.FiringFailed():
                return self.life.firing_failed(event)
            case ev.Unloaded():
                return self.life.unloaded(event) + self._exit_if_due()
            case ev.Measured():
                return self.life.measured(event, now_s)

    @property
    def deadline_s(self) -> float | None:
        """When the shell has to send a `Tick`; None if no time limit is running."""
        first_s = None if self.session is None else self.session.deadline_s
        for at_s in (
            self.life.answer_by_s,
            self.life.check_due_s,
            self._rejections.deadline_s,
            self._idle_until_s,
        ):
            if at_s is not None and (first_s is None or at_s < first_s):
                first_s = at_s
        return first_s

    def figures(self, usage: ev.Usage, now_s: float) -> AgentFigures:
        """Return what the agent shows of itself, with a measurement of its process."""
        is_running = self.life.stage is Stage.RUNNING
        stats = self.life.stats(usage, now_s)
        return AgentFigures(self.identity, self.session is not None, is_running, stats)

    @property
    def _idle_until_s(self) -> float | None:
        """When it exits unless a launcher comes; None while it has one, or something to unload."""
        if self._idle_s is None or self._free_since_s is None or self.session is not None:
            return None
        return self._free_since_s + self._idle_s if self.life.stage is Stage.EMPTY else None

    def story(self) -> str:
        """Return the last events, oldest first, with their times in seconds."""
        return "What led to this: " + "; ".join(
            f"{at:.6f} {_ENDED.format(*what) if type(what) is tuple else what}"
            for at, what in self._story
        )

    def _to_launcher(self, message: Control) -> list[Action]:
        return [] if self.session is None else self._reply(self.session.peer, message)

    @property
    def _speaks(self) -> int:
        """The version of the protocol in the present session."""
        return PROTOCOL if self.session is None else self.session.protocol

    def _reply(self, peer: ev.Peer, message: Control) -> list[Action]:
        """Send a message in the version of the peer's session, if it has one."""
        session = self.session
        if session is None or session.peer != peer:
            return [Reply(peer, message)]
        return [Reply(peer, message, session.protocol)]

    # ------------------------------------------------------------ commands

    def _control(self, event: ev.ControlReceived, now_s: float) -> list[Action]:
        peer, message = event.peer, event.message
        if isinstance(message, Hello):
            return self._hello(message, peer, event.key, now_s)
        if not isinstance(message, Command):
            raise RemoteProtocolError(f"{type(message).__name__} is not a message for agents")
        if self.session is None or self.session.peer != peer:
            self.tally.stale_messages += 1
            reason = "no session: it ended after a silence, or no Hello was sent"
            return [Reply(peer, Refused(reason, PROTOCOL))]
        if not has_message(self.session.protocol, type(message)):
            kind = type(message).__name__
            raise RemoteProtocolError(f"{kind} in a session of protocol {self.session.protocol}")
        self.session.heard_s = now_s
        return self._obey(message, peer, now_s)

    def _obey(  # noqa: PLR0912 - one case per command
        self, command: Command, peer: ev.Peer, now_s: float
    ) -> list[Action]:
        """Return the actions for a command of the session's launcher."""
        match command:
            case Ping():
                return self._to_launcher(Pong())
            case Query(digests):
                return [LookUp(peer, digests)]
            case Put(blob, offset_bytes, data):
                if offset_bytes + len(data) > blob.size_bytes:
                    raise RemoteProtocolError(f"a chunk beyond the end of blob {blob.digest[:12]}")
                return [WriteChunk(peer, command)]
            case Prepare(deployment, loads):
                return self._prepare(deployment, loads=loads)
            case Deploy(deployment):
                return self.life.deploy(deployment)
            case Start():
                return self.life.start(command, now_s)
            case Stop():
                return self.life.stop(command)
            case GetFigures(threads, again):
                is_idle = self.life.stage is Stage.EMPTY and not self._is_preparing
                session = "" if self.session is None else self.session.name
                return [FindFigures(session, threads, is_idle, again)]
            case GetStats():
                return [Measure("stats")]
            case GetTrace(number, frames):
                return [SendTrace(peer, number, now_s, frames, self._speaks)]
            case Bye():
                return self._end_session("the launcher sent Bye")
            case Shutdown():
                return self._shutdown()

    def _hello(self, hello: Hello, peer: ev.Peer, key: bytes, now_s: float) -> list[Action]:
        if peer in self._closed_peers:
            return []
        held = self.session
        longest_s = self.longest_lease_s
        answer = admit(hello, peer, held, now_s, key=key, longest_lease_s=longest_s)
        if isinstance(answer, Refused):
            return [
                Reply(peer, answer, answer.protocol),
                *self._warn("refused a launcher", answer.reason, now_s),
            ]
        actions: list[Action] = []
        if held is not None and held.name != answer.name:
            how = "fell silent" if held.is_over(now_s) else "is gone"
            actions += self._end_session(
                f"{held.described()} {how}, and another launcher has connected"
            )
        self.session = answer
        return [
            *actions,
            CloseAhead(),  # a launcher that greets again knows nothing of it
            *self._to_launcher(replace(self.identity, protocol=answer.protocol)),
            Log("info", f"{answer.described()} is using this agent"),
        ]

    def _prepare(self, deployment: Deployment, *, loads: bool) -> list[Action]:
        """Prepare subnets ahead, those of one deployment at a time."""
        if self._is_preparing:
            reason = "the subnets of another deployment are being prepared"
            return self._to_launcher(Prepared(deployment.epoch, reason))
        self._is_preparing = True
        return [PrepareSubnets(deployment, loads)]

    def _shutdown(self) -> list[Action]:
        if not self.obeys_shutdown:
            reason = "no launcher started this agent, so it does not obey Shutdown"
            return self._to_launcher(Refused(reason, self._speaks))
        self._exit_is_due = True
        return self._end_session("the launcher shuts this agent down") + self._exit_if_due()

    def _exit_if_due(self) -> list[Action]:
        if self._exit_is_due and self.life.stage is Stage.EMPTY:
            return [Exit("a launcher's Shutdown")]
        return []

    def _end_session(self, why: str) -> list[Action]:
        if self.session is not None:
            self._free_since_s = self.session.heard_s
        self.session = None
        return [Log("info", f"the session ended: {why}"), *self.life.end(), Release()]

    def _peer_lost(self, peer: ev.Peer) -> list[Action]:
        """Note that the connection is gone; the session stays for the rest of its lease."""
        self._closed_peers.append(peer)
        if self.session is None or self.session.peer != peer:
            return []
        self.session.is_lost = True
        return [Log("info", f"the connection with {self.session.described()} has closed")]

    # ------------------------------------------------------------ time limits and breaches

    def _tick(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        if self.session is not None and self.session.is_over(now_s):
            silence = f"its launcher was silent for {self.session.lease_s:g} s"
            actions += self._end_session(silence)
        actions += [Log("warning", text) for text in self._rejections.due(now_s)]
        if self.life.answer_by_s is not None and now_s >= self.life.answer_by_s:
            actions += self.life.answer_overdue()
        return actions + self._check_engine(now_s) + self._exit_if_idle(now_s)

    def _exit_if_idle(self, now_s: float) -> list[Action]:
        if self._free_since_s is None:
            self._free_since_s = now_s
        until_s = self._idle_until_s
        if until_s is None or now_s < until_s:
            return []
        self._free_since_s = now_s  # if it is connected, it is asked again later
        return [ExitIfUnused(f"no launcher has connected for {self._idle_s:g} s")]

    def _check_engine(self, now_s: float) -> list[Action]:
        actions = self.life.check_engine(now_s)
        if not self._exit_is_due:
            return actions
        # An agent that has been shut down exits instead of restarting.
        return [Exit(action.why) if isinstance(action, Restart) else action for action in actions]

    def _warn(self, what: str, why: str, now_s: float) -> list[Action]:
        """Log a warning, at the limited rate of its kind."""
        text = self._rejections.note(what, why, now_s)
        return [] if text is None else [Log("warning", text)]

    def _breach(self, event: ev.Event, reason: str, now_s: float) -> list[Action]:
        """Cut off a peer that broke the protocol, and end its session or deployment."""
        self.tally.bad_messages += 1
        actions: list[Action]
        if isinstance(event, ev.DataReceived | ev.DataMalformed):
            node = self.life.node_of(event.link)
            who = "a data connection" if node is None else f"node {node!r}"
            actions = self._warn(f"cut off {who}", reason, now_s)
            actions.append(CutOffLink(event.link))
            if node is not None:
                actions += self.life.fail(f"node {node!r} broke the protocol: {reason}", node)
            return actions
        if not isinstance(event, ev.ControlReceived | ev.ControlMalformed):
            return self.life.fail(f"a bug of the agent: {reason}. {self.story()}")
        actions = self._warn("cut off a launcher", reason, now_s)
        actions.append(CutOffPeer(event.peer))
        if self.session is not None and self.session.peer == event.peer:
            actions += self._end_session("its launcher broke the protocol")
        return actions


def _summary(event: ev.Event) -> object:
    """Return what the story keeps of an event: no payload and no chunk, which hold memory."""
    match event:
        case ev.DataReceived():
            return event.message
        case ev.FiringEnded():
            return event.phase, event.frame
        case ev.ControlReceived():
            return type(event.message).__name__
        case _:
            return type(event).__name__
