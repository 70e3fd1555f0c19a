"""Declares the keys of `cluster.yaml`, their defaults and their meaning, as strict frozen models.

The JSON schema for editors is made from these models (`launcher.config.schema`). Paths are text
here and relative to the file; `launcher.config.load` reads the file and resolves them. The sections
`run` and `recovery` are in `launcher.config.run`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from launcher.config.bounds import MOST_FRAMES, MOST_SEED
from launcher.config.ends.looks import is_source
from launcher.config.ends.sink_kinds import Sinks
from launcher.config.ends.source_kinds import SourceValue
from launcher.config.pace import Overload, Pace
from launcher.config.reconnect import ReconnectConfig
from launcher.config.run import RecoveryConfig, RunConfig, StrictModel
from launcher.config.serve import ServeConfig
from launcher.config.task import TaskConfig
from launcher.config.units import BatchSize, Bytes, Duration, LinkRate, Share, Speed, brief
from nodes.core.engines import AUTO
from nodes.core.slots import MOST_SLOTS
from nodes.protocol.addresses import MOST_PORT, slot_ports
from nodes.protocol.messages import EngineChoice, EngineOption
from partition.devices import CacheSpill
from partition.objective import DEFAULT_OBJECTIVE, WITHIN, Objective
from partition.wire import Wire

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""Names that nodes and networks may have."""

_WORD = re.compile(r"[a-z0-9][a-z0-9_.:-]{0,63}")

_ADDRESS = re.compile(
    r"tcp://(\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9_][A-Za-z0-9._-]*):(\d{1,5})",
    re.ASCII,
)
"""TCP, to a name or an IP address, of which an IPv6 one may have its interface: fe80::1%eth0."""

SSH = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?"
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*))"
    r"(?::(?P<port>\d{1,5}))?"
)
"""What `ssh:` of a node may be: HOST, USER@HOST, USER@HOST:PORT."""


class NodeConfig(StrictModel):
    """One device. Without an address, `launch` starts its agent on this machine."""

    name: Annotated[str, Field(description="Unique name; letters, digits, '.', '_' and '-'")]
    address: Annotated[
        str | None, Field(description="Where its node-agent listens: tcp://HOST:PORT")
    ] = None
    data: Annotated[
        int | str | None,
        Field(
            description="Where others reach its agent's data port: a port at the host of its "
            "address, or tcp://HOST:PORT; by default what the agent says, or the port behind that "
            "of its address"
        ),
    ] = None
    ssh: Annotated[
        str | None,
        Field(
            description="Where ssh reaches its board, for launch upgrade: USER@HOST:PORT; by "
            "default the host of its address"
        ),
    ] = None
    slots: Annotated[
        int,
        Field(
            ge=1,
            le=MOST_SLOTS,
            description="How many slots its node-agent was started with; the first free one is "
            "used",
        ),
    ] = 1
    host: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name of the machine that it is a part of, for several nodes on one board; "
            "by default the host of its address",
        ),
    ] = None
    memory: Annotated[
        Bytes, Field(description="Memory that its agent may use at most: 4GB, 512MiB or bytes")
    ] = None
    threads: Annotated[
        int | None,
        Field(
            ge=1,
            le=1024,
            description="Threads of its engine; by default those that its board computes with "
            "best, shared by the nodes of a machine",
        ),
    ] = None
    engine: Annotated[
        str,
        Field(description="Engine: auto, onnxruntime, openvino, tensorrt, tvm, a plugin's"),
    ] = AUTO
    device: Annotated[str, Field(description="What it computes on: auto, cpu, gpu, gpu:1, npu")] = (
        AUTO
    )
    precision: Annotated[
        str, Field(description="What it computes in: fp32; fp16 or int8 where offered")
    ] = "fp32"
    engine_options: Annotated[
        dict[str, str | int | float | bool],
        Field(description="The engine's own settings, by name; `node-agent --describe` lists them"),
    ] = {}
    macs_per_s: Annotated[
        Speed, Field(description="Speed in multiply-accumulates per second, such as 2e10 or 20G")
    ] = None
    accelerator: Annotated[
        bool | None,
        Field(
            description="Whether a GPU or NPU computes while the CPU serves the network; by "
            "default if its agent computes on one, or its board has a core to spare"
        ),
    ] = None
    cache: Annotated[
        Bytes,
        Field(
            description="Its accelerator's own memory for weights, such as 8MiB; without it no "
            "limit"
        ),
    ] = None
    cache_spill: Annotated[
        CacheSpill,
        Field(description="What stays outside a full cache: bytes of weights, or whole layers"),
    ] = "bytes"
    busy_w: Annotated[float, Field(ge=0, description="Watts while it computes")] = 10.0
    idle_w: Annotated[float, Field(ge=0, description="Watts while it waits")] = 2.5
    link: Annotated[
        LinkRate,
        Field(description="Rate of its network interface in each direction, such as 1Gbit/s"),
    ] = None
    wire: Annotated[
        Wire | None,
        Field(
            description="How float32 tensors are encoded that its link carries to and from other "
            "nodes; by default as for all"
        ),
    ] = None
    standby: Annotated[
        bool, Field(description="Whether it is used only once another node is lost")
    ] = False
    cpus: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(description="CPUs that the agent started here is bound to; by default all"),
    ] = ()
    meter: Annotated[
        str,
        Field(
            description="What measures the energy of an agent that launch starts: auto, none, or "
            "a plugin's name"
        ),
    ] = AUTO

    @property
    def data_address(self) -> str | None:
        """The address of its data port (that of slot 1), if the user says one."""
        if not isinstance(self.data, int):
            return self.data
        return f"{str(self.address).rpartition(':')[0]}:{self.data}"

    @property
    def choice(self) -> EngineChoice:
        """What its agent has to compute with."""
        options = tuple(
            EngineOption(name, str(value).lower() if isinstance(value, bool) else str(value))
            for name, value in self.engine_options.items()
        )
        return EngineChoice(self.engine, self.device, self.precision, options)

    @field_validator("engine", "device", "precision")
    @classmethod
    def _check_word(cls, word: str) -> str:
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word!r} is not a name such as auto, openvino, gpu:1 or fp16")
        return word

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name.startswith("@"):
            raise ValueError(
                f"{name!r} is reserved: names that begin with '@' are for the launcher; choose "
                "another"
            )
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a node's name: use 1 to 64 letters, digits, '.', '_' and '-', "
                "beginning with a letter or digit"
            )
        return name

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str | None) -> str | None:
        if address is None:
            return None
        match = _ADDRESS.fullmatch(address)
        if match is None or not 1 <= int(match[2]) <= 65535:
            raise ValueError(
                f"{address!r} is not an agent's address; write tcp://HOST:PORT, "
                "such as tcp://192.168.1.20:5500 or tcp://[fd00::20]:5500"
            )
        return address

    @field_validator("data", mode="before")
    @classmethod
    def _check_data(cls, data: object, info: ValidationInfo) -> object:
        if data is None or "address" not in info.data:
            return data
        if info.data["address"] is None:
            raise ValueError(
                "applies only to a node with an address; launch knows the ports of the agents that "
                "it starts itself"
            )
        match = _ADDRESS.fullmatch(data) if isinstance(data, str) else None
        port = int(match[2]) if match is not None else data
        if type(port) is not int or not 1 <= port <= MOST_PORT:
            raise ValueError(
                f"{brief(data)} is not where a data port is; write its number, such as 5741, or "
                "tcp://HOST:PORT"
            )
        return data

    @field_validator("slots")
    @classmethod
    def _check_slots(cls, slots: int, info: ValidationInfo) -> int:
        address = info.data.get("address")
        if slots == 1 or "address" not in info.data:  # which has an error of its own
            return slots
        if address is None:
            raise ValueError(
                "applies only to a node with an address; an agent that launch starts itself is "
                "used by nobody else"
            )
        last = slot_ports(address, slots).stop - 1
        if last > MOST_PORT:
            raise ValueError(f"{slots} slots at {address} would need ports up to {last}")
        data = info.data.get("data")
        last = int(str(data).rpartition(":")[2]) + 2 * (slots - 1) if data is not None else 0
        if last > MOST_PORT:
            raise ValueError(f"{slots} slots with data port {data} would need ports up to {last}")
        return slots

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str | None, info: ValidationInfo) -> str | None:
        if host is not None and info.data.get("address") is None:
            raise ValueError(
                "applies only to a node with an address; launch starts the others on this machine"
            )
        return host

    @field_validator("ssh")
    @classmethod
    def _check_ssh(cls, ssh: str | None, info: ValidationInfo) -> str | None:
        if ssh is None:
            return None
        if info.data.get("address") is None:
            raise ValueError("applies only to a node with an address")
        if not SSH.fullmatch(ssh):
            raise ValueError(f"{ssh!r} is not where ssh reaches a board; write USER@HOST:PORT")
        return ssh

    @field_validator("cpus")
    @classmethod
    def _check_cpus(cls, cpus: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if cpus and info.data.get("address") is not None:
            raise ValueError(
                "applies only to a node without an address, whose agent launch starts itself; "
                "start the other machine's agent with --cpus instead"
            )
        return cpus

    @field_validator("meter")
    @classmethod
    def _check_meter(cls, meter: str, info: ValidationInfo) -> str:
        if not _WORD.fullmatch(meter):
            raise ValueError(f"{meter!r} is not auto, none or the name of a plugin")
        if meter != AUTO and info.data.get("address") is not None:
            raise ValueError(
                "applies only to a node without an address, whose agent launch starts itself; "
                "start the other machine's agent with --meter instead"
            )
        return meter


Fraction = Annotated[float, Field(ge=0, le=1)]


class Tuning(StrictModel):
    """Parameters of one genetic strategy; one that is left out has its usual value.

    `budget` bounds how many candidate solutions a search evaluates; the other parameters say how
    the search spends it (`ga.sweep.spaces`).
    """

    budget: Annotated[
        float,
        Field(
            ge=0.01, le=100, description="Candidate solutions to evaluate, relative to the default"
        ),
    ] = 1.0


class VerticalTuning(Tuning):
    """Parameters of `vertical`, also where `auto` tries it."""

    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Size of NSGA-II's population")
    ] = None
    evolved: Annotated[
        float | None,
        Field(ge=0, le=0.9, description="Fraction of the budget that NSGA-II gets; annealing the "
              "rest"),
    ] = None  # fmt: skip
    crossover: Annotated[Fraction | None, Field(description="Probability of crossover")] = None
    chains: Annotated[int | None, Field(ge=1, description="Annealing chains that run together")] = (
        None
    )
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature at which annealing starts")
    ] = None
    epoch: Annotated[int | None, Field(ge=1, description="Steps between restarts of chains")] = None
    reliefs: Annotated[
        Fraction | None,
        Field(description="Fraction of annealing's moves that take a layer off a fullest device"),
    ] = None


class PaperTuning(Tuning):
    """Parameters of `vertical-paper`."""

    individuals: Annotated[int | None, Field(ge=2, description="Size of the population")] = None
    mutation: Annotated[Fraction | None, Field(description="Probability of a mutation")] = None
    crossover: Annotated[Fraction | None, Field(description="Probability of crossover")] = None
    tournament: Annotated[
        int | None, Field(ge=1, description="Individuals that compete in a selection")
    ] = None
    seeded: Annotated[
        Fraction | None,
        Field(description="Fraction of the first population that longest-first assigns"),
    ] = None
    spread: Annotated[
        float | None,
        Field(ge=0, le=1, description="How much the seeds' sizes are varied at random"),
    ] = None


class RunsTuning(Tuning):
    """Parameters of `runs`, also where `auto` tries it."""

    chains: Annotated[
        int | None, Field(ge=12, multiple_of=12, description="Annealing chains that run together")
    ] = None
    rounds: Annotated[int | None, Field(ge=1, description="Rounds of annealing")] = None
    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Size of NSGA-II's population")
    ] = None
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature at which the first round starts")
    ] = None


class HybridTuning(Tuning):
    """Parameters of `hybrid`, also where `auto` tries it."""

    chains: Annotated[int | None, Field(ge=1, description="Annealing chains that run together")] = (
        None
    )
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature at which annealing starts")
    ] = None
    epoch: Annotated[int | None, Field(ge=1, description="Steps between restarts of chains")] = None
    fineness: Annotated[
        float | None,
        Field(gt=0, le=1, description="Size of the parts of layers, of a node's fair share"),
    ] = None


class GaConfig(StrictModel):
    """Parameters of the genetic strategies, which `ga sweep` tunes and can write here."""

    model_config = ConfigDict(populate_by_name=True)

    vertical: Annotated[VerticalTuning | None, Field(description="Parameters of vertical")] = None
    vertical_paper: Annotated[
        PaperTuning | None,
        Field(alias="vertical-paper", description="Parameters of vertical-paper"),
    ] = None
    runs: Annotated[RunsTuning | None, Field(description="Parameters of runs")] = None
    hybrid: Annotated[HybridTuning | None, Field(description="Parameters of hybrid")] = None

    def sections(self) -> dict[str, dict[str, float]]:
        """Return what the user has given: strategy → its parameters and its budget."""
        return self.model_dump(exclude_unset=True, exclude_none=True, by_alias=True)


RANDOM = "random"
"""The word that `input:` may have instead of files."""


def _short_form(key: str, *types: type) -> BeforeValidator:
    """Let a plain value stand for a mapping with only `key`."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, types) else value

    return BeforeValidator(expand)


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


PerChannel = tuple[float, ...] | float
"""One number for every channel of an image, or one for each."""

Resize: TypeAlias = Literal["crop", "pad", "stretch", "letterbox"]
"""Ways of fitting an image to a network's height and width (`launcher.inputs.fitting`)."""

PadColor = tuple[Annotated[int, Field(ge=0, le=255)], ...] | Annotated[int, Field(ge=0, le=255)]

InputShape = tuple[Annotated[int, Field(ge=1)], ...]

ConstantRow = tuple[bool | int | float, ...]
Constant = bool | int | float | ConstantRow | tuple[ConstantRow, ...]
"""The value of a constant input of a model: a number, a list of numbers, a list of such lists."""


class ModelConfig(StrictModel):
    """The network. A path alone may stand for the whole mapping."""

    path: Annotated[
        str, Field(min_length=1, description="ONNX file, onnx-wheel:NAME or builtin:NAME")
    ]
    input_shape: Annotated[
        InputShape | dict[str, InputShape] | None,
        Field(
            description="Shape of the input of a model with dynamic axes, or of each input by name"
        ),
    ] = None
    state: Annotated[
        dict[str, str],
        Field(description="Per input with state: the output that becomes it in the next frame"),
    ] = {}
    fill_seed: Annotated[
        int,
        Field(ge=0, lt=2**32, description="Seed of the random weights of a file without weights"),
    ] = 0
    outputs: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(
            min_length=1,
            description="Tensors at which the network ends, instead of the file's own outputs",
        ),
    ] = ()
    inputs: Annotated[
        dict[str, Constant],
        Field(description="Per constant input: its value, which is the same for all frames"),
    ] = {}
    name: Annotated[
        str | None, Field(description="Name of the network beside others; by default its file's")
    ] = None
    version: Annotated[
        int, Field(ge=1, description="Number of this version of the network, for clients of serve")
    ] = 1

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a network's name: use 1 to 64 letters, digits, '.', '_' and "
                "'-', beginning with a letter or digit"
            )
        return name


def _one_or_several(value: object) -> str:
    return SEVERAL if isinstance(value, tuple) else ONE


ONE, SEVERAL = "one model", "several models"
"""Tags of the two forms of `model:`, which pydantic puts into the location of an error."""

Models = Annotated[
    Annotated[ModelConfig, _short_form("path", str), Tag(ONE)]
    | Annotated[
        tuple[Annotated[ModelConfig, _short_form("path", str)], ...],
        Field(min_length=1),
        Tag(SEVERAL),
    ],
    Discriminator(_one_or_several),
]
"""The network, or a list of networks that run side by side."""


def _input_form(value: object) -> object:
    """Let files, or a text that looks like a source, stand for the whole mapping."""
    if isinstance(value, str) and is_source(value):
        return {"source": value}
    return {"files": value} if isinstance(value, str | tuple) else value


class InputConfig(StrictModel):
    """The input frames, from files or from a source. A glob, a list of globs, `random`, or a text
    that looks like a source may stand for the whole mapping."""

    files: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1, description="PNG, JPEG, .npy or .npz files: globs; or 'random'"),
    ] = ()
    source: Annotated[
        SourceValue | None,
        Field(description="Instead of files: a video, a camera, a watched folder, standard input"),
    ] = None
    scale: Annotated[
        float | None,
        Field(gt=0, description="Value that a pixel's largest value is scaled to; usually 1"),
    ] = None
    mean: Annotated[
        PerChannel | None, Field(description="Subtracted after scaling; 0 for none")
    ] = None
    std: Annotated[
        PerChannel | None, Field(description="Divisor after subtracting the mean; 1 for none")
    ] = None
    layout: Annotated[
        Literal["nchw", "nhwc"] | None,
        Field(description="Position of the channels in the model's input"),
    ] = None
    resize: Annotated[
        Resize | None,
        Field(
            description="How an image is fitted to the model's height and width; usually crop, and "
            "letterbox for a task that finds places in it"
        ),
    ] = None
    pad_color: Annotated[
        PadColor | None,
        Field(description="Colour of letterbox's bars: one number or red, green, blue; 114"),
    ] = None
    scale_up: Annotated[
        bool, Field(description="Whether letterbox enlarges images that are smaller")
    ] = True
    colors: Annotated[Literal["rgb", "bgr"], Field(description="Order of three channels")] = "rgb"

    @model_validator(mode="after")
    def _check_origin(self) -> InputConfig:
        if bool(self.files) == (self.source is not None):
            raise ValueError("must have either the key 'files' or the key 'source'")
        return self

    @property
    def is_random(self) -> bool:
        """Whether frames are drawn from the seed instead of read from files."""
        return self.files == (RANDOM,)


class JournalConfig(StrictModel):
    """The folder that keeps results and progress. Its name may stand for the whole mapping."""

    folder: Annotated[str, Field(min_length=1, description="The folder; it is made if missing")]
    keep: Annotated[
        Bytes,
        Field(
            description="Bound on what the folder takes on disk, such as 10GB; the oldest results "
            "beyond it are removed",
        ),
    ] = None


class ClusterConfig(StrictModel):
    """One network or several, the nodes that they run on, and what is streamed through them."""

    model_config = ConfigDict(title="cluster.yaml")

    model: Annotated[
        Models,
        Field(description="The network that is run, or a list of networks that run side by side"),
    ]
    nodes: Annotated[tuple[NodeConfig, ...], Field(min_length=1, description="The devices")]
    batch: Annotated[
        BatchSize,
        Field(
            description="Number of frames that a node computes at once; auto: what is fastest by "
            "the profile within max_latency"
        ),
    ] = 1
    max_latency: Annotated[
        Duration,
        Field(
            description="The longest that a frame may take from its source to its result, such as "
            "200ms; plans that are predicted to take longer are refused"
        ),
    ] = None
    launcher_link: Annotated[
        LinkRate,
        Field(
            description="Rate of the launching machine's network interface, which all frames "
            "cross, such as 1Gbit/s"
        ),
    ] = None
    wire: Annotated[
        Wire,
        Field(
            description="How float32 tensors between nodes are encoded: fp32 as they are; "
            "lossless; fp16, bf16, int8, which change results; auto, as slow links need and "
            "tolerance allows"
        ),
    ] = "fp32"
    strategy: Annotated[
        str, Field(min_length=1, description="How layers are divided among the nodes")
    ] = "auto"
    ga: Annotated[
        GaConfig,
        Field(description="Parameters of the genetic strategies, which ga sweep can find"),
    ] = GaConfig()
    objective: Annotated[
        Objective,
        Field(description="What the strategy minimises first"),
    ] = DEFAULT_OBJECTIVE
    within: Annotated[
        Share,
        Field(
            description="For the objectives both and paper: by how much the period may exceed the "
            "shortest, such as 10% or 0.1"
        ),
    ] = WITHIN
    input: Annotated[
        InputConfig,
        BeforeValidator(_input_form),
        Field(description="The frames: globs of files, random, or a source such as a camera"),
    ] = InputConfig(files=(RANDOM,))
    inputs: Annotated[
        dict[str, Annotated[InputConfig, BeforeValidator(_input_form)]],
        Field(description="Frames of each network by its name; those not named here use input"),
    ] = {}
    frames: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_FRAMES,
            description="Number of frames to stream; the inputs are repeated if there are fewer",
        ),
    ] = None
    rate: Annotated[
        float | None,
        Field(
            gt=0, le=1e6, description="Frames per second that the source makes, as a camera does"
        ),
    ] = None
    on_overload: Annotated[
        Overload,
        Field(
            description="With rate or a source: what happens to a new frame if queue_frames wait "
            "already; block, but drop-oldest for a live source"
        ),
    ] = "block"
    queue_frames: Annotated[
        int,
        Field(
            ge=1,
            le=1_000_000,
            description="With rate or a source: how many frames may wait; 8, but 1 if it is live",
        ),
    ] = 8
    pins: Annotated[
        dict[str, str],
        Field(description="Per layer, or glob of layers: the node that must run it"),
    ] = {}
    journal: Annotated[
        JournalConfig | None,
        _short_form("folder", str),
        Field(description="Folder that keeps results and progress, for --resume"),
    ] = None
    labels: Annotated[
        str | None, Field(description="Text file with a line per class, from class 0: its name")
    ] = None
    truth: Annotated[
        str | None, Field(description="Text file with a line per input: the number of its class")
    ] = None
    profile: Annotated[
        str | None,
        Field(
            description="File with measured times for the search, which csdf-edge partition "
            "profile writes"
        ),
    ] = None
    keys: Annotated[
        str | None,
        Field(
            description="Folder of keys that launch --make-keys made; by default keys beside this "
            "file"
        ),
    ] = None
    insecure: Annotated[
        bool,
        Field(description="Use no keys: everybody who reaches the nodes can run networks on them"),
    ] = False
    seed: Annotated[
        int, Field(ge=0, le=MOST_SEED, description="Seed of the search and of random input")
    ] = 0
    slack_frames: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Room in each channel, in frames, beyond what the period needs",
        ),
    ] = 1
    verify: Annotated[
        bool, Field(description="Whether results are compared with the whole model's")
    ] = True
    tolerance: Annotated[
        float | None,
        Field(
            ge=0,
            description="Largest relative difference from the whole model's results; by default it "
            "follows from the precision of the network's numbers",
        ),
    ] = None
    check: Annotated[
        Literal["results", "phases", "none"],
        Field(
            description="Where NaN and infinity are looked for; with phases, a node that makes "
            "them has failed"
        ),
    ] = "results"
    run: Annotated[RunConfig, Field(description="Timeouts and order")] = RunConfig()
    recovery: Annotated[
        RecoveryConfig,
        _short_form("enabled", bool),
        Field(description="How a run goes on without a node that is lost"),
    ] = RecoveryConfig()
    sinks: Annotated[
        Sinks, Field(description="Where results are delivered: files, brokers, web servers, videos")
    ] = ()
    reconnect: Annotated[
        ReconnectConfig,
        Field(description="When a source or sink that was lost is tried again"),
    ] = ReconnectConfig()
    task: Annotated[
        TaskConfig | None,
        _short_form("kind", str),
        Field(
            description="What the outputs mean: its kind, or a mapping; by default as the model "
            "says"
        ),
    ] = None
    serve: Annotated[
        ServeConfig, Field(description="Where launch serve answers requests, and whose")
    ] = ServeConfig()

    @property
    def is_stream(self) -> bool:
        """Whether `launch` streams from a source, or to sinks, in place of a run over files."""
        return self.input.source is not None or bool(self.sinks)

    @property
    def pace(self) -> Pace | None:
        """The rate at which the source makes frames; None if it waits for the nodes."""
        if self.rate is None:
            return None
        return Pace(self.rate, self.on_overload, self.queue_frames)

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """All networks."""
        return self.model if isinstance(self.model, tuple) else (self.model,)
