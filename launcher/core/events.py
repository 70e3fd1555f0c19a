"""Defines the supervisor's events (what has happened) and actions (what the shell is to do).

`launcher.run.drive` reports the events of connections, agents' processes, the host and the planner,
and performs the actions. The simulated cluster of the tests does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from launcher.core.blueprint import Blueprint
from launcher.core.stream import ENDLESS
from launcher.errors import LauncherError
from nodes.core.events import Tick
from nodes.protocol.messages import BlobInfo, Control, Deployed, Welcome

# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Begin:
    """The drive begins the run: every agent is to be greeted."""


@dataclass(frozen=True, slots=True)
class OfNode:
    """An event that is about one node."""

    node: str


@dataclass(frozen=True, slots=True)
class MessageReceived(OfNode):
    """A node's control connection received a message; `host` is the sender's IP address (None over
    a Unix socket). `holder_has_ended` says, for a `Refused`, that the launcher which has the agent
    is known to have ended.
    """

    message: Control
    host: str | None = None
    holder_has_ended: bool = False


@dataclass(frozen=True, slots=True)
class MessageMalformed(OfNode):
    """A connection with a node, control or data, received something that breaks the protocol;
    `reason` is the decoder's sentence."""

    reason: str


class DataConnected(OfNode):
    """The data connection with a node that `Stream` named is established."""


class ControlConnected(OfNode):
    """The control connection with a node is established, for the first time or again."""


class ClosedEarly(OfNode):
    """The node's control port accepted a connection and closed it before the handshake ended."""


@dataclass(frozen=True, slots=True)
class NotAdmitted(OfNode):
    """A node's agent and this launcher cannot authenticate each other; `error` has the remedy.

    If it is `final`, ZeroMQ does not dial the node again by itself (`Redial` does).
    """

    error: LauncherError
    final: bool


@dataclass(frozen=True, slots=True)
class DoorShut(OfNode):
    """A node's agent has answered, but its data port was not found at the addresses in `tried`."""

    tried: tuple[str, ...]


class Disconnected(OfNode):
    """A connection with an agent, control or data, was closed."""


@dataclass(frozen=True, slots=True)
class AgentExited(OfNode):
    """The process of an agent that this launcher started has ended; a negative `code` is minus the
    signal's number.

    `stderr_tail` is the end of what it wrote to standard error. `oom_kills` counts the processes
    that the kernel has killed on this machine for want of memory since the agent was started.
    """

    code: int
    stderr_tail: str
    oom_kills: int = 0


@dataclass(frozen=True, slots=True)
class NetworkCounts:
    """The progress of one network: the user has taken `taken` results of its `frames`.

    `frames` does not count those that were withdrawn, and is an upper bound until the end is known.
    The first `offered` of them have been pushed. The epoch begins with frame `first`.
    """

    taken: int
    frames: int
    offered: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class ResultsTaken:
    """The host reports its progress, in each of the networks that stream their own frames."""

    networks: tuple[NetworkCounts, ...]

    @property
    def results(self) -> int:
        """How many results the user has taken, of all networks."""
        return sum(network.taken for network in self.networks)

    @property
    def frames(self) -> int:
        """The number of frames of all networks; `ENDLESS` while it is not known."""
        return min(ENDLESS, sum(network.frames for network in self.networks))

    @property
    def offered(self) -> int:
        """How many frames the sources have offered so far, of all networks."""
        return sum(network.offered for network in self.networks)


@dataclass(frozen=True, slots=True)
class Halted:
    """The host has halted the stream, which answers `Halt`.

    The next epoch begins, in each of the `networks`, with the first frame without a result;
    `replayed` frames were sent before and will be sent again.
    """

    networks: tuple[NetworkCounts, ...]
    replayed: int

    @property
    def first(self) -> int:
        """The first frame of the next epoch, counted over all networks."""
        return sum(network.first for network in self.networks)


@dataclass(frozen=True, slots=True)
class PlanReply:
    """The planner has found the plan that the `PlanRequest` of the blueprint's epoch asked for.

    It is predicted to be `gain` times as fast as the plan named by `better_than`, if any; `note`
    says how it differs from that plan.
    """

    blueprint: Blueprint
    gain: float = 1.0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Unplannable:
    """The planner has found no plan for the `PlanRequest` of this epoch; `reason` is a sentence."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The user has cancelled the run (Ctrl-C), or the shell has failed with `error`: it must end
    now, and every agent be released."""

    error: LauncherError | None


@dataclass(frozen=True, slots=True)
class Consented:
    """The user agrees to the use of nodes that have returned."""


NodeEvent = (
    MessageReceived
    | MessageMalformed
    | DataConnected
    | ControlConnected
    | ClosedEarly
    | NotAdmitted
    | DoorShut
    | Disconnected
    | AgentExited
)
"""An event of one node's agent or connections."""

Event = (
    NodeEvent
    | Begin
    | ResultsTaken
    | Halted
    | PlanReply
    | Unplannable
    | Consented
    | Abandoned
    | Tick
)
"""`Tick` reports that the supervisor's `deadline_s` has passed."""

# ---------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the node's agent over its control connection."""

    node: str
    message: Control


@dataclass(frozen=True, slots=True)
class Redial:
    """Make the control connection with the node again, because the node had refused it."""

    node: str


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send `size_bytes` of this blob, from `offset_bytes` on, to the node's agent as a `Put`."""

    node: str
    blob: BlobInfo
    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stream:
    """Connect to these nodes' data addresses and stream frames: every agent has started.

    In a later epoch the stream begins with the first frame that has no result.
    """

    data_addresses: dict[str, str]
    blueprint: Blueprint


@dataclass(frozen=True, slots=True)
class Halt:
    """Close all data connections and keep the complete results: the epoch is abandoned. The host
    answers with `Halted`.
    """


Effort = Literal["quick", "bounded", "whole"]
"""How long a search may take, see `PlanRequest`."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Find a plan on these nodes for this epoch; not every node has to be used.

    The planner answers with `PlanReply` or `Unplannable`, or not at all if a later request has
    replaced this one. While frames stream by the plan of the epoch `better_than`, only a plan that
    is predicted to be `least_gain` times as fast is wanted, or as fast as they stream at present, a
    frame every `period_s`, if that is faster than foreseen. With `again`, the plan of that earlier
    epoch is wanted, and nothing is searched. `slower` maps nodes to the factors by
    which they were measured to be slower than the cost model assumes. `newcomers` are descriptions
    of the nodes that were absent when the first plan was made. `effort` says how long the search
    may take: about a second where the strategy is `auto`, a part of the time that a recovery may
    take, or as long as it takes.
    """

    epoch: int
    nodes: tuple[str, ...]
    better_than: int | None = None
    least_gain: float = 1.0
    period_s: float | None = None
    again: int | None = None
    slower: Mapping[str, float] = field(default_factory=dict)
    newcomers: Mapping[str, Welcome] = field(default_factory=dict)
    effort: Effort = "bounded"


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """Learn from what the nodes of this epoch have measured in their rehearsal.

    With `in_stream`, the times of phases are those of firings in the stream, which only later runs
    learn. `welcomes` has the nodes' answers to the greeting.
    """

    epoch: int
    deployed: Mapping[str, Deployed]
    welcomes: Mapping[str, Welcome]
    in_stream: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """Show this sentence to the user."""

    text: str
    level: Literal["info", "warning"] = "info"
    nodes: tuple[str, ...] = ()
    """The nodes that it is about, where the sentence does not name all nodes."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Show progress to the user: `done` of `total` in `stage`, and a remark.

    A stage without an end has no total.
    """

    stage: str
    done: int
    total: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """End the run: this is the last action. `error` is None if all went well."""

    error: LauncherError | None


Action = (
    Send
    | Redial
    | SendChunk
    | Stream
    | Halt
    | PlanRequest
    | Rehearsed
    | StageProgress
    | Notice
    | End
)
