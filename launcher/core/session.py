"""The life of one agent's session, as a table.

    CONNECTING ──Welcome──▶ IDLE ──Query sent──▶ QUERYING ──Missing──▶ UPLOADING
        │                    ▲                                             │ all stored
      Refused              renewed                                         ▼
        ▼                    │        READY ◀──Deployed── DEPLOYING ◀── STOCKED
      LOST ◀──gone── any     │          │ all ready      (Progress)   all welcomed: Deploy sent
    FAILED ◀──Failed── any   │          ▼
                       any of an epoch: RUNNING ──last result──▶ STOPPING ──Stopped──▶ STOPPED

    LOST ──it may be back: Hello──▶ RETURNING ──Welcome, Stop sent, Stopped──▶ IDLE

Some steps are taken by the agent (it sends a message), others by the supervisor once all agents
are so far: no agent deploys before every peer's data address is known, none to start
before every one is ready. A message that the table does not have for the present state breaks the
protocol.

When an epoch is given up, because a node of it was lost, every session that is left is *renewed*:
whatever it was about is abandoned, and it waits for the next epoch like one that was just welcomed.
Answers to what was abandoned may still come. Those that carry an epoch are known by it; those that
do not (`Missing`, `Stored`) are counted: on one connection they come in the order of the questions.

A node that was lost is greeted again (`launcher.core.returns`). Until its Welcome, all that it says
belongs to the time before; then it has to stop what it may still have deployed.

Sending an agent the blobs that it lacks, with a bounded number of unanswered chunks.

Where several agents are sent blobs at once, the one that is sent most is ahead and the others have
a smaller window. If it is the launcher's own link that bounds them, that one has its blobs early
and prepares them while the next gets its own; if each has a slow link of its own, the smaller
window still fills it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import (
    CHUNK_BYTES,
    PUT_WINDOW,
    BlobInfo,
    Bye,
    Control,
    Deployed,
    Failed,
    Missing,
    Pong,
    Progress,
    Refused,
    Shutdown,
    Stats,
    Stopped,
    Stored,
    Welcome,
)

BESIDE_WINDOW = 1
"""Chunks that an agent may have unanswered while another is ahead: a round trip per MiB."""

Chunk = tuple[BlobInfo, int, int]
"""A blob, an offset in it and a number of bytes from there."""


def chunks(blob: BlobInfo) -> Iterable[Chunk]:
    """The chunks of one blob in order; an empty blob has one empty chunk."""
    for offset in range(0, max(blob.size_bytes, 1), CHUNK_BYTES):
        yield blob, offset, min(CHUNK_BYTES, blob.size_bytes - offset)


class Upload:
    """The blobs on their way to one agent: at most `PUT_WINDOW` chunks unanswered.

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
        """The chunks to send now, which the window has room for; each is named once."""
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
        """Note an answer; raises `RemoteProtocolError` if it is not the one that is due."""
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
        """Leave out what was not sent of a blob: another agent with the same cache got it first."""
        skipped = [chunk for chunk in self._waiting if chunk[0] == blob]
        self._waiting = deque(chunk for chunk in self._waiting if chunk[0] != blob)
        self.stored_bytes += sum(size for _, _, size in skipped)


class SessionState(Enum):
    """How far a session is; the value completes “it was …”."""

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
    """What the supervisor does by itself."""

    QUERY = "it has a part in the next epoch: Query"
    STOCKED = "everything it lacked is stored"
    DEPLOY = "all are welcome: Deploy"
    START = "all are ready: Start"
    STOP = "the last result is in: Stop"
    RENEW = "the epoch is given up"
    LOSE = "it is gone"
    GREET = "it may be back: Hello"


Trigger = type[Control] | Step

AWAY = (SessionState.LOST, SessionState.RETURNING)
"""Nothing is expected of such a node, and it has no part in anything."""

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
    # Once welcomed, an agent may answer pings, give statistics, fail, or (having heard nothing of
    # us for a while) refuse to know us, at any time.
    **{
        (state, kind): {Failed: _S.FAILED, Refused: _S.LOST}.get(kind, state)
        for state in _S
        if state not in (_S.CONNECTING, _S.FAILED, *AWAY)
        for kind in (Pong, Stats, Failed, Refused)
    },
}
TRANSITIONS: Mapping[tuple[SessionState, Trigger], SessionState] = {**_OWN_STEPS, **_HEARD}
"""(state, message heard or own step) → next state; what is missing is forbidden."""


@dataclass(frozen=True, slots=True)
class Contact:
    """A node to work with: its control address, and whether its agent is a process of ours."""

    name: str
    address: str
    started_by_us: bool


@dataclass(slots=True)
class Session:
    """What the supervisor knows about one agent."""

    node: str
    address: str
    started_by_us: bool
    state: SessionState = SessionState.CONNECTING
    welcome: Welcome | None = None
    host: str | None = None
    """The IP address at which the agent was reached."""
    upload: Upload = field(default_factory=Upload)
    loaded: int = 0
    progress: int = 0
    """How often it reported progress in loading."""
    deployed: Deployed | None = None
    stats: Stats | None = None
    deadline_s: float | None = None
    """When the present state has lasted too long; None where only silence counts."""
    overdue_reason: str = ""
    """What to say then, where the state does not say it."""
    pinged_s: float | None = None
    """When the oldest ping was sent after which nothing was heard."""
    unanswered: Counter[type[Control]] = field(default_factory=Counter)
    """How many answers of a kind are to come; of these, those that nobody waits for any more are
    `abandoned`, and come first."""
    abandoned: Counter[type[Control]] = field(default_factory=Counter)
    closes_early: bool = False
    """Whether the latest connections with its control port were closed before the handshake."""
    was_lost: bool = False
    """Whether it was lost before."""

    def step(self, step: Step) -> None:
        """Take a step of our own; raises `LocalProtocolError` if the table has none."""
        following = TRANSITIONS.get((self.state, step))
        if following is None:
            raise LocalProtocolError(f"node {self.node!r}: no {step} while {self.state}")
        self.state = following

    def renew(self) -> None:
        """Give up the epoch and wait for the next; raises `LocalProtocolError` if it is gone."""
        self.step(Step.RENEW)
        self.abandoned = Counter(self.unanswered)
        self.upload, self.loaded, self.progress = Upload(), 0, 0
        self.deployed = self.stats = self.deadline_s = None
        self.overdue_reason = ""

    def lose(self) -> None:
        """It is gone, and nothing is expected of it any more."""
        self.was_lost = True
        self.step(Step.LOSE)
        self.deadline_s = self.pinged_s = None

    def come_back(self) -> None:
        """It was welcomed again, and nothing of the time before is left."""
        self.renew()
        self.unanswered.clear()
        self.abandoned.clear()
        self.pinged_s = None

    @property
    def is_present(self) -> bool:
        """Whether it is not lost, as far as we know."""
        return self.state not in AWAY

    def take_answer(self, answer: Control) -> bool:
        """Note that it answered; False if the question was abandoned."""
        kind = type(answer)
        if not self.unanswered[kind]:
            return True
        self.unanswered[kind] -= 1
        if not self.abandoned[kind]:
            return True
        self.abandoned[kind] -= 1
        return False

    def receive(self, message: Control) -> None:
        """Follow a message; raises `RemoteProtocolError` if it may not come now."""
        following = TRANSITIONS.get((self.state, type(message)))
        if following is None:
            raise RemoteProtocolError(f"it sent {type(message).__name__} while {self.state.value}")
        self.state = following

    @property
    def goodbye(self) -> Control:
        """The last word to it: an agent of ours ends."""
        return Shutdown() if self.started_by_us else Bye()

    @property
    def is_open(self) -> bool:
        """Whether the agent holds our session, as far as we know."""
        return self.welcome is not None and self.is_present
