"""The actions of an agent's core: what its shell (`nodes.agent`) performs, in order.

Where an action has an answer, the shell hands it to the core as the event that is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nodes.core.events import Link, Peer, Purpose
from nodes.protocol.messages import PROTOCOL, Control, Data, Deployment, Put


@dataclass(frozen=True, slots=True)
class Reply:
    """Send a control message to the peer; if its connection has closed, nothing happens.

    The shell completes a `Welcome` by the memory that is available at this moment.
    """

    peer: Peer
    message: Control
    protocol: int = PROTOCOL
    """The version of the protocol that the peer speaks."""


@dataclass(frozen=True, slots=True)
class SendData:
    """Send a data message over the link, and with a `TensorHeader` its payload.

    If the link is gone, the answer is `LinkLost`. With `report_sent`, the answer is `Sent` as soon
    as the connection needs the payload's memory no longer.
    """

    link: Link
    message: Data
    payload: object = None
    report_sent: bool = False


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a node's data port; the new link has the node's name.

    If that is impossible, the answer is `LinkLost`.
    """

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the link to a node that this agent has dialled."""

    node: str


@dataclass(frozen=True, slots=True)
class CutOffPeer:
    """Close a control connection, and ignore what still comes from it."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class CutOffLink:
    """Close a data connection, and ignore what still comes from it."""

    link: Link


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out which of these blobs are not in the cache; the answer is `Answered`."""

    peer: Peer
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write a chunk into the cache; the answer is `Answered` or `ChunkFailed`."""

    peer: Peer
    put: Put


@dataclass(frozen=True, slots=True)
class LoadPhases:
    """Load and rehearse all phases of a deployment.

    The answers are any number of `Progress`, then `Deployed` or `LoadFailed`.
    """

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class PrepareSubnets:
    """Prepare the subnets of a deployment that may follow, while the present one runs.

    If it `loads`, load and rehearse them too, where the engine and the memory allow that; the
    deployment's `LoadPhases` then takes them over. The answer is `Prepared`.
    """

    deployment: Deployment
    loads: bool = False


@dataclass(frozen=True, slots=True)
class FindFigures:
    """Find the board's figures for `threads` threads (0: as many as it has). If there are none, or
    they are to be measured `again`, measure them if the agent `may_measure`. The answer is
    `FiguresFound` for this session.
    """

    session: str
    threads: int
    may_measure: bool
    again: bool = False


@dataclass(frozen=True, slots=True)
class CloseAhead:
    """Close the subnets that were loaded ahead, if there are any: another deployment follows."""


@dataclass(frozen=True, slots=True)
class Fire:
    """Run a phase, after all firings that were dispatched before.

    `inputs` has the tensors from other nodes by name; the executor has kept the outputs of earlier
    firings of the same frame. The answer is `FiringEnded` or `FiringFailed`.
    """

    epoch: int
    phase: int
    frame: int
    inputs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Unload:
    """Interrupt the engine, drop the firings that have not begun, and unload all phases.

    The answer is `Unloaded`, also if that epoch was still being loaded.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """The session is over: drop incomplete blobs, let all blobs be evicted, close what was loaded
    ahead, and end the trace."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure the memory and CPU time of this process; the answer is `Measured`."""

    purpose: Purpose


@dataclass(frozen=True, slots=True)
class SendTrace:
    """Send `Traced` to the peer, whose `GetTrace` with this number came at `now_s`; with the events
    of these `frames` only, if any are given."""

    peer: Peer
    number: int
    now_s: float
    frames: tuple[int, ...] = ()
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class Log:
    """Write a line to the agent's log; `firing` is the phase and the frame that it is about."""

    level: Literal["info", "warning", "error"]
    text: str
    firing: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """End the agent; `why` is a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class ExitIfUnused:
    """End the agent unless there is a connection to its control port; `why` is a clause."""

    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Replace this agent by a new one in the same process, because its engine does not return."""

    why: str


Action = (
    Reply | SendData | Dial | HangUp | CutOffPeer | CutOffLink | LookUp | WriteChunk
    | LoadPhases | PrepareSubnets | FindFigures | CloseAhead | Fire | Unload | Release | Measure
    | SendTrace | Log | Exit | ExitIfUnused | Restart
)  # fmt: skip
