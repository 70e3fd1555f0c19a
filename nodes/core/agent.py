"""The agent's core: one pure state machine, `handle(event, now_s) → [action]`.

An agent has at most one session (`nodes.core.session`) and one deployment (`nodes.core.lifecycle`)
at any time; here is what joins them, and what happens when somebody breaks the protocol. That
costs a peer its connection: a launcher its session, and a node of the current deployment that
deployment. The agent goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nodes.core import events as ev
from nodes.core.actions import (
    Action,
    CutOffLink,
    CutOffPeer,
    Exit,
    Log,
    LookUp,
    Measure,
    Release,
    Reply,
    Restart,
    TellTrace,
    WriteChunk,
)
from nodes.core.errors import LocalProtocolError, RemoteProtocolError
from nodes.core.lifecycle import Lifecycle, Stage, Tally
from nodes.core.messages import (
    PROTOCOL,
    Bye,
    Control,
    Deploy,
    Failed,
    GetStats,
    GetTrace,
    Hello,
    Missing,
    Ping,
    Pong,
    Put,
    Query,
    Refused,
    Shutdown,
    Start,
    Stop,
    Stored,
    Welcome,
)
from nodes.core.rejections import Rejections
from nodes.core.session import LONGEST_LEASE_S, OpenSession, admit

STORY_EVENTS = 24
"""How many of the last events an error of ours tells."""

_ENDED = "phase {} ended frame {}"
"""How a story tells of a firing's end; until it is told, two numbers are all that is kept."""

GONE_PEERS = 64
"""Closed control connections that are remembered: what they said last is read later."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a `Welcome` tells of this agent."""

    name: str
    version: str
    data_address: str
    engine: str
    machine: str
    cores: int
    rss_bytes: int


class Agent:
    """See the module's docstring. `obeys_shutdown`: a launcher started it and may end it;
    `longest_lease_s`: for how long a silent launcher keeps it at most."""

    def __init__(
        self,
        identity: Identity,
        *,
        obeys_shutdown: bool = False,
        longest_lease_s: float = LONGEST_LEASE_S,
    ) -> None:
        self.identity = identity
        self.obeys_shutdown = obeys_shutdown
        self.longest_lease_s = longest_lease_s
        self.session: OpenSession | None = None
        self.tally = Tally()
        self.life = Lifecycle(self.tally, self._tell)
        self._exit_is_due = False
        self._rejections = Rejections()
        self._gone_peers: deque[ev.Peer] = deque(maxlen=GONE_PEERS)
        self._story: deque[tuple[float, object]] = deque(maxlen=STORY_EVENTS)

    def handle(self, event: ev.Event, now_s: float) -> list[Action]:
        """What to do about an event; `now_s` is any clock that never goes back, in seconds.

        Never raises on account of what a peer sent; a bug of ours fails the deployment.
        """
        self._story.append((now_s, _gist(event)))
        try:
            return self._HANDLERS[type(event)](self, event, now_s)
        except RemoteProtocolError as error:
            return self._breach(event, str(error), now_s)
        except LocalProtocolError as error:
            return self.life.fail(f"a bug of the agent: {error}. {self.story()}")

    @property
    def deadline_s(self) -> float | None:
        """When to hand in a `Tick` if nothing else happens; None: whenever something does."""
        first_s = None if self.session is None else self.session.deadline_s
        for at_s in (self.life.answer_by_s, self.life.look_s, self._rejections.deadline_s):
            if at_s is not None and (first_s is None or at_s < first_s):
                first_s = at_s
        return first_s

    def story(self) -> str:
        """The last events, oldest first, with their times in seconds."""
        return "What led there: " + "; ".join(
            f"{at:.6f} {_ENDED.format(*what) if type(what) is tuple else what}"
            for at, what in self._story
        )

    def _tell(self, message: Control) -> list[Action]:
        return [] if self.session is None else [Reply(self.session.peer, message)]

    # ------------------------------------------------------------ commands

    def _control(self, event: ev.ControlReceived, now_s: float) -> list[Action]:
        peer, message = event.peer, event.message
        if isinstance(message, Hello):
            return self._hello(message, peer, event.key, now_s)
        command = self._COMMANDS.get(type(message))
        if command is None:
            raise RemoteProtocolError(f"{type(message).__name__} is not said to an agent")
        if self.session is None or self.session.peer != peer:
            self.tally.stale_messages += 1
            reason = "no session: it ended after a silence, or Hello was never said"
            return [Reply(peer, Refused(reason, PROTOCOL))]
        self.session.heard_s = now_s
        return command(self, message, now_s)

    def _hello(self, hello: Hello, peer: ev.Peer, key: bytes, now_s: float) -> list[Action]:
        if peer in self._gone_peers:
            return []
        held = self.session
        longest_s = self.longest_lease_s
        answer = admit(hello, peer, held, now_s, key=key, longest_lease_s=longest_s)
        if isinstance(answer, Refused):
            return [
                Reply(peer, answer),
                *self._rejected_one("refused a launcher", answer.reason, now_s),
            ]
        actions: list[Action] = []
        if held is not None and held.name != answer.name:
            how = "fell silent" if held.is_over(now_s) else "is gone"
            actions += self._end_session(f"{held.told()} {how}, and another one has come")
        self.session = answer
        me = self.identity
        welcome = Welcome(
            protocol=PROTOCOL,
            name=me.name,
            version=me.version,
            data_address=me.data_address,
            engine=me.engine,
            machine=me.machine,
            cores=me.cores,
            rss_bytes=me.rss_bytes,
        )
        return [*actions, *self._tell(welcome), Log("info", f"{answer.told()} has this agent")]

    def _query(self, message: Query, _: float) -> list[Action]:
        return [] if self.session is None else [LookUp(self.session.peer, message.digests)]

    def _put(self, message: Put, _: float) -> list[Action]:
        if message.offset_bytes + len(message.data) > message.blob.size_bytes:
            raise RemoteProtocolError(f"a chunk beyond the end of blob {message.blob.digest[:12]}")
        return [] if self.session is None else [WriteChunk(self.session.peer, message)]

    def _get_trace(self, message: GetTrace, now_s: float) -> list[Action]:
        return [] if self.session is None else [TellTrace(self.session.peer, message.number, now_s)]

    def _bye(self, _: Bye, __: float) -> list[Action]:
        return self._end_session("the launcher said goodbye")

    def _shutdown(self, _: Shutdown, __: float) -> list[Action]:
        if not self.obeys_shutdown:
            reason = "this agent was not started by a launcher and does not end for one"
            return self._tell(Refused(reason, PROTOCOL))
        self._exit_is_due = True
        return self._end_session("the launcher shuts this agent down") + self._exit_if_due()

    def _exit_if_due(self) -> list[Action]:
        if self._exit_is_due and self.life.stage is Stage.EMPTY:
            return [Exit("a launcher's Shutdown")]
        return []

    def _end_session(self, why: str) -> list[Action]:
        self.session = None
        return [Log("info", f"the session ended: {why}"), *self.life.end(), Release()]

    # ------------------------------------------------------------ answers of the shell

    def _looked_up(self, event: ev.LookedUp, _: float) -> list[Action]:
        return [Reply(event.peer, Missing(event.missing))]

    def _chunk_written(self, event: ev.ChunkWritten, _: float) -> list[Action]:
        return [Reply(event.peer, Stored(event.digest, event.offset_bytes, event.complete))]

    def _chunk_failed(self, event: ev.ChunkFailed, _: float) -> list[Action]:
        return [Reply(event.peer, Failed(0, event.reason)), Log("error", event.reason)]

    def _peer_lost(self, event: ev.PeerLost, _: float) -> list[Action]:
        """Its session stays until the lease is over, unless somebody else may have it before."""
        self._gone_peers.append(event.peer)
        if self.session is None or self.session.peer != event.peer:
            return []
        self.session.is_lost = True
        return [Log("info", f"the connection with {self.session.told()} has closed")]

    def _unloaded(self, event: ev.Unloaded, _: float) -> list[Action]:
        return self.life.unloaded(event) + self._exit_if_due()

    # ------------------------------------------------------------ time, and what goes wrong

    def _tick(self, _: ev.Tick, now_s: float) -> list[Action]:
        actions: list[Action] = []
        if self.session is not None and self.session.is_over(now_s):
            silence = f"its launcher was silent for {self.session.lease_s:g} s"
            actions += self._end_session(silence)
        actions += [Log("warning", text) for text in self._rejections.due(now_s)]
        if self.life.answer_by_s is not None and now_s >= self.life.answer_by_s:
            actions += self.life.answer_overdue()
        return actions + self._look(now_s)

    def _look(self, now_s: float) -> list[Action]:
        actions = self.life.look(now_s)
        if not self._exit_is_due:
            return actions
        # No other agent has to take the place of one that shall end.
        return [Exit(action.why) if isinstance(action, Restart) else action for action in actions]

    def _malformed(self, event: ev.ControlMalformed | ev.DataMalformed, _: float) -> list[Action]:
        raise RemoteProtocolError(event.reason)

    def _rejected(self, event: ev.Rejected, now_s: float) -> list[Action]:
        self.tally.bad_messages += 1
        return self._rejected_one("dropped a connection", event.reason, now_s)

    def _rejected_one(self, what: str, why: str, now_s: float) -> list[Action]:
        """Tell of it, but in a flood of its kind only now and then."""
        text = self._rejections.note(what, why, now_s)
        return [] if text is None else [Log("warning", text)]

    def _breach(self, event: ev.Event, reason: str, now_s: float) -> list[Action]:
        """A peer broke the protocol: count, log, cut off, and end what depended on it."""
        self.tally.bad_messages += 1
        actions: list[Action]
        if isinstance(event, ev.DataReceived | ev.DataMalformed):
            node = self.life.node_of(event.link)
            who = "a data connection" if node is None else f"node {node!r}"
            actions = self._rejected_one(f"cut off {who}", reason, now_s)
            actions.append(CutOffLink(event.link))
            if node is not None:
                actions += self.life.fail(f"node {node!r} broke the protocol: {reason}", node)
            return actions
        if not isinstance(event, ev.ControlReceived | ev.ControlMalformed):
            return self.life.fail(f"a bug of the agent: {reason}. {self.story()}")
        actions = self._rejected_one("cut off a launcher", reason, now_s)
        actions.append(CutOffPeer(event.peer))
        if self.session is not None and self.session.peer == event.peer:
            actions += self._end_session("its launcher broke the protocol")
        return actions

    # ------------------------------------------------------------ what → who

    _HANDLERS: Mapping[type, Callable[[Agent, Any, float], list[Action]]] = {
        ev.ControlReceived: _control,
        ev.DataReceived: lambda self, event, _: self.life.data(event),
        ev.ControlMalformed: _malformed,
        ev.DataMalformed: _malformed,
        ev.Rejected: _rejected,
        ev.PeerLost: _peer_lost,
        ev.LinkLost: lambda self, event, _: self.life.link_lost(event),
        ev.LookedUp: _looked_up,
        ev.ChunkWritten: _chunk_written,
        ev.ChunkFailed: _chunk_failed,
        ev.LoadProgress: lambda self, event, _: self.life.load_progress(event),
        ev.Loaded: lambda self, event, _: self.life.loaded(event),
        ev.LoadFailed: lambda self, event, _: self.life.load_failed(event),
        ev.FiringEnded: lambda self, event, _: self.life.firing_ended(event),
        ev.FiringFailed: lambda self, event, _: self.life.firing_failed(event),
        ev.Unloaded: _unloaded,
        ev.Measured: lambda self, event, now_s: self.life.measured(event, now_s),
        ev.Tick: _tick,
    }
    _COMMANDS: Mapping[type, Callable[[Agent, Any, float], list[Action]]] = {
        Query: _query,
        Put: _put,
        Deploy: lambda self, message, _: self.life.deploy(message.deployment),
        Start: lambda self, message, now_s: self.life.start(message, now_s),
        Stop: lambda self, message, _: self.life.stop(message),
        GetStats: lambda _self, _message, _: [Measure("stats")],
        GetTrace: _get_trace,
        Ping: lambda self, _message, _: self._tell(Pong()),
        Bye: _bye,
        Shutdown: _shutdown,
    }


def _gist(event: ev.Event) -> object:
    """What the story keeps of an event: no payload, no chunk, nothing that holds memory."""
    match event:
        case ev.DataReceived():
            return event.message
        case ev.ControlReceived():
            return type(event.message).__name__
        case ev.FiringEnded():
            return event.phase, event.frame
        case _:
            return type(event).__name__
