"""What an agent's core wants done; the shell does it, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from nodes.core.events import Link, Peer, Purpose
from nodes.protocol.messages import Control, Data, Deployment, Put


@dataclass(frozen=True, slots=True)
class Reply:
    """Send a control message to a peer; if it is gone, nothing happens."""

    peer: Peer
    message: Control


@dataclass(frozen=True, slots=True)
class SendData:
    """Send a data message, and a tensor's payload with its header."""

    link: Link
    message: Data
    payload: object = None


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to a node's data port; the link is called by the node's name."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the link to a node that was dialled."""

    node: str


@dataclass(frozen=True, slots=True)
class CutOffPeer:
    """Close a control connection and ignore what still comes from it."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class CutOffLink:
    """Close a data connection and ignore what still comes from it."""

    link: Link


@dataclass(frozen=True, slots=True)
class LookUp:
    """Find out which blobs are not in the cache; answered by `LookedUp`."""

    peer: Peer
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write a chunk into the cache; answered by `ChunkWritten` or `ChunkFailed`."""

    peer: Peer
    put: Put


@dataclass(frozen=True, slots=True)
class LoadPhases:
    """Load and warm up all phases; answered by `LoadProgress`, then `Loaded` or `LoadFailed`."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Fire:
    """Run a phase after all that was dispatched before.

    `inputs` has the tensors that came from other nodes, by name; those made on this node are what
    earlier firings of the same frame have put out. Answered by `FiringEnded` or `FiringFailed`.
    """

    epoch: int
    phase: int
    frame: int
    inputs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Unload:
    """Drop firings not yet begun and everything loaded; answered by `Unloaded`, even if a load of
    that epoch was still under way. What the engine is at is interrupted."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Release:
    """Forget blobs that are half-written, and let every blob be evicted: the session is over."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measure the process; answered by `Measured`."""

    purpose: Purpose


@dataclass(frozen=True, slots=True)
class TellTrace:
    """Answer a launcher's `GetTrace` of this number, which came at `now_s`."""

    peer: Peer
    number: int
    now_s: float


@dataclass(frozen=True, slots=True)
class Log:
    """Tell people."""

    level: Literal["info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """End the agent."""

    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Let a new agent take this one's place, because the engine does not come back."""

    why: str


Action = (
    Reply | SendData | Dial | HangUp | CutOffPeer | CutOffLink | LookUp | WriteChunk
    | LoadPhases | Fire | Unload | Release | Measure | TellTrace | Log | Exit | Restart
)  # fmt: skip
