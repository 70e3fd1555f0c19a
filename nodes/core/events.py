"""The events that an agent's shell (`nodes.agent`) hands to its core.

Events come from the sockets (`nodes.net.wire`), the thread that computes
(`nodes.execution.worker`), the cache, or the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal, NamedTuple

from nodes.protocol.messages import (
    BoardFigures,
    Control,
    Data,
    Deployed,
    Missing,
    Prepared,
    Progress,
    Stored,
)

Peer = bytes
"""A control connection: the routing id of the launcher that dialled the control port."""

Link = bytes | str
"""A data connection: the routing id of a peer that dialled the data port, or the name of a node
that this agent has dialled."""

Purpose = Literal["start", "stats", "stop"]
"""The purpose of a measurement of the process: an epoch's beginning, `Stats`, or its end."""


class LinkChange(Enum):
    """A change of a connection that this end has dialled; the value is a clause for people."""

    CONNECTED = "its handshake is over"
    LOST = "it was closed at the other end, or the network went down"
    CLOSED_EARLY = "the other end closed it during the handshake"
    HANDSHAKES_FAIL = (
        "the other end closes every connection during the handshake: this end has a wrong public "
        "key for it, or only one of the two uses keys, or too many connections reach its port "
        "(see its log)"
    )
    KEY_REFUSED = "the other end does not admit this node's key"
    KEYS_ON_ONE_END = "one end has keys and the other uses none"


AUTHENTICATION_FAILURES = (
    LinkChange.HANDSHAKES_FAIL,
    LinkChange.KEY_REFUSED,
    LinkChange.KEYS_ON_ONE_END,
)
"""Both ends run but cannot authenticate each other, or do not agree on encryption."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The memory of this process as in `messages.Stats`, its CPU seconds since its start, and the
    joules of its machine since some moment (None: not measured)."""

    rss_bytes: int
    rss_peak_bytes: int
    anonymous_bytes: int
    cpu_s: float
    energy_j: float | None = None


@dataclass(frozen=True, slots=True)
class ControlReceived:
    """A well-formed message came in on the control port.

    `key` is the sender's public key; empty if the connection is not guarded.
    """

    peer: Peer
    message: Control | Data
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class DataReceived:
    """A well-formed message came in on a data connection.

    `payload` is the second part if there was one, of `payload_bytes` bytes; the core passes it on
    and never reads it.
    """

    link: Link
    message: Control | Data
    payload: object = None
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ControlMalformed:
    """The peer sent bytes that are not a message to the control port; the core disconnects it."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class DataMalformed:
    """A data connection received something that is not a message; the core closes the link."""

    link: Link
    reason: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """A control connection has closed, because the launcher closed it or has ended."""

    peer: Peer


@dataclass(frozen=True, slots=True)
class Rejected:
    """A port has closed a connection that had sent no message yet, or a key file is unusable.

    The core logs the `reason`, a sentence.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class LinkLost:
    """A data connection has broken or could not be made; `reason` is a clause.

    `is_barred` means that the two ends cannot authenticate each other.
    """

    link: Link
    reason: str = "the other end has closed it"
    is_barred: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to `actions.LookUp` or `actions.WriteChunk`, for the launcher."""

    peer: Peer
    message: Missing | Stored


@dataclass(frozen=True, slots=True)
class ChunkFailed:
    """A chunk could not be written into the cache; `reason` is a sentence."""

    peer: Peer
    reason: str


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """A phase could not be loaded or rehearsed; `reason` is a sentence."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class FiguresFound:
    """The answer to `actions.FindFigures` of this session: `figures`, or the `reason` why not."""

    session: str
    figures: BoardFigures | None
    reason: str = ""


class FiringEnded(NamedTuple):
    """A firing has ended.

    It began at `began_s` on the monotonic clock and took `busy_s` seconds, in which the thread that
    computes had a CPU for `cpu_s`. `outputs` has the payloads by tensor name, which the core never
    reads; `shapes` has the shapes of those outputs that vary. `encoded` has the payloads of the
    channels that are not raw, by channel number. Under its quota, but with the CPUs to itself, the
    firing would have taken `undisturbed_s` (0: unknown).

    A tuple, because that thread makes one for every firing: a frozen dataclass takes three times as
    long.
    """

    epoch: int
    phase: int
    frame: int
    outputs: Mapping[str, object]
    busy_s: float
    cpu_s: float = 0.0
    began_s: float = 0.0
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    encoded: Mapping[int, memoryview] = MappingProxyType({})
    undisturbed_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A payload whose end `actions.SendData` asked for has left, so its memory is free."""

    epoch: int
    channel: int
    frame: int


@dataclass(frozen=True, slots=True)
class FiringFailed:
    """A firing has ended in an error; `reason` is a sentence.

    `peer` is the node that has caused it, if it was not this one.
    """

    epoch: int
    phase: int
    frame: int
    reason: str
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The answer to `actions.Unload`: the executor has released everything of this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The answer to `actions.Measure` with the same purpose."""

    purpose: Purpose
    usage: Usage


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; the shell hands it in when the core's `deadline_s` has passed."""


Event = (
    ControlReceived | DataReceived | ControlMalformed | DataMalformed | Rejected | PeerLost
    | LinkLost | Answered | ChunkFailed | Progress | Deployed | LoadFailed | Prepared
    | FiguresFound | FiringEnded | Sent | FiringFailed | Unloaded | Measured | Tick
)  # fmt: skip
"""The executor thread reports what the launcher is to receive: `Progress`, then `Deployed` or
`LoadFailed`; `Prepared` for a deployment that may follow."""
