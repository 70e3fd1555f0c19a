"""The messages that launchers and agents exchange: the whole protocol, version 10.

**Control messages** travel between one launcher (DEALER) and an agent's control port (ROUTER). The
launcher opens a session with `Hello`, which the agent answers by `Welcome` or `Refused`. The
launcher queries which blobs the agent lacks (`Query` → `Missing`), sends these in chunks (`Put`,
each answered by `Stored`, at most `PUT_WINDOW` unanswered), and deploys (`Deploy` → any number of
`Progress` → `Deployed` or `Failed`). When every agent has deployed, it sends `Start`; after the
last result, `Stop` → `Stopped`. `GetFigures` → `Figures`, `GetStats` → `Stats` and `GetTrace` →
`Traced` may come at any time. Every message of the launcher renews the session's lease, and `Ping`
→ `Pong` do nothing else: an agent that receives nothing from its launcher for `lease_s` undeploys
and is free for another. `Bye` ends the session; on `Shutdown`, an agent that a launcher started
exits. If a launcher died, its successor need not wait for the lease (`nodes.core.session`).

**Data messages** travel in both directions over a connection to an agent's data port (DEALER →
ROUTER). On `Start`, the producer of each channel dials the consumer and sends `Attach`; the
consumer answers with one `Credit` per channel from that producer, worth the channel's capacity in
frames. A producer claims one credit per channel *at the start of a firing* and sends the tensor at
its end; the consumer returns the credit when the last of the phases that read the tensor has ended.
The frames of a channel that exist anywhere, sockets and buffers included, therefore never exceed
its capacity, as the analysis has assumed. The launcher is a peer too, called `HOST`: it dials both
the agents that it feeds and the agents that feed it. A tensor is a message of two parts, the
encoded `TensorHeader` and the payload: its raw bytes in C order, unless the channel has another
encoding (`nodes.protocol.encodings`).

An `epoch` numbers each deployment of a session, and epochs only increase. `Deploy` of a higher
epoch replaces whatever is deployed; `Deploy` of the same or a lower one is stale. A message with
another epoch than the current one is ignored and counted. Everything else that is unexpected breaks
the protocol, and the receiver closes the sender's connection.

The type of each field bounds its values (`nodes.protocol.fields`). `nodes.protocol.schema` reads
from these types how a message is packed and checked. What a version has added says so: a field by
`Since` in its type, a message in `ADDED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Literal, TypeAlias

from nodes.protocol.encodings import Encoding
from nodes.protocol.fields import (
    MAX_THREADS,
    Block,
    Count,
    Digest,
    Dtype,
    Index,
    Joules,
    Label,
    Name,
    Number,
    PartS,
    Positive,
    RateS,
    Seconds,
    Sentence,
    Shape,
    Since,
    Threads,
    Who,
    Word,
    integer,
    raw,
    real,
)

PROTOCOL = 10
"""Raised whenever an old agent could misunderstand a new launcher, or the reverse."""

OLDEST_PROTOCOL = PROTOCOL - 1
"""The oldest version that is understood as well, so that a cluster can be upgraded board by board.

A launcher greets in its own version, and again in that of an agent that refuses it and is only one
version behind; the agent answers in the version of the `Hello`. A kind of message that has not
changed since `OLDEST_PROTOCOL` travels with that number, whatever the two ends are. So agents of
both versions exchange tensors as long as no data message changes; a version that changes one has
to agree on its form in `Deploy`."""


def is_understood(protocol: int) -> bool:
    """Return whether this end understands that version of the protocol."""
    return OLDEST_PROTOCOL <= protocol <= PROTOCOL


HOST = "@host"
"""The launcher's name as a peer; no node may have this name."""

CHUNK_BYTES = 1 << 20
"""Bytes of a blob in one `Put`; the last chunk may be shorter."""

Chunk: TypeAlias = Annotated[bytes, raw(CHUNK_BYTES)]

PUT_WINDOW = 8
"""Chunks that may be sent before the first is answered by `Stored`."""

TRACE_EVENT = "<ddqIB"
"""`struct` format of a traced event: start in s, duration in s, frame, phase or channel, kind."""

TRACE_EVENTS = 32_768
"""The most events that an agent keeps between two `GetTrace`; they fit into `CHUNK_BYTES`."""

Order = Literal["pipelined", "strict"]
"""`pipelined`: the ready phase of the oldest frame fires. `strict`: phases in turn, frame by
frame."""


class TraceKind(IntEnum):
    """The kind of a traced event: a firing of a phase, a tensor sent, or a tensor received."""

    FIRED = 1
    SENT = 2
    CAME = 3


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """A file: its SHA-256 (64 lower-case hexadecimal digits), which is its name, and its size."""

    digest: Digest
    size_bytes: Count


@dataclass(frozen=True, slots=True)
class PhaseSpec:
    """One phase of an agent's actor: the subnet that it runs, and its tensors in order.

    `graph` is an ONNX model whose initialisers are in the blob `weights` (as external data whose
    location is that blob's digest); `weights` is None for a subnet without initialisers. `inputs`
    and `outputs` are the names of the model's own inputs and outputs. `network` numbers the
    networks that stream their own frames side by side.
    """

    name: Name
    graph: BlobInfo
    weights: BlobInfo | None
    inputs: tuple[Name, ...]
    outputs: tuple[Name, ...]
    network: Index = 0


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """One FIFO: a tensor, the phase that produces it and the phases of one node that consume it.

    `source_phase` and `target_phases` are indices into `Deployment.phases` of the source and the
    target node; for `HOST` they are None and empty. A channel from a node to itself uses no socket.
    It holds at most `capacity_frames` (≥ 1) at both ends together. `unsent_frames` of these (less
    than all) are the producer's own places, from the start of the firing that makes a frame until
    it has left, and the others places of the consumer; 0 means that a frame takes a place of the
    consumer from the start of that firing, as it always is within a node and from `HOST`.

    If the shape `varies`, each frame has its own shape, and the channel leads to `HOST`. If
    `kept_from` is not empty, the channel carries a phase's state: `HOST` sends it for the first
    frame of an epoch, and for every later frame the phase reads as `tensor` its own output
    `kept_from` of the frame before. Only float32 tensors between two nodes may have another
    `encoding` than `raw`.

    With a `block` above 1, the elements of each frame are ordered in blocks of that many channels
    (axis 1), as engines on both ends compute convolutions: [N, C, H, W] is stored as [N, C/block,
    H, W, block].
    """

    number: Index
    tensor: Name
    dtype: Dtype
    shape: Shape
    source_node: Name
    source_phase: Index | None
    target_node: Name
    target_phases: tuple[Index, ...]
    capacity_frames: Positive
    varies: bool = False
    kept_from: Name = ""
    encoding: Encoding = "raw"
    unsent_frames: Count = 0
    block: Block = 1

    @property
    def consumer_frames(self) -> int:
        """The places of the consumer, which grants as many credits."""
        return self.capacity_frames - self.unsent_frames


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """A node of the deployment that the receiver has to dial, and its data address."""

    name: Name
    data_address: Name


@dataclass(frozen=True, slots=True)
class DeviceOffer:
    """A device that an engine can compute on, and the precisions that it offers there.

    `device` is `cpu`, `gpu`, `npu` or another word, with `:1` for the second of its kind.
    `precisions` are `fp32`, `fp16`, `int8` or other words. With a `block` above 1, it computes
    convolutions in blocks of that many channels, and takes and makes tensors in that order
    (`ChannelSpec.block`).
    """

    device: Word
    precisions: tuple[Word, ...] = ("fp32",)
    block: Block = 1


@dataclass(frozen=True, slots=True)
class OptionOffer:
    """One of an engine's own settings, and the values that it may have.

    They are the `words`, or else numbers from `least` to `most`, only whole ones if `is_whole`.
    With neither words nor bounds, the engine takes any text, or checks it when a subnet is loaded.
    """

    name: Word
    words: tuple[Word, ...] = ()
    least: Number | None = None
    most: Number | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """The memory that an engine takes without tensors, in bytes; planners count on it.

    `idle_bytes` is that of an agent that has opened the engine and loaded nothing, including the
    code that an idle agent runs; `subnet_bytes` and `layer_bytes` are what each further subnet and
    each layer adds. The defaults were measured for ONNX Runtime
    (`partition.pricing.memory_budget`).
    """

    idle_bytes: Count = 34_000_000
    subnet_bytes: Count = 50_000
    layer_bytes: Count = 7_000


@dataclass(frozen=True, slots=True)
class EngineOffer:
    """An engine that an agent knows, and what it offers.

    `missing` says why the engine cannot be used and what to install; it is empty for one that can.
    `devices` begin with the preferred one. `options` are the engine's own settings, and `memory` is
    what it takes. `opset` is the newest operator set of ONNX that it takes, 0 if it does not say.
    """

    engine: Word
    missing: Sentence = ""
    devices: tuple[DeviceOffer, ...] = ()
    options: tuple[OptionOffer, ...] = ()
    memory: EngineMemory = EngineMemory()
    opset: Annotated[int, integer(0, 10_000), Since(10)] = 0


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine of a deployment, its device, its precision, and its own settings.

    `auto` leaves engine, device or precision to the agent (`nodes.core.engines`). By default the
    precision is not left to it, because a lower one than `fp32` changes results.
    """

    engine: Word = "auto"
    device: Word = "auto"
    precision: Word = "fp32"
    options: tuple[EngineOption, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineOption:
    """One of an engine's own settings, as the user wrote it."""

    name: Word
    value: Name


@dataclass(frozen=True, slots=True)
class BoardFigures:
    """An agent's measurements of its board with an engine that computes with `threads` threads.

    All are seconds that a board with its CPUs to itself takes under its quota. A layer takes those
    of its multiply-accumulates, of the bytes of its weights, and of the bytes of the tensors that
    it reads and makes. `dense` are convolutions with kernels of several rows, `pointwise` those of
    1 × 1 and products of matrices, `depthwise` those of one channel each; `integer` is a dense one
    of 8 bits. `cut_s_per_byte` is what a byte of a tensor that enters or leaves a phase costs the
    engine, `run_s` each run. `message_s` and `byte_s` are as in `Deployed`. `encode_s_per_byte` is
    the time to convert a byte of a float32 tensor to half precision.
    """

    threads: Threads
    dense_s_per_mac: RateS
    pointwise_s_per_mac: RateS
    depthwise_s_per_mac: RateS
    integer_s_per_mac: RateS
    weight_s_per_byte: RateS
    tensor_s_per_byte: RateS
    cut_s_per_byte: PartS
    run_s: PartS
    message_s: PartS
    byte_s: PartS
    encode_s_per_byte: PartS


@dataclass(frozen=True, slots=True)
class Deployment:
    """The part of a plan that one agent runs: its phases in order, its channels, and the nodes that
    it dials.

    `threads` is the number of threads that the `engine` may compute with. With
    `check_finite`, a firing fails if it makes NaN or infinity from inputs that contain none. `run`
    names the launcher's run in the logs of all its agents; it is new in each run.
    """

    epoch: Count
    node: Name
    order: Order
    phases: tuple[PhaseSpec, ...]
    channels: tuple[ChannelSpec, ...]
    dial: tuple[PeerSpec, ...]
    threads: Threads = 1
    check_finite: bool = False
    engine: EngineChoice = EngineChoice()
    run: Label = ""


# ---------------------------------------------------------------- control: launcher → agent


@dataclass(frozen=True, slots=True)
class Hello:
    """Launcher → agent: open a session, or resume it over a new connection.

    The agent answers by `Welcome` or `Refused`. `session` is a random name, `lease_s` the silence
    in seconds after which the agent ends the session. `owner` is for people: whose session it is.
    `process` identifies the launcher's process to other launchers (`nodes.host.owner`); empty if it
    is unknown. `succeeds` is the `process` of the launcher whose session the agent has now, if the
    sender has found that this process has ended.
    """

    protocol: Count
    session: Name
    lease_s: Annotated[float, real(1e-3, 1e6)]
    owner: Who = ""
    process: Who = ""
    succeeds: Who = ""


@dataclass(frozen=True, slots=True)
class Query:
    """Launcher → agent: which of these blobs are not in your cache? The answer is `Missing`."""

    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Put:
    """Launcher → agent: store this chunk of a blob, which begins at `offset_bytes`.

    The chunks of a blob come in order. The answer is `Stored` or `Failed`.
    """

    blob: BlobInfo
    offset_bytes: Count
    data: Chunk


@dataclass(frozen=True, slots=True)
class Deploy:
    """Launcher → agent: load these phases, in place of what is deployed.

    The answers are any number of `Progress`, then `Deployed` or `Failed`.
    """

    deployment: Deployment


@dataclass(frozen=True, slots=True)
class Prepare:
    """Launcher → agent: prepare the subnets of this deployment, which may follow, while the present
    one continues. The answer is `Prepared`.

    If it `loads`, the agent also loads and rehearses them, where its engine and memory allow that.
    A `Stop` of an epoch that is not deployed closes them again.
    """

    deployment: Deployment
    loads: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Launcher → agent: all agents have deployed this epoch, so dial the peers and fire."""

    epoch: Count


@dataclass(frozen=True, slots=True)
class Stop:
    """Launcher → agent: undeploy this epoch. The answer is `Stopped`."""

    epoch: Count


@dataclass(frozen=True, slots=True)
class GetFigures:
    """Launcher → agent: report what the board has measured with `Welcome.engine` and this number of
    threads (0: `Welcome.threads`). The answer is `Figures`: at once if they are kept, otherwise, or
    if it asks to measure `again`, after measuring. Only agents from protocol 10 on understand it.
    """

    threads: Annotated[int, integer(0, MAX_THREADS)] = 0
    again: bool = False


@dataclass(frozen=True, slots=True)
class GetStats:
    """Launcher → agent: send `Stats`."""


@dataclass(frozen=True, slots=True)
class GetTrace:
    """Launcher → agent: send what was traced since the last `GetTrace`, and continue tracing.

    The first one starts the trace. The answer is `Traced` with the same `number`. If `frames` are
    given, it has the events of these frames only, and what was traced is kept: it may be asked for
    again, until newer events take its place.
    """

    number: Count
    frames: tuple[Count, ...] = ()


@dataclass(frozen=True, slots=True)
class Ping:
    """Launcher → agent: renew the session's lease. The answer is `Pong`."""


@dataclass(frozen=True, slots=True)
class Bye:
    """Launcher → agent: the session ends. The agent undeploys and waits for the next launcher."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Launcher → agent: the session ends, and the agent exits.

    Only agents that a launcher started obey; others answer by `Refused`.
    """


# ---------------------------------------------------------------- control: agent → launcher


@dataclass(frozen=True, slots=True)
class Welcome:
    """Agent → launcher, in answer to `Hello`: the session is open.

    `data_address` is where peers dial this agent's data port; a host of `0.0.0.0` or `*` stands for
    the host at which the launcher has reached the control port. `engine` and `machine` are for
    people and for cache keys. `rss_bytes` is the memory of the idle agent, as in `Stats`.
    `encodings` are those that it has for channels in addition to `raw`. `available_bytes` is the
    memory that the agent could still allocate when it was greeted (None if it cannot tell); agents
    of one machine report the same memory. `engines` are all that the agent knows, in the order in
    which `auto` prefers them. `meter` says what its joules are measured with; if it is empty,
    `unmetered` says why they are not. `threads` is how many threads this board computes with best
    (0: unknown), and `spare_cores` what it then has left for other threads, by its cores and
    quotas.
    """

    protocol: Count
    name: Name
    version: Label
    data_address: Label
    engine: Label
    machine: Label
    cores: Index
    rss_bytes: Count
    encodings: tuple[Encoding, ...] = ()
    available_bytes: Count | None = None
    engines: tuple[EngineOffer, ...] = ()
    meter: Label = ""
    unmetered: Label = ""
    threads: Annotated[int, integer(0, MAX_THREADS), Since(10)] = 0
    spare_cores: Annotated[float, real(0.0, MAX_THREADS), Since(10)] = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """Agent → launcher, in answer to `Hello`: there is no session, and why.

    It also answers a command from a launcher without a session, and a `Shutdown` that the agent
    does not obey. `protocol` is the agent's version. If another launcher with the same key has the
    session, `holder` is its `process`; else it is empty.
    """

    reason: Sentence
    protocol: Count
    holder: Who = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """Agent → launcher, in answer to `Query`: the digests of the blobs that it lacks."""

    digests: tuple[Digest, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Agent → launcher, in answer to `Put`: the chunk at `offset_bytes` is in the cache.

    `complete` is true if the whole blob has arrived and its SHA-256 is right.
    """

    digest: Digest
    offset_bytes: Count
    complete: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """Agent → launcher, after `Deploy`: `done` of `total` phases are loaded; `what` happens now."""

    epoch: Count
    done: Count
    total: Count
    what: Sentence


@dataclass(frozen=True, slots=True)
class Deployed:
    """Agent → launcher, after `Deploy`: all phases are loaded and rehearsed.

    `phase_s` has the seconds of each phase in the rehearsal, in phase order: the median of several
    runs, without waits for a CPU. `message_s` and `byte_s` are the processor seconds that a small
    tensor, and each byte of a large one, cost sender and receiver together; 0 where that was not
    measured. `rss_bytes` is as in `Stats`.
    """

    epoch: Count
    phase_s: tuple[Seconds, ...]
    rss_bytes: Count
    message_s: Seconds = 0.0
    byte_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """Agent → launcher: the preparation for the deployment of `epoch` is over; a `reason` says why
    something is left to do once it is deployed."""

    epoch: Count
    reason: Sentence = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """Agent → launcher: a command or the deployment has failed; `reason` is one sentence.

    `epoch` is 0 if it was not a deployment that failed but a `Put`. `peer` is the node that the
    agent blames for the failure; empty if the cause is its own. `is_barred` means that the two ends
    cannot authenticate each other: a key is missing or wrong, or only one end uses keys.
    """

    epoch: Count
    reason: Sentence
    peer: Name = ""
    is_barred: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """Agent → launcher, in answer to `Stop`: the epoch is undeployed; its final statistics."""

    epoch: Count
    stats: Stats


@dataclass(frozen=True, slots=True)
class Stats:
    """Agent → launcher, in answer to `GetStats` and within `Stopped`: counters of the epoch.

    They count since `Start`; those of messages since the agent's start, and the peak of memory
    since the deployment began to load (`nodes.host.usage.PeakMemory`). `firings`, `busy_s` and
    `phase_cpu_s` have one entry per phase. `elapsed_s` is the time since `Start`, `busy_s` that of
    all firings. `cpu_s` counts all threads of the agent, `phase_cpu_s` the threads that compute.
    `sent_bytes` and `received_bytes` count payloads on sockets. `rss_bytes` is resident memory
    without the pages of programs (`nodes.host.usage`), `rss_peak_bytes` its largest value,
    `anonymous_bytes` the part that no file backs. `stale_messages` were ignored because of their
    epoch or session, `bad_messages` broke the protocol. `fifo_peak_bytes` is the most that the
    FIFOs into this node have held at once. `energy_j` is what the whole machine has taken since
    `Start` in joules, other programs included; None where it was not measured all the time.
    `channel_frames` has the frames that each channel of the deployment holds now, in its order: of
    a channel that begins here all frames that exist, of another one those that have arrived.
    `waited_s` has, per phase, the time for which this node computed nothing while the phase had its
    inputs and some channel that it writes had no credit. `phase_s` has the median time of each
    phase's last firings, without waits for a CPU that other processes used, as `Deployed` has for
    the rehearsal; 0 for a phase with too few firings.
    """

    epoch: Count
    firings: tuple[Count, ...]
    busy_s: tuple[Seconds, ...]
    elapsed_s: Seconds
    cpu_s: Seconds
    sent_bytes: Count
    received_bytes: Count
    rss_bytes: Count
    rss_peak_bytes: Count
    anonymous_bytes: Count
    stale_messages: Count
    bad_messages: Count
    fifo_peak_bytes: Count = 0
    phase_cpu_s: tuple[Seconds, ...] = ()
    energy_j: Joules | None = None
    channel_frames: tuple[Count, ...] = ()
    waited_s: tuple[Seconds, ...] = ()
    phase_s: Annotated[tuple[Seconds, ...], Since(10)] = ()


@dataclass(frozen=True, slots=True)
class Traced:
    """Agent → launcher, in answer to the `GetTrace` with this `number`.

    `now_s` is the agent's monotonic clock when it received the `GetTrace`. `events` has the traced
    events, each packed as `TRACE_EVENT`; `dropped` more did not fit.
    """

    number: Count
    now_s: Seconds
    events: Chunk
    dropped: Count


@dataclass(frozen=True, slots=True)
class Figures:
    """Agent → launcher, in answer to `GetFigures`; without `figures`, `reason` says why."""

    figures: BoardFigures | None
    reason: Sentence = ""


@dataclass(frozen=True, slots=True)
class Pong:
    """Agent → launcher, in answer to `Ping`."""


# ---------------------------------------------------------------- data, both directions


@dataclass(frozen=True, slots=True)
class Attach:
    """Dialling end → dialled agent, first on every data connection: the sender's name and epoch."""

    epoch: Count
    node: Name


@dataclass(frozen=True, slots=True)
class Credit:
    """Consumer → producer: this channel has room for `frames` more frames."""

    epoch: Count
    channel: Index
    frames: Positive


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Producer → consumer: a frame of this channel; the second part of the message is its payload.

    `dtype` and `shape` are those of the tensor, however its channel encodes it.
    """

    epoch: Count
    channel: Index
    frame: Count
    dtype: Dtype
    shape: Shape


Command = (
    Query | Put | Prepare | Deploy | Start | Stop | GetFigures | GetStats | GetTrace | Ping | Bye
    | Shutdown
)  # fmt: skip
"""The messages that only the launcher with the session may send."""

Control = (
    Hello | Command | Welcome | Refused | Missing | Stored | Prepared | Progress | Deployed
    | Failed | Stopped | Figures | Stats | Traced | Pong
)  # fmt: skip
Data = Attach | Credit | TensorHeader
Message = Control | Data

ADDED: Mapping[type, int] = {GetFigures: 10, Figures: 10}
"""The messages that one of the versions which are understood has added, with that version."""
