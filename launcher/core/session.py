"""Defines the states of an agent's session as a table, and the upload of blobs within a session.

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
message for which the table has no transition in the present state breaks the protocol.

When an epoch is abandoned, every remaining session is *renewed*: it returns to IDLE, and what it
was doing is abandoned. Answers to abandoned requests may still arrive. Answers that carry an epoch
are recognised by it. The others (`Missing`, `Stored`) are counted, because on one connection
answers arrive in the order of the requests.

A lost node is greeted again (`launcher.core.returns`). Until its Welcome, its messages belong to
the time before; after it, the node first has to stop what it may still have deployed.

An agent is sent the blobs that it lacks in chunks, of which a bounded number may be unanswered (the
window). If several agents receive blobs at once, the one with the most bytes has the full window
and the others a smaller one. Where the launcher's link is the bottleneck, that agent has its blobs
early and prepares them while the next one receives its own. Where each agent has a slow link, the
smaller window still fills it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodes.core.engines import EngineLackingError, resolve
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    CHUNK_BYTES,
    PUT_WINDOW,
    BlobInfo,
    Bye,
    Control,
    Deployed,
    EngineChoice,
    Failed,
    Hello,
    Missing,
    Pong,
    Prepared,
    Progress,
    Refused,
    Shutdown,
    Stats,
    Stopped,
    Stored,
    Welcome,
)

BESIDE_WINDOW = 1
"""The window of an agent while another one is ahead: one round trip per MiB."""

Chunk = tuple[BlobInfo, int, int]
"""A blob, an offset in it and a number of bytes from there."""


def chunks(blob: BlobInfo) -> Iterable[Chunk]:
    """Yield the chunks of one blob in order; an empty blob has one empty chunk."""
    for offset in range(0, max(blob.size_bytes, 1), CHUNK_BYTES):
        yield blob, offset, min(CHUNK_BYTES, blob.size_bytes - offset)


class Upload:
    """The blobs that are sent to one agent, of which at most a window of chunks is unanswered.

    Answers must come in the order of the chunks, as they do on one connection.
    """

    def __init__(self, blobs: Iterable[BlobInfo] = ()) -> None:
        waiting = [chunk for blob in blobs for chunk in chunks(blob)]
        self._waiting: deque[Chunk] = deque(waiting)
        self._unanswered: deque[Chunk] = deque()
        self.total_bytes = sum(size for _, _, size in waiting)
        self.stored_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether every chunk was sent and answered."""
        return not self._waiting and not self._unanswered

    def due(self, window: int = PUT_WINDOW) -> list[Chunk]:
        """Return the chunks for which the window has room; the caller sends them now."""
        due: list[Chunk] = []
        while self._waiting and len(self._unanswered) < window:
            chunk = self._waiting.popleft()
            self._unanswered.append(chunk)
            due.append(chunk)
        return due

    @property
    def is_sent(self) -> bool:
        """Whether every chunk was sent."""
        return not self._waiting

    def stored(self, answer: Stored) -> None:
        """Handle an answer; raises `RemoteProtocolError` if it is not the one that is due."""
        if not self._unanswered:
            raise RemoteProtocolError(
                f"it stored a chunk of {answer.digest[:12]} that we never sent"
            )
        blob, offset, size = self._unanswered[0]
        if (answer.digest, answer.offset_bytes) != (blob.digest, offset):
            raise RemoteProtocolError(
                f"it answered for {answer.digest[:12]} at {answer.offset_bytes} "
                f"where {blob.digest[:12]} at {offset} was due"
            )
        if offset + size == blob.size_bytes and not answer.complete:
            raise RemoteProtocolError(
                f"it got all of {blob.digest[:12]} and does not call it complete: "
                "its content changed on the way or on our disk"
            )
        self._unanswered.popleft()
        self.stored_bytes += size
        if answer.complete:
            self._skip(blob)

    def _skip(self, blob: BlobInfo) -> None:
        """Drop the unsent chunks of a blob: an agent with the same cache received it first."""
        skipped = [chunk for chunk in self._waiting if chunk[0] == blob]
        self._waiting = deque(chunk for chunk in self._waiting if chunk[0] != blob)
        self.stored_bytes += sum(size for _, _, size in skipped)


class SessionState(Enum):
    """The state of a session; the value completes “it was …”."""

    CONNECTING = "being greeted"
    IDLE = "waiting for its part"
    QUERYING = "looking which subnets it has"
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
    RENEW = "give the epoch up"
    LOSE = "note that the node is lost"
    GREET = "send Hello: the node may have returned"
    NEXT_SLOT = "send Hello to another slot of the node"


Trigger = type[Control] | Step

AWAY = (SessionState.LOST, SessionState.RETURNING)
"""The states of a lost node: it has no part in any epoch, and nothing is expected of it."""

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
    (_S.CONNECTING, Step.NEXT_SLOT): _S.CONNECTING,
    (_S.RETURNING, Step.NEXT_SLOT): _S.RETURNING,
}
_HEARD: Mapping[tuple[SessionState, Trigger], SessionState] = {
    (_S.CONNECTING, Welcome): _S.IDLE,
    (_S.CONNECTING, Refused): _S.LOST,
    (_S.RETURNING, Welcome): _S.RETURNING,
    (_S.RETURNING, Stopped): _S.IDLE,
    (_S.QUERYING, Missing): _S.UPLOADING,
    (_S.UPLOADING, Stored): _S.UPLOADING,
    (_S.DEPLOYING, Progress): _S.DEPLOYING,
    (_S.DEPLOYING, Deployed): _S.READY,
    (_S.STOPPING, Stopped): _S.STOPPED,
    # Once welcome, an agent may at any time answer pings, send statistics, fail, or refuse us
    # because it has received nothing from us for longer than its lease.
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
        for kind in (Pong, Stats, Failed, Refused)
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
    """The launcher's session with one agent."""

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
    unanswered: Counter[type[Control]] = field(default_factory=Counter)
    """How many answers of each kind are outstanding."""
    abandoned: Counter[type[Control]] = field(default_factory=Counter)
    """How many of these answer abandoned requests; they come first."""
    closes_early: bool = False
    """Whether the latest connections to its control port were closed before the handshake."""
    engine: EngineChoice = field(default_factory=EngineChoice)
    was_lost: bool = False
    """Whether the node has been lost in this run, in whichever state it is now."""
    was_absent: bool = False
    """Whether the node had not answered any greeting when it was lost for the last time."""
    why_lost: str = ""
    """Why the node is lost, in a sentence for the user; empty while it is present."""
    other_slots: deque[str] = field(default_factory=deque)
    """The addresses of the node's other slots, the one to try next first."""
    refusals: int = 0
    """How many slots have refused in a row."""
    greeting_is_lost: bool = False
    """Whether the connection over which the greeting was sent has closed without an answer."""
    was_greeted_again: bool = False
    """Whether there may be two answers to the greeting."""
    hello: Hello | None = None
    """The latest greeting."""

    @classmethod
    def of(cls, contact: Contact) -> Session:
        """Return the session with an agent that is to be greeted."""
        return cls(
            contact.name,
            contact.address,
            contact.started_by_us,
            engine=contact.engine,
            other_slots=deque(contact.others),
        )

    @property
    def slots(self) -> int:
        """How many slots the node has."""
        return 1 + len(self.other_slots)

    def try_next_slot(self) -> bool:
        """Note that the present slot has refused; return whether another one is to be tried.

        Its address is then in `address`. After a whole round there is none; the next round begins.
        """
        self.refusals += 1
        if self.refusals >= self.slots:
            self.refusals = 0
            return False
        self.step(Step.NEXT_SLOT)
        self.other_slots.append(self.address)
        self.address = self.other_slots.popleft()
        return True

    def step(self, step: Step) -> None:
        """Take a step; raises `LocalProtocolError` if the table has no such transition."""
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            raise LocalProtocolError(f"node {self.node!r}: no {step} while {self.state}")
        self.state = following

    def renew(self) -> None:
        """Abandon the epoch and wait for the next one; raises `LocalProtocolError` if lost."""
        self.step(Step.RENEW)
        self.abandon()
        self.upload, self.loaded, self.progress = Upload(), 0, 0
        self.deployed = self.stats = self.deadline_s = None
        self.overdue_reason = ""

    def abandon(self) -> None:
        """Expect no answers to earlier requests; those that still arrive are ignored."""
        self.abandoned = Counter(self.unanswered)

    def lose(self, why: str) -> None:
        """Note that the node is lost; nothing more is expected of it."""
        if self.state not in AWAY:
            self.was_absent = self.state is SessionState.CONNECTING
        self.was_lost, self.why_lost = True, why
        self.step(Step.LOSE)
        self.deadline_s = self.pinged_s = None

    def come_back(self) -> None:
        """Note that the node has returned and has dropped what it had deployed before."""
        self.renew()
        self.why_lost = ""
        self.unanswered.clear()
        self.abandoned.clear()
        self.pinged_s = None

    @property
    def is_present(self) -> bool:
        """Whether the node is not lost, as far as is known."""
        return self.state not in AWAY

    def take_answer(self, answer: Control) -> bool:
        """Match an answer with its request; returns False if that was abandoned."""
        kind = type(answer)
        if not self.unanswered[kind]:
            return True
        self.unanswered[kind] -= 1
        if not self.abandoned[kind]:
            return True
        self.abandoned[kind] -= 1
        return False

    def receive(self, message: Control) -> None:
        """Take the transition of a message; raises `RemoteProtocolError` if the table has none."""
        following = TRANSITIONS.get((self.state, type(message)))
        if following is None:
            raise RemoteProtocolError(f"it sent {type(message).__name__} while {self.state.value}")
        self.state = following

    @property
    def goodbye(self) -> Control:
        """The last message to the agent; one that this launcher started has to end."""
        return Shutdown() if self.started_by_us else Bye()

    @property
    def is_open(self) -> bool:
        """Whether the agent has accepted our session and still holds it, as far as is known."""
        return self.welcome is not None and self.is_present


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
