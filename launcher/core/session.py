"""Defines the states of an agent's session as a table, and what happens to a session with them.

    CONNECTING ──Welcome──▶ IDLE ──Query sent──▶ QUERYING ──Missing──▶ UPLOADING
        │                    ▲                                             │ all stored
      Refused              renewed                                         ▼
        ▼                    │        READY ◀──Deployed── DEPLOYING ◀── STOCKED
      LOST ◀──gone── any     │          │ all ready      (Progress)   all welcomed: Deploy sent
    FAILED ◀──Failed── any   │          ▼
                       any of an epoch: RUNNING ──last result──▶ STOPPING ──Stopped──▶ STOPPED

    LOST ──it may be back: Hello──▶ RETURNING ──Welcome, Stop sent, Stopped──▶ IDLE

A node may have several slots, each with its own agent and address. If another launcher has one of
them, a session that is CONNECTING or RETURNING tries the next, until all have refused.

The agent causes some transitions by sending a message, the supervisor the others: it commands no
agent to deploy before it knows every peer's data address, and none to start before all are ready. A
message for which the table has no transition in the present state breaks the protocol. The error
then says what led there.

When an epoch is abandoned, every remaining session is *renewed*: it returns to IDLE, and what it
was doing is abandoned. Answers to abandoned requests may still arrive. Answers that carry an epoch
are recognised by it. The others (`Missing`, `Stored`) are counted, because on one connection
answers arrive in the order of the requests.

A lost node is greeted again (`launcher.core.returns`). Until its Welcome, its messages belong to
the time before; after it, the node first has to stop what it may still have deployed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from launcher.core.events import (
    Action,
    ClosedEarly,
    ControlConnected,
    Disconnected,
    MessageReceived,
    NodeEvent,
    Redial,
    Send,
    SendChunk,
)
from launcher.core.upload import Upload
from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    OLDEST_PROTOCOL,
    BlobInfo,
    Bye,
    Control,
    Deployed,
    EngineChoice,
    Failed,
    Figures,
    Hello,
    Missing,
    Ping,
    Pong,
    Prepared,
    Progress,
    Query,
    Refused,
    Shutdown,
    Stats,
    Stopped,
    Stored,
    Welcome,
)

STORY = 16
"""How many of a session's last changes of state an error names."""


class SessionState(Enum):
    """The state of a session; the value completes “it was …”."""

    CONNECTING = "being greeted"
    IDLE = "waiting for its part"
    QUERYING = "checking which subnets it has"
    UPLOADING = "receiving its subnets"
    STOCKED = "waiting for the other nodes"
    DEPLOYING = "loading its subnets"
    READY = "ready to start"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    LOST = "lost"
    RETURNING = "being greeted again"


class Step(Enum):
    """A step that the supervisor takes with a session; it changes the state."""

    QUERY = "send Query: the node has a part in the next epoch"
    STOCKED = "note that everything it lacked is stored"
    DEPLOY = "send Deploy: all nodes are welcome"
    START = "send Start: all nodes are ready"
    STOP = "send Stop: the last result is taken"
    RENEW = "abandon the epoch"
    LOSE = "note that the node is lost"
    GREET = "send Hello: the node may have returned"
    NEXT_SLOT = "send Hello to another slot of the node"


Trigger = type[Control] | Step

AWAY = (SessionState.LOST, SessionState.RETURNING)
"""The states of a lost node: it has no part in any epoch, and nothing is expected of it."""

GREETED = (SessionState.CONNECTING, SessionState.RETURNING)
"""The states of a node that has not answered the greeting."""

AT_REST = (SessionState.IDLE, SessionState.STOCKED, SessionState.READY, SessionState.STOPPED)
"""The states in which nothing is due of a node but signs of life."""

_S = SessionState
_GIVEN_UP = (
    _S.IDLE, _S.QUERYING, _S.UPLOADING, _S.STOCKED, _S.DEPLOYING, _S.READY, _S.RUNNING, _S.FAILED
)  # fmt: skip
_OWN_STEPS: Mapping[tuple[SessionState, Trigger], SessionState] = {
    (_S.IDLE, Step.QUERY): _S.QUERYING,
    (_S.UPLOADING, Step.STOCKED): _S.STOCKED,
    (_S.STOCKED, Step.DEPLOY): _S.DEPLOYING,
    (_S.READY, Step.START): _S.RUNNING,
    (_S.RUNNING, Step.STOP): _S.STOPPING,
    **{(state, Step.RENEW): _S.IDLE for state in _GIVEN_UP},
    **{(state, Step.LOSE): _S.LOST for state in _S},
    (_S.LOST, Step.GREET): _S.RETURNING,
    (_S.RETURNING, Step.GREET): _S.RETURNING,
    (_S.CONNECTING, Step.NEXT_SLOT): _S.CONNECTING,
    (_S.RETURNING, Step.NEXT_SLOT): _S.RETURNING,
}
_HEARD: Mapping[tuple[SessionState, Trigger], SessionState] = {
    (_S.CONNECTING, Welcome): _S.IDLE,
    (_S.CONNECTING, Refused): _S.LOST,
    (_S.RETURNING, Welcome): _S.RETURNING,
    (_S.RETURNING, Stopped): _S.IDLE,
    # The board was still measuring itself when the roll call ended. The agent sent its figures
    # before it read that the former session was over, and over the same connection.
    (_S.CONNECTING, Figures): _S.CONNECTING,
    (_S.RETURNING, Figures): _S.RETURNING,
    (_S.QUERYING, Missing): _S.UPLOADING,
    (_S.UPLOADING, Stored): _S.UPLOADING,
    (_S.DEPLOYING, Progress): _S.DEPLOYING,
    (_S.DEPLOYING, Deployed): _S.READY,
    (_S.STOPPING, Stopped): _S.STOPPED,
    # Once welcome, an agent may at any time answer pings, send statistics, fail, or refuse us
    # because it has received nothing from us for longer than its lease. It may also send figures
    # for which the roll call did not wait any longer.
    # Before a change of plans, nodes are brought their next subnets (`launcher.core.preloading`).
    **{
        (state, kind): state
        for state in (_S.IDLE, _S.RUNNING)
        for kind in (Missing, Stored, Prepared)
    },
    **{
        (state, kind): {Failed: _S.FAILED, Refused: _S.LOST}.get(kind, state)
        for state in _S
        if state not in (_S.CONNECTING, _S.FAILED, *AWAY)
        for kind in (Pong, Stats, Figures, Failed, Refused)
    },
}
TRANSITIONS: Mapping[tuple[SessionState, Trigger], SessionState] = {**_OWN_STEPS, **_HEARD}
"""(state, message received or own step) → next state; what is missing is forbidden."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A node's control address, whether this launcher started its agent, and its engine.

    `absence` says in a sentence why the node was found absent just before the run; it is empty for
    a node that answered, and for one that was not asked. `others` are the addresses of the node's
    other slots.
    """

    name: str
    address: str
    started_by_us: bool
    engine: EngineChoice = field(default_factory=EngineChoice)
    absence: str = ""
    others: tuple[str, ...] = ()


@dataclass(slots=True)
class Session:
    """The launcher's session with one agent. Only its own methods change it."""

    node: str
    address: str
    started_by_us: bool
    state: SessionState = SessionState.CONNECTING
    welcome: Welcome | None = None
    host: str | None = None
    """The IP address from which the agent answers; None over a Unix socket."""
    upload: Upload = field(default_factory=Upload)
    loaded: int = 0
    """How many of its phases are loaded."""
    progress: int = 0
    """How many times it has reported progress in loading."""
    deployed: Deployed | None = None
    stats: Stats | None = None
    deadline_s: float | None = None
    """When the present state has lasted too long; None if only silence counts."""
    overdue_reason: str = ""
    """The clause about a missed deadline, where the state does not suffice to say it."""
    pinged_s: float | None = None
    """When the oldest ping was sent after which no message has arrived."""
    closes_early: bool = False
    """Whether the latest connections to its control port were closed before the handshake."""
    engine: EngineChoice = field(default_factory=EngineChoice)
    was_lost: bool = False
    """Whether the node has been lost in this run, in whichever state it is now."""
    was_absent: bool = False
    """Whether the node had not answered any greeting when it was lost for the last time."""
    why_lost: str = ""
    """Why the node is lost, in a sentence for the user; empty while it is present."""
    _needed: Mapping[str, BlobInfo] = field(default_factory=dict)
    """The blobs about which it was asked, by their digests."""
    _unanswered: Counter[type[Control]] = field(default_factory=Counter)
    """How many answers of each kind are outstanding."""
    _abandoned: Counter[type[Control]] = field(default_factory=Counter)
    """How many of these answer abandoned requests; they come first."""
    _other_slots: deque[str] = field(default_factory=deque)
    """The addresses of the node's other slots, the one to try next first."""
    _refusals: int = 0
    """How many slots have refused in a row."""
    _greeting_is_lost: bool = False
    """Whether the connection over which the greeting was sent has closed without an answer."""
    _was_greeted_again: bool = False
    """Whether there may be two answers to the greeting."""
    _hello: Hello | None = None
    """The latest greeting."""
    _story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY))
    """The last changes of its state."""

    @classmethod
    def of(cls, contact: Contact) -> Session:
        """Return the session with an agent that is to be greeted."""
        return cls(
            contact.name,
            contact.address,
            contact.started_by_us,
            engine=contact.engine,
            _other_slots=deque(contact.others),
        )

    @property
    def slots(self) -> int:
        """How many slots the node has."""
        return 1 + len(self._other_slots)

    @property
    def is_present(self) -> bool:
        """Whether the node is not lost, as far as is known."""
        return self.state not in AWAY

    @property
    def is_open(self) -> bool:
        """Whether the agent has accepted our session and still holds it, as far as is known."""
        return self.welcome is not None and self.is_present

    @property
    def goodbye(self) -> Control:
        """The last message to the agent; one that this launcher started has to end."""
        return Shutdown() if self.started_by_us else Bye()

    # ------------------------------------------------------------ transitions

    def step(self, step: Step) -> None:
        """Take a step; raises `LocalProtocolError` if the table has no such transition."""
        if not self._follow(step):
            raise LocalProtocolError(
                f"node {self.node!r}: no {step} while {self.state}{self._what_led_here}"
            )
        match step:
            case Step.RENEW:
                self.abandon()
                self.upload, self.loaded, self.progress = Upload(), 0, 0
                self.deployed = self.stats = None
            case Step.START:  # until now, a silence was allowed to last longer
                self.pinged_s = None
            case Step.LOSE:
                self.deadline_s = self.pinged_s = None
            case Step.GREET:
                self.welcome = self.host = None
            case _:
                pass

    def receive(self, message: Control, host: str | None = None) -> None:
        """Take the transition of a message from the IP address `host`.

        Raises `RemoteProtocolError` if the table has none, or if the message cannot be true.
        """
        was_returning = self.state is SessionState.RETURNING
        if not self._follow(type(message)):
            raise RemoteProtocolError(
                f"it sent {type(message).__name__} while {self.state.value}{self._what_led_here}"
            )
        match message:
            case Welcome():
                self.welcome, self.host = message, host
            case Missing(lacking):
                self._upload(lacking)
            case Stored():
                self.upload.stored(message)
            case Progress(_, done):
                self.loaded = done
                self.progress += 1
            case Deployed():
                self.deployed, self.loaded = message, len(message.phase_s)
            case Stats():
                self.stats = message
            case Stopped() if was_returning:  # it has dropped what it had deployed before
                self.step(Step.RENEW)
                self.why_lost, self.pinged_s = "", None
                self._unanswered.clear()
                self._abandoned.clear()
            case Stopped(_, stats):
                self.stats = stats
            case _:
                pass

    def _follow(self, trigger: Trigger) -> bool:
        """Take the transition of a trigger, if the table has one."""
        before, following = self.state, TRANSITIONS.get((self.state, trigger))
        if following is None:
            return False
        if following is not before:
            self.state = following
            name = trigger.name if isinstance(trigger, Step) else trigger.__name__
            self._story.append(f"{name} → {following.name}")
            if following in AT_REST:
                self.deadline_s = None
        return True

    @property
    def _what_led_here(self) -> str:
        return f". What led to this: {'; '.join(self._story)}" if self._story else ""

    def lose(self, why: str) -> None:
        """Note that the node is lost, and why; nothing more is expected of it."""
        if self.is_present:
            self.was_absent = self.state is SessionState.CONNECTING
        self.was_lost, self.why_lost = True, why
        self.step(Step.LOSE)

    def stay_lost(self, why: str) -> None:
        """Note a better reason why the node is lost."""
        self.why_lost = why

    def close(self) -> None:
        """Forget that the agent has accepted our session: it has ended, or cannot be used."""
        self.welcome = None

    # ------------------------------------------------------------ the greeting

    def greet(self, hello: Hello) -> Send:
        """Greet the agent, for the first time or, if the node is lost, because it may be back."""
        if not self.is_present:
            self.step(Step.GREET)
        self._hello = hello
        return Send(self.node, hello)

    def repeat_greeting(self, event: NodeEvent, hello: Hello) -> list[Action] | None:
        """Greet the agent again if that may help; return None if it is decided whether it answers.

        An agent that was just starting or ending has closed the connection of the greeting without
        an answer, and one that refuses may accept another greeting. `hello` is the first greeting
        of every slot.
        """
        match event:
            case ClosedEarly():
                self.closes_early = True
            case Disconnected() if not self.is_open:
                self._greeting_is_lost = self.state is SessionState.CONNECTING
            case ControlConnected():
                self.closes_early = False
                if self.state is SessionState.CONNECTING and self._greeting_is_lost:
                    self._greeting_is_lost, self._was_greeted_again = False, True
                    return [self.greet(hello)]
            case MessageReceived(_, Refused() as refused, _, ended) if self.state in GREETED:
                return self._greet_again(refused, hello, holder_has_ended=ended) or None
            case _:
                return None
        return []

    def _greet_again(
        self, refused: Refused, hello: Hello, *, holder_has_ended: bool
    ) -> list[Action]:
        """Greet an agent that has refused again if that may help; do nothing if it may not.

        `holder_has_ended` says whether the launcher that has the agent is known to have ended.
        """
        last = self._hello or hello
        if OLDEST_PROTOCOL <= refused.protocol < last.protocol:
            return [self.greet(replace(last, protocol=refused.protocol))]
        if holder_has_ended and refused.holder and last.succeeds != refused.holder:
            return [self.greet(replace(last, succeeds=refused.holder))]
        self._refusals += 1
        if self._refusals >= self.slots:  # after a whole round; the next one begins
            self._refusals = 0
            return []
        self.step(Step.NEXT_SLOT)
        self._other_slots.append(self.address)
        self.address = self._other_slots.popleft()
        return [Redial(self.node), self.greet(hello)]

    # ------------------------------------------------------------ requests and answers

    def query(self, blobs: Iterable[BlobInfo]) -> Send:
        """Ask which of these blobs the node lacks."""
        self._needed = {blob.digest: blob for blob in blobs}
        self._unanswered[Missing] += 1
        return Send(self.node, Query(tuple(self._needed)))

    def _upload(self, lacking: Iterable[str]) -> None:
        """Begin to upload the blobs that the node lacks."""
        unknown = [digest for digest in lacking if digest not in self._needed]
        if unknown:
            raise RemoteProtocolError(
                f"it says that it lacks {unknown[0][:12]}, which it was not asked about"
            )
        self.upload = Upload(self._needed[digest] for digest in dict.fromkeys(lacking))

    def due_chunks(self, window: int) -> list[SendChunk]:
        """Return the chunks for which the window has room; the caller sends them now."""
        due = self.upload.due(window)
        self._unanswered[Stored] += len(due)
        return [SendChunk(self.node, *chunk) for chunk in due]

    def awaits(self, message: Control) -> bool:
        """Note that the agent lives; return whether the message concerns the present work.

        It does not if it answers an abandoned request or a greeting that was repeated.
        """
        self.pinged_s = None
        if isinstance(message, Welcome):
            is_second = self._was_greeted_again and self.state is not SessionState.CONNECTING
            if self.was_lost or is_second:
                return False
        kind = type(message)
        if self._unanswered[kind]:
            self._unanswered[kind] -= 1
            if self._abandoned[kind]:
                self._abandoned[kind] -= 1
                return False
        return self.state is not SessionState.FAILED

    def refuses_blobs(self) -> bool:
        """Whether a failure answers the latest request about blobs; it has no other answer."""
        for kind in (Missing, Stored):
            if self._unanswered[kind] > self._abandoned[kind]:
                self._unanswered[kind] -= 1  # at most one is outstanding, which this answers
                return True
        return False

    @property
    def may_be_renewed(self) -> bool:
        """Whether later answers can be matched with their requests.

        They cannot if one of the requests was answered with a failure.
        """
        return self.state is not SessionState.FAILED or not self._unanswered.total()

    def abandon(self) -> None:
        """Expect no answers to earlier requests; those that still arrive are ignored."""
        self._abandoned = Counter(self._unanswered)

    # ------------------------------------------------------------ deadlines

    def expect(self, by_s: float, overdue_reason: str = "") -> None:
        """Expect the end of the present state by a time; the clause says what is late then."""
        self.deadline_s, self.overdue_reason = by_s, overdue_reason

    def ping(self, now_s: float) -> Send:
        """Ask the agent for a sign of life."""
        if self.pinged_s is None:
            self.pinged_s = now_s
        return Send(self.node, Ping())

    def excuse(self, until_s: float, now_s: float) -> None:
        """Do not count the silence before `now_s`, and no deadline before `until_s`."""
        if self.pinged_s is not None:
            self.pinged_s = now_s
        if self.deadline_s is not None:
            self.deadline_s = max(self.deadline_s, until_s)


def blocks_of(sessions: Iterable[Session]) -> dict[str, int]:
    """Return, by node, the number of channels in the blocks of its engine's tensors; nodes that
    have not answered are left out.
    """
    found = {}
    for session in sessions:
        if session.welcome is None:
            continue
        try:
            choice = resolve(session.engine, session.welcome.engines)
        except EngineLackingError:  # of a node that is not used
            continue
        found[session.node] = next(
            device.block
            for offer in session.welcome.engines
            for device in offer.devices
            if (offer.engine, device.device) == (choice.engine, choice.device)
        )
    return found
