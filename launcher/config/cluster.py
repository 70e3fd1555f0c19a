"""`cluster.yaml` as strict, frozen models: what may be written, its defaults and its meaning.

These models are also where the JSON schema comes from that editors use (`launcher.config.schema`).
Paths are text here, relative to the file; `launcher.config.load` reads the file and finds them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from launcher.config.genetic import GaConfig
from launcher.config.nodes import NAME, NodeConfig
from launcher.config.run import RecoveryConfig, RunConfig
from launcher.config.units import parse_link
from launcher.core.intake import Overload, Pace
from launcher.run.request import MOST_FRAMES, MOST_SEED
from launcher.strict_model import StrictModel
from partition.objective import Objective

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
