"""The words that launchers and agents exchange: the whole protocol, version 4.

**Control** (one launcher at a time, DEALER → ROUTER on an agent's control address). A launcher
opens a session with `Hello` and is told `Welcome` or `Refused`. It asks which blobs the agent
lacks (`Query` → `Missing`), sends those in chunks (`Put`, each answered by `Stored`, at most
`PUT_WINDOW` unanswered), and deploys (`Deploy` → any number of `Progress` → `Deployed` or
`Failed`). When every agent has deployed, it sends `Start`; after the last result `Stop` →
`Stopped`. `GetStats` → `Stats`, `GetTrace` → `Traced` at any time. `Ping` → `Pong` keep the
session's lease alive: an agent that hears nothing from its launcher for `lease_s` undeploys and is
free for another. `Bye` ends the session; an agent started by a launcher exits on `Shutdown`. The
launcher after one that died need not wait for the lease (`nodes.core.session`).

**Data** (DEALER → ROUTER on an agent's data address, in both directions over that connection). On
`Start` the producer of each channel dials the consumer and sends `Attach`; the consumer answers
with `Credit`s, one per channel from that producer, worth the channel's capacity in frames. A
producer claims one credit per channel *at the start of a firing* and sends the tensor at its end;
the consumer gives the credit back when the last of the phases that read it has ended. So the
frames of a channel that exist anywhere, in sockets and buffers included, never exceed its
capacity: what the analysis proved is what the wire enforces. The launcher is a peer too, called
`HOST`: it dials both the agents that it feeds and the agents that feed it. A tensor is a two-part
message, the encoded `TensorHeader` and the raw bytes in C order.

An `epoch` numbers each deployment of a session, and they only rise: `Deploy` of a higher one takes
the place of whatever is deployed, of a lower or the same one it is stale. What carries another
epoch than the current one is ignored and counted. Everything else that is unexpected breaks the
protocol: the peer is cut off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

PROTOCOL = 4
"""Raised whenever an old agent could misunderstand a new launcher, or the reverse."""

HOST = "@host"
"""The launcher's name as a peer; no device can be called so."""

CHUNK_BYTES = 1 << 20
"""Bytes of a blob in one `Put`; the last may be shorter."""

PUT_WINDOW = 8
"""Chunks that may be sent before the first is answered by `Stored`."""

TRACE_EVENT = "<ddqIB"
"""An event of a trace (`struct`): its beginning and length in s, frame, phase or channel, kind."""

TRACE_EVENTS = 32_768
"""What an agent keeps of a trace at most between two questions; fits into `CHUNK_BYTES`."""

Order = Literal["pipelined", "strict"]
"""`pipelined`: the oldest frame's ready phase fires. `strict`: phases in turn, frame by frame."""


class TraceKind(IntEnum):
    """What an event of a trace was: a phase fired; a tensor was sent on a channel, or came."""

    FIRED = 1
    SENT = 2
    CAME = 3


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """A file named by the SHA-256 of its content (64 lower-case hex digits) and its size."""

    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """One phase of an agent's actor: the subnet it runs and the order of its tensors.

    `graph` is an ONNX model whose initialisers lie in the blob `weights` (external data whose
    location is that blob's digest); `weights` is None for a subnet without any. `inputs` and
    `outputs` are the model's own input and output names.
    """

    name: str
    graph: BlobInfo
    weights: BlobInfo | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One FIFO: a tensor, the phase that produces it and the phases of one node that consume it.

    `source_phase` and `target_phases` are indices into that node's `Deployment.phases`, for `HOST`
    None or empty. A channel from a node to itself never touches a socket. `capacity_frames` ≥ 1
    counts frames. If the shape `varies`, each frame has its own, and only the host gets it. With
    `kept_from`, `HOST` gives a phase its state for an epoch's first frame; from then on, the phase
    reads as `tensor` what it made as `kept_from` in the frame before.
    """

    number: int
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    source_node: str
    source_phase: int | None
    target_node: str
    target_phases: tuple[int, ...]
    capacity_frames: int
    varies: bool = False
    kept_from: str = ""


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """Another node of the deployment and the data address at which it can be dialled."""

    name: str
    data_address: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """All that one agent needs to know: its phases in order, its channels, whom to dial.

    With `check_finite` a phase that makes NaN or infinity of inputs without any has failed.
    """

    epoch: int
    node: str
    order: Order
    phases: tuple[PhaseSpec, ...]
    channels: tuple[ChannelSpec, ...]
    dial: tuple[PeerSpec, ...]
    threads: int = 1
    check_finite: bool = False


# ---------------------------------------------------------------- control: launcher → agent


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens a session; `session` is a random name, `lease_s` the silence after which it ends.

    `owner` tells people whose it is, `process` other launchers which process (empty: it does not
    say). `succeeds` is the `process` of the agent's present launcher, if the sender knows that it
    has ended.
    """

    protocol: int
    session: str
    lease_s: float
    owner: str = ""
    process: str = ""
    succeeds: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """Which of these blobs do you lack?"""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """A chunk of a blob, from `offset_bytes` on. Chunks of one blob come in order."""

    blob: BlobInfo
    offset_bytes: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Deploy:
    """Load these phases and be ready to start."""

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Start:
    """Every node has deployed this epoch: dial, attach, fire."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Undeploy this epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class GetStats:
    """Ask for `Stats`."""


@dataclass(frozen=True, slots=True)
class GetTrace:
    """Note from now on what happens, and tell what you noted since the last of these."""

    number: int


@dataclass(frozen=True, slots=True)
class Ping:
    """I am here."""


@dataclass(frozen=True, slots=True)
class Bye:
    """The session ends; the agent undeploys and waits for the next launcher."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The session ends and so does the agent; obeyed only by agents that a launcher started."""


# ---------------------------------------------------------------- control: agent → launcher


@dataclass(frozen=True, slots=True)
class Welcome:
    """The session is open.

    `data_address` is how peers dial this agent's data port; a host of `0.0.0.0` or `*` stands for
    whatever host the control address was reached at. `rss_bytes` is the idle agent's
    (`Stats`), `engine` and `machine` are for people and for cache keys.
    """

    protocol: int
    name: str
    version: str
    data_address: str
    engine: str
    machine: str
    cores: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No session: another launcher has it, or the protocol differs.

    `holder` is the `process` of that other launcher, for one with the same key; else empty.
    """

    reason: str
    protocol: int
    holder: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """The digests of a `Query` that the agent does not have."""

    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """A `Put` arrived; `complete` once the whole blob is there and its hash agrees."""

    digest: str
    offset_bytes: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a deployment is: `done` of `total` phases loaded, and what is going on."""

    epoch: int
    done: int
    total: int
    what: str


@dataclass(frozen=True, slots=True)
class Deployed:
    """Loaded and tried: seconds that each phase took in a warm-up run (the median of several), in
    phase order. Waits for a CPU are left out.

    `message_s` and `byte_s` are the processor seconds that a small tensor, and each byte of a large
    one, cost sender and receiver together; 0 where that was not measured.
    """

    epoch: int
    phase_s: tuple[float, ...]
    rss_bytes: int
    message_s: float = 0.0
    byte_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent could not do what was asked, or stopped doing it: why, in one sentence.

    `epoch` is 0 where it was no deployment that failed (a blob that could not be stored). `peer` is
    the node that it puts this down to, empty if itself. It `is_barred` if that node and it do not
    agree on who they are: one has not the other's key, or another than the right one.
    """

    epoch: int
    reason: str
    peer: str = ""
    is_barred: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The epoch is undeployed; its final statistics."""

    epoch: int
    stats: Stats


@dataclass(frozen=True, slots=True)
class Stats:
    """Counters since `Start` of the current epoch (memory, messages: since the agent's start).

    Times are seconds; `rss_bytes` is resident memory without pages of programs
    (`nodes.host.usage`), `rss_peak_bytes` its high-water mark, `anonymous_bytes` the part that no
    file backs. `cpu_s` counts all threads of the agent, `phase_cpu_s` the executor's own, without
    waits for a CPU. `fifo_peak_bytes` is the most that the FIFOs into this node held at once.
    """

    epoch: int
    firings: tuple[int, ...]
    busy_s: tuple[float, ...]
    elapsed_s: float
    cpu_s: float
    sent_bytes: int
    received_bytes: int
    rss_bytes: int
    rss_peak_bytes: int
    anonymous_bytes: int
    stale_messages: int
    bad_messages: int
    fifo_peak_bytes: int = 0
    phase_cpu_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Traced:
    """The answer to `GetTrace`: its number, the agent's steady clock when it read that (seconds),
    `events` one after the other (`TRACE_EVENT`), and how many more there was no room for."""

    number: int
    now_s: float
    events: bytes
    dropped: int


@dataclass(frozen=True, slots=True)
class Pong:
    """So am I."""


# ---------------------------------------------------------------- data, both directions


@dataclass(frozen=True, slots=True)
class Attach:
    """First on every data connection: who dials, in which epoch."""

    epoch: int
    node: str


@dataclass(frozen=True, slots=True)
class Credit:
    """Consumer → producer: `frames` more of this channel may come."""

    epoch: int
    channel: int
    frames: int


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """First part of a tensor message; the second is its raw bytes in C order."""

    epoch: int
    channel: int
    frame: int
    dtype: str
    shape: tuple[int, ...]


Control = (
    Hello | Query | Put | Deploy | Start | Stop | GetStats | GetTrace | Ping | Bye | Shutdown
    | Welcome | Refused | Missing | Stored | Progress | Deployed | Failed | Stopped | Stats | Traced
    | Pong
)  # fmt: skip
Data = Attach | Credit | TensorHeader
Message = Control | Data
