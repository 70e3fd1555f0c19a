"""What happens to the supervisor (events) and what it wants done (actions)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.core.blueprint import Blueprint
from launcher.errors import LauncherError
from nodes.core.events import Tick
from nodes.protocol.messages import BlobInfo, Control

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins: greet every agent."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An agent said something on its control connection; `host` is its IP address (None: ipc)."""

    node: str
    message: Control
    host: str | None = None


@dataclass(frozen=True, slots=True)
class Garbled:
    """What came from an agent cannot be read; `reason` is the decoder's sentence."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Linked:
    """The data connection with a node that `Stream` named stands."""

    node: str


@dataclass(frozen=True, slots=True)
class Reached:
    """The control connection with a node stands, for the first time or again."""

    node: str


@dataclass(frozen=True, slots=True)
class ClosedEarly:
    """The node's control port accepted a connection and closed it before the handshake."""

    node: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A connection with an agent, control or data, closed."""

    node: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process of an agent that we started ended; `code` < 0 is minus the signal's number.

    `last_words` is the end of what it wrote to standard error, `memory_kills` how many processes
    the kernel has ended for want of memory, where the agent was, since that was started.
    """

    node: str
    code: int
    last_words: str
    memory_kills: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """`results` in all are in the user's hands, of `frames` that the run has, those left out that
    its source dropped. The source has offered the first `offered` so far: all, unless it has a pace
    of its own."""

    results: int
    frames: int
    offered: int


@dataclass(frozen=True, slots=True)
class Halted:
    """The stream was halted: the next epoch begins with frame `first`, the first without a result;
    `replayed` of the frames from there on had been sent already."""

    first: int
    replayed: int


@dataclass(frozen=True, slots=True)
class PlanReply:
    """The plan that the `PlanRequest` of the blueprint's epoch asked for, predicted to be `gain`
    times as fast as the one that it was to be better than, if any."""

    blueprint: Blueprint
    gain: float = 1.0


@dataclass(frozen=True, slots=True)
class Unplannable:
    """There is no plan as the `PlanRequest` of this epoch wants it; `reason` is a sentence."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Nobody wants the run any more (Ctrl-C), or the shell failed: say goodbye to all."""

    error: LauncherError | None


@dataclass(frozen=True, slots=True)
class Consented:
    """The user says that nodes that came back are to be used."""


FromNode = Heard | Garbled | Linked | Reached | ClosedEarly | Disconnected | Exited
Event = FromNode | Begin | Taken | Halted | PlanReply | Unplannable | Consented | Abandoned | Tick

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the node's agent."""

    node: str
    message: Control


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send `size_bytes` of this blob from `offset_bytes` on as a `Put`."""

    node: str
    blob: BlobInfo
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stream:
    """Every agent has started: attach to those at these data addresses and stream frames, in a
    later epoch those without a result."""

    data_addresses: dict[str, str]
    blueprint: Blueprint


@dataclass(frozen=True, slots=True)
class Halt:
    """The epoch is given up: hang up on all data connections, keep the results that are complete.
    Answered by `Halted`."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Find a plan on these nodes, none of which needs to be used, as this epoch. It is answered by
    `PlanReply` or `Unplannable`, unless a later request takes its place.

    While frames stream through the plan of the epoch `better_than`, only a plan is wanted that is
    predicted to be `least_gain` times as fast. `slower` has the factors by which nodes were
    measured to be slower than the cost model takes them for."""

    epoch: int
    nodes: tuple[str, ...]
    better_than: int | None = None
    least_gain: float = 1.0
    slower: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """Tell people."""

    text: str


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress for people: `done` of `total` in `stage`, and a remark."""

    stage: str
    done: int
    total: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The run is over, and this is the last action. `error` is None if all went well."""

    error: LauncherError | None


Action = Send | SendChunk | Stream | Halt | PlanRequest | StageProgress | Notice | End
