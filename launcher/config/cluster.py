"""`cluster.yaml` as strict, frozen models: what may be written, its defaults and its meaning.

These models are also where the JSON schema comes from that editors use (`launcher.config.schema`).
Paths are text here, relative to the file; `launcher.config.load` reads the file and finds them.

The members of `nodes` in `cluster.yaml`.

The section `ga` of `cluster.yaml`: parameters of the genetic strategies.

They are those that `ga sweep` tunes, and it can write them there.

A parameter that is left out has its usual value. `budget` is how many states a search may price,
relative to the usual number; the other parameters say how it is spent (`ga.sweep.spaces`).
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from launcher.config.run import RecoveryConfig, RunConfig
from launcher.config.units import StrictModel, parse_bytes, parse_link, parse_speed
from launcher.core.intake import Overload, Pace
from launcher.run.request import MOST_FRAMES, MOST_SEED
from partition.objective import Objective

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What nodes and networks may be called."""

_ADDRESS = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(\d{1,5})")


class NodeConfig(BaseModel):
    """One device. Without an address, `launch` starts its agent on this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(description="Unique; letters, digits, '.', '_' and '-'")]
    address: Annotated[
        str | None, Field(description="Where its node-agent listens: tcp://HOST:PORT")
    ] = None
    memory: Annotated[
        int | None,
        BeforeValidator(
            lambda value: None if value is None else parse_bytes(value),
            json_schema_input_type=int | str | None,
        ),
        Field(description="What its agent may hold at most: 4GB, 512MiB or bytes"),
    ] = None
    threads: Annotated[int, Field(ge=1, le=1024, description="Threads of its engine")] = 1
    macs_per_s: Annotated[
        float | None,
        BeforeValidator(
            lambda value: None if value is None else parse_speed(value),
            json_schema_input_type=float | str | None,
        ),
        Field(description="Speed in multiply-accumulates per second, such as 2e10 or 20G"),
    ] = None
    accelerator: Annotated[
        bool, Field(description="Whether a GPU or NPU computes while the CPU serves the network")
    ] = False
    cache: Annotated[
        int | None,
        BeforeValidator(
            lambda value: None if value is None else parse_bytes(value),
            json_schema_input_type=int | str | None,
        ),
        Field(description="Its accelerator's own memory for weights, such as 8MiB; none: no limit"),
    ] = None
    busy_w: Annotated[float, Field(ge=0, description="Watts while it computes")] = 10.0
    idle_w: Annotated[float, Field(ge=0, description="Watts while it waits")] = 2.5
    link: Annotated[
        float | None,
        BeforeValidator(
            lambda value: None if value is None else parse_link(value),
            json_schema_input_type=str | None,
        ),
        Field(description="Its network interface's rate in each direction: 1Gbit/s"),
    ] = None
    standby: Annotated[
        bool, Field(description="Whether it is used only once another node is lost")
    ] = False
    cpus: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Field(description="CPUs that the agent started here is bound to; none: all"),
    ] = ()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name.startswith("@"):
            raise ValueError(f"{name!r} is taken: names with '@' are the launcher's own")
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name for a node: use 1 to 64 letters, digits, '.', '_' and '-', "
                "a letter or digit first"
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
                f"{address!r} is no address of an agent; write tcp://HOST:PORT, "
                "such as tcp://192.168.1.20:5500"
            )
        return address

    @field_validator("cpus")
    @classmethod
    def _check_cpus(cls, cpus: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if cpus and info.data.get("address") is not None:
            raise ValueError(
                "applies only to a node without an address, whose agent launch starts itself; "
                "give the agent on that machine its CPUs there"
            )
        return cpus


Part = Annotated[float, Field(ge=0, le=1)]


class Tuning(StrictModel):
    """Of one strategy."""

    def given(self) -> dict[str, float]:
        """The parameters that the user has given, without the budget."""
        return self.model_dump(exclude_none=True, exclude={"budget"})


class VerticalTuning(Tuning):
    """Of `vertical`, also where `auto` tries it."""

    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Of NSGA-II's population")
    ] = None
    evolved: Annotated[
        float | None, Field(ge=0, le=0.9, description="Part of all states that NSGA-II prices")
    ] = None
    crossover: Annotated[Part | None, Field(description="Probability of crossover")] = None
    chains: Annotated[int | None, Field(ge=1, description="Annealed side by side")] = None
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature that annealing starts from")
    ] = None
    epoch: Annotated[int | None, Field(ge=1, description="Steps between restarts of chains")] = None
    reliefs: Annotated[
        Part | None, Field(description="Part of the moves that relieve a fullest device")
    ] = None
    budget: Annotated[
        float, Field(ge=0.01, le=100, description="States to price, relative to the usual")
    ] = 1.0


class PaperTuning(Tuning):
    """Of `vertical-paper`."""

    individuals: Annotated[int | None, Field(ge=2, description="Of the population")] = None
    mutation: Annotated[Part | None, Field(description="Probability of a mutation")] = None
    crossover: Annotated[Part | None, Field(description="Probability of crossover")] = None
    tournament: Annotated[int | None, Field(ge=1, description="Rivals for a parent's place")] = None
    seeded: Annotated[
        Part | None, Field(description="Part of the first population assigned by longest time")
    ] = None
    spread: Annotated[
        float | None, Field(ge=0, le=1, description="How far the seeds' sizes are blurred")
    ] = None
    budget: Annotated[
        float, Field(ge=0.01, le=100, description="States to price, relative to the usual")
    ] = 1.0


class GaConfig(StrictModel):
    """Parameters by strategy."""

    model_config = ConfigDict(populate_by_name=True)

    vertical: Annotated[VerticalTuning | None, Field(description="Of vertical")] = None
    vertical_paper: Annotated[
        PaperTuning | None, Field(alias="vertical-paper", description="Of vertical-paper")
    ] = None


RANDOM = "random"
"""The word that `input:` takes instead of files."""


def _short_form(key: str, *types: type) -> BeforeValidator:
    """Lets a plain value stand for a mapping with only `key`."""

    def expand(value: object) -> object:
        return {key: value} if isinstance(value, types) else value

    return BeforeValidator(expand)


def _as_tuple(value: object) -> object:
    return (value,) if isinstance(value, str) else value


PerChannel = tuple[float, ...] | float
"""One number for every channel of an image, or one for each."""

InputShape = tuple[Annotated[int, Field(ge=1)], ...]

ConstantRow = tuple[bool | int | float, ...]
Constant = bool | int | float | ConstantRow | tuple[ConstantRow, ...]
"""What an input of a model may be bound to: a number, a list of numbers, a list of such lists."""


class ModelConfig(StrictModel):
    """The network. A path alone may stand for the whole mapping."""

    path: Annotated[
        str, Field(min_length=1, description="ONNX file, onnx-wheel:NAME or builtin:NAME")
    ]
    input_shape: Annotated[
        InputShape | dict[str, InputShape] | None,
        Field(description="For a model with dynamic axes: its shape, or one per input name"),
    ] = None
    state: Annotated[
        dict[str, str], Field(description="Input to the output that it is in the next frame")
    ] = {}
    fill_seed: Annotated[
        int,
        Field(ge=0, lt=2**32, description="Seed of the weights that a weightless model gets"),
    ] = 0
    outputs: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1, description="Tensors of the file at which the network stops instead"),
    ] = ()
    inputs: Annotated[
        dict[str, Constant],
        Field(description="Input of the file to its value, if that is the same for all frames"),
    ] = {}
    name: Annotated[
        str | None, Field(description="Its name beside other networks; its file's by default")
    ] = None

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str | None) -> str | None:
        if name is not None and not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name for a network: use 1 to 64 letters, digits, '.', '_' and "
                "'-', a letter or digit first"
            )
        return name


def _one_or_several(value: object) -> str:
    return SEVERAL if isinstance(value, tuple) else ONE


ONE, SEVERAL = "one model", "several models"
"""What pydantic calls the two forms of `model:` in its messages' locations."""

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


class InputConfig(StrictModel):
    """What is streamed. A glob, a list of globs or `random` may stand for the whole mapping."""

    files: Annotated[
        tuple[str, ...],
        BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1, description="PNG, JPEG, .npy or .npz files: globs; or 'random'"),
    ]
    scale: Annotated[
        float | None, Field(gt=0, description="What a pixel's largest value becomes; usually 1")
    ] = None
    mean: Annotated[PerChannel | None, Field(description="Taken off after scaling; 0 for none")] = (
        None
    )
    std: Annotated[PerChannel | None, Field(description="Divided by at the end; 1 for none")] = None
    layout: Annotated[
        Literal["nchw", "nhwc"] | None, Field(description="Where the model has its channels")
    ] = None
    resize: Annotated[
        Literal["crop", "pad", "stretch"],
        Field(description="How an image of other proportions is brought to the model's"),
    ] = "crop"
    colors: Annotated[Literal["rgb", "bgr"], Field(description="Order of three channels")] = "rgb"

    @property
    def is_random(self) -> bool:
        """Whether frames are drawn from the seed instead of read from files."""
        return self.files == (RANDOM,)


class ClusterConfig(StrictModel):
    """One network or several, the nodes that they run on, and what is streamed through them."""

    model_config = ConfigDict(title="cluster.yaml")

    model: Annotated[
        Models,
        Field(description="The network that is run, or a list of networks that run side by side"),
    ]
    nodes: Annotated[tuple[NodeConfig, ...], Field(min_length=1, description="The devices")]
    launcher_link: Annotated[
        float | None,
        BeforeValidator(
            lambda value: None if value is None else parse_link(value),
            json_schema_input_type=str | None,
        ),
        Field(description="Rate of launch's own network interface, which all frames pass: 1Gbit/s"),
    ] = None
    strategy: Annotated[
        str, Field(min_length=1, description="How layers are spread over nodes")
    ] = "auto"
    ga: Annotated[
        GaConfig, Field(description="Parameters of the genetic strategies, as ga sweep finds them")
    ] = GaConfig()
    objective: Annotated[
        Objective,
        Field(description="What the strategy makes small first"),
    ] = "period"
    input: Annotated[
        InputConfig, _short_form("files", str, tuple), Field(description="What is streamed")
    ] = InputConfig(files=(RANDOM,))
    inputs: Annotated[
        dict[str, Annotated[InputConfig, _short_form("files", str, tuple)]],
        Field(description="Network to what is streamed through it, for those without it: input"),
    ] = {}
    frames: Annotated[
        int | None,
        Field(ge=1, le=MOST_FRAMES, description="How many to stream; the inputs are repeated"),
    ] = None
    rate: Annotated[
        float | None,
        Field(gt=0, le=1e6, description="Frames per second that the source makes, as a camera"),
    ] = None
    on_overload: Annotated[
        Overload,
        Field(description="With rate: what happens to a frame while queue_frames wait already"),
    ] = "block"
    queue_frames: Annotated[
        int, Field(ge=1, le=1_000_000, description="With rate: how many frames may wait")
    ] = 8
    pins: Annotated[
        dict[str, str], Field(description="Layer, or glob of layers, to the node that must run it")
    ] = {}
    journal: Annotated[
        str | None,
        Field(min_length=1, description="Folder that keeps results and progress, for --resume"),
    ] = None
    labels: Annotated[
        str | None, Field(description="Text file: the name of class 0, of class 1, … per line")
    ] = None
    truth: Annotated[
        str | None, Field(description="Text file: the class of each input, a number per line")
    ] = None
    profile: Annotated[
        str | None,
        Field(description="File of csdf-edge partition profile: measured times for the search"),
    ] = None
    keys: Annotated[
        str | None,
        Field(description="Folder of keys, made by launch --make-keys; keys beside this file"),
    ] = None
    insecure: Annotated[
        bool, Field(description="No keys: whoever reaches the nodes can run networks on them")
    ] = False
    seed: Annotated[
        int, Field(ge=0, le=MOST_SEED, description="Of the search and of random input")
    ] = 0
    slack_frames: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000,
            description="Frames of room in each channel beyond what the period needs",
        ),
    ] = 1
    verify: Annotated[
        bool, Field(description="Whether results are compared with the whole model's")
    ] = True
    tolerance: Annotated[
        float | None,
        Field(
            ge=0,
            description="Largest relative difference from the whole model that agrees; without it "
            "the network's numbers, and how far its own results move, decide",
        ),
    ] = None
    check: Annotated[
        Literal["results", "phases", "none"],
        Field(description="Where NaN and infinity are looked for; phases: they are a node's fault"),
    ] = "results"
    run: Annotated[RunConfig, Field(description="Timeouts and order")] = RunConfig()
    recovery: Annotated[
        RecoveryConfig,
        _short_form("enabled", bool),
        Field(description="How a run goes on without a node that is lost"),
    ] = RecoveryConfig()

    @property
    def pace(self) -> Pace | None:
        """The source's own pace, if it has one."""
        if self.rate is None:
            return None
        return Pace(self.rate, self.on_overload, self.queue_frames)

    @property
    def models(self) -> tuple[ModelConfig, ...]:
        """All networks."""
        return self.model if isinstance(self.model, tuple) else (self.model,)
