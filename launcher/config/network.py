"""Declares the sections `model` and `input` of `cluster.yaml`: networks, and their frames."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from launcher.config.ends.kinds import SourceValue
from launcher.config.ends.looks import is_source
from launcher.config.strict import StrictModel, name_of, short_form

RANDOM = "random"
"""The word that `input:` may have instead of files."""


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
        Field(
            description="Per input with state: the output that becomes this input in the next frame"
        ),
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
        Annotated[str, name_of("a network's name")] | None,
        Field(description="Name of the network among others; by default that of its file"),
    ] = None
    version: Annotated[
        int, Field(ge=1, description="Number of this version of the network, for clients of serve")
    ] = 1


def _one_or_several(value: object) -> str:
    return SEVERAL if isinstance(value, tuple) else ONE


ONE, SEVERAL = "one model", "several models"
"""Tags of the two forms of `model:`, which pydantic puts into the location of an error."""

_Model = Annotated[ModelConfig, short_form("path", str, schema=str | ModelConfig)]

Models = Annotated[
    Annotated[_Model, Tag(ONE)]
    | Annotated[
        tuple[_Model, ...],
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
            description="How an image is fitted to the model's height and width; usually crop, "
            "and letterbox for a task that finds positions in it"
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


Input = Annotated[
    InputConfig,
    BeforeValidator(
        _input_form,
        json_schema_input_type=str | Annotated[tuple[str, ...], Field(min_length=1)] | InputConfig,
    ),
]
"""The value of `input:`."""
