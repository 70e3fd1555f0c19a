"""What happens to an agent: the events that its core is told of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from nodes.protocol.messages import Control, Data

Peer = bytes
"""A control connection: the routing id of whoever dialled our control port."""

Link = bytes | str
"""A data connection: the routing id of a peer that dialled our data port, or the name of the node
whose data port we dialled."""

Purpose = Literal["start", "stats", "stop"]
"""What a measurement of the process is for."""


class LinkChange(Enum):
    """What has happened to a connection that we dialled; the value is a clause for people."""

    STANDS = "its handshake is over"
    GONE = "it was closed at the other end, or the network went down"
    CLOSED_EARLY = "the other end closed it before the handshake had ended"
    NO_HANDSHAKE = (
        "the other end closes every connection before the handshake has ended: it has another key "
        "than the one known of it here, or one of both has none, or its port is overrun (its log "
        "tells)"
    )
    STRANGER = "the other end does not admit this node's key"
    UNLIKE = "one end has keys and the other uses none"


BARRING = (LinkChange.NO_HANDSHAKE, LinkChange.STRANGER, LinkChange.UNLIKE)
"""Both ends are there and cannot agree on who they are, or on being encrypted at all."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process uses: memory as in `messages.Stats`, CPU seconds since its start."""

    rss_bytes: int
    rss_peak_bytes: int
    anonymous_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A well-formed message came in on the control port; `key` is the public key of whoever sent
    it, empty over a connection that is not guarded."""

    peer: Peer
    message: Control | Data
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class DataReceived:
    """A well-formed message came in on a data connection.

    `payload` is the second part if there was one, of `payload_bytes` bytes; the core passes it on
    and never looks inside.
    """

    link: Link
    message: Control | Data
    payload: object = None
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ControlMalformed:
    """What came in on the control port is no message; `peer` is cut off."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class DataMalformed:
    """What came in on a data connection is no message; the link is cut off."""

    link: Link
    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A control connection closed: its other end did, or its process or machine has ended."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Rejected:
    """A connection was dropped before it could say a word (it does not speak ZMTP)."""

    reason: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A data connection broke or could not be made; `reason` is a clause. It `is_barred` if both
    ends are there and cannot agree on who they are."""

    link: Link
    reason: str = "its other end is gone"
    is_barred: bool = False


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The answer to `actions.LookUp`."""

    peer: Peer
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChunkWritten:
    """A chunk is on disk; `complete` if the blob is whole and its hash agrees."""

    peer: Peer
    digest: str
    offset_bytes: int
    complete: bool


@dataclass(frozen=True, slots=True)
class ChunkFailed:
    """A chunk could not be written; `reason` is a sentence."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`done` of `total` phases are loaded; `what` goes on now."""

    epoch: int
    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """All phases are loaded and warm: seconds per phase of a warm run, memory then, and what
    messages cost (see `messages.Deployed`)."""

    epoch: int
    phase_s: tuple[float, ...]
    rss_bytes: int
    message_s: float = 0.0
    byte_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A phase could not be loaded or tried; `reason` is a sentence."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class FiringEnded:
    """A firing that began at `began_s` ended after `busy_s` seconds, for `cpu_s` of which the
    executor's thread had a CPU; its outputs by tensor name, as opaque payloads, and the shapes of
    those that vary."""

    epoch: int
    phase: int
    frame: int
    outputs: Mapping[str, object]
    busy_s: float
    cpu_s: float = 0.0
    began_s: float = 0.0
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FiringFailed:
    """A firing ended in an error; `reason` is a sentence."""

    epoch: int
    phase: int
    frame: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The executor holds nothing of this epoch any more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to `actions.Measure`."""

    purpose: Purpose
    usage: Usage


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed; due at the deadline of the core, `deadline_s`, at the latest."""


Event = (
    ControlReceived | DataReceived | ControlMalformed | DataMalformed | Rejected | PeerLost
    | LinkLost | LookedUp | ChunkWritten | ChunkFailed | LoadProgress | Loaded | LoadFailed
    | FiringEnded | FiringFailed | Unloaded | Measured | Tick
)  # fmt: skip
