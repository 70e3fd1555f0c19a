"""Tensors of the protocol as arrays and back, and what is known of the model that is served."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from launcher.errors import BadInputError, shortened
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.statistics import Statistics
from launcher.streaming.live_model import TensorInfo
from nodes.protocol.payload import Array

Buffer: TypeAlias = bytes | memoryview

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""NumPy's name of a dtype → the protocol's."""

EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "statistics",
)
"""The extensions of the protocol that are served."""

JSON_BYTES_PER_NUMBER = 32
"""A number as JSON with its comma and white space, at most."""

BYTES_PER_VARINT = 10
"""A whole number in protobuf, at most; FP32, FP64 and BOOL are as long as in memory."""

MESSAGE_BYTES = 64 * 1024
"""The bytes of a request without its tensors."""

FEW = 10_000
"""The most fields, texts or objects of a request: of anything but numbers."""

MOST_DIMENSIONS = 64

MOST_FRAMES = 64
"""The most frames of a request."""

SEVERAL_BYTES = 20 << 20
"""Bytes that the tensors of a request with several frames may have: four images of 640 × 640 in
FP32. A single frame may have more."""


@dataclass(frozen=True)
class ServedModel:
    """One version of a model that is served; the shapes are those of one frame."""

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    version: str = "1"
    platform: str = "onnx_csdf_edge"
    statistics: Statistics = field(default_factory=Statistics, compare=False)
    labels: tuple[str, ...] = ()
    """The names of the classes, as far as they are known."""

    def __post_init__(self) -> None:
        """Raises `BadInputError` for a dtype that the protocol does not have."""
        for tensor in (*self.inputs.values(), *self.outputs.values()):
            if tensor.dtype not in DATATYPES:
                raise BadInputError(
                    f"tensor {tensor.name!r} is {tensor.dtype}, which cannot be served; "
                    f"these can: {', '.join(DATATYPES)}"
                )

    def check_version(self, version: str) -> None:
        """Raise `RequestError` if a request names another version of the model."""
        if version not in ("", self.version):
            raise RequestError(
                f"model {self.name!r} has no version {shortened(version)!r}; "
                f"version {self.version} is served",
                Refusal.NOT_FOUND,
            )

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of the inputs of one frame."""
        return sum(map(size_bytes, self.inputs.values()))

    @cached_property
    def most_frames(self) -> int:
        """The most frames of a request: 1 unless all inputs and outputs begin with an axis of 1,
        along which frames can be put together."""
        tensors = (*self.inputs.values(), *self.outputs.values())
        if not all(tensor.shape[:1] == (1,) and not tensor.varies for tensor in tensors):
            return 1
        return max(1, min(MOST_FRAMES, SEVERAL_BYTES // max(1, self.frame_bytes)))

    @cached_property
    def numbers(self) -> int:
        """Numbers that a request has at most."""
        one = sum(math.prod(tensor.shape) for tensor in self.inputs.values())
        return one * self.most_frames

    @cached_property
    def lists(self) -> int:
        """Lists that a request in JSON has at most, if they are nested as the shapes are."""
        shapes = (tensor.shape for tensor in self.inputs.values())
        one = sum(math.prod(shape[:depth]) for shape in shapes for depth in range(len(shape)))
        return one * self.most_frames

    @cached_property
    def largest_frame_bytes(self) -> int:
        """Bytes that a request of one frame with binary tensors may have."""
        return self.frame_bytes + MESSAGE_BYTES

    @cached_property
    def largest_binary_bytes(self) -> int:
        """Bytes that a request with binary tensors may have."""
        return self.frame_bytes * self.most_frames + MESSAGE_BYTES

    @cached_property
    def largest_message_bytes(self) -> int:
        """Bytes that a gRPC message may have, with its tensors as bytes or as numbers."""
        one = sum(
            size_bytes(tensor) if np.dtype(tensor.dtype).kind in "fb"
            else math.prod(tensor.shape) * BYTES_PER_VARINT
            for tensor in self.inputs.values()
        )  # fmt: skip
        return MESSAGE_BYTES + self._several(one)

    @cached_property
    def largest_json_bytes(self) -> int:
        """Bytes that a request with tensors as JSON may have."""
        one = sum(math.prod(tensor.shape) for tensor in self.inputs.values())
        return MESSAGE_BYTES + self._several(one * JSON_BYTES_PER_NUMBER)

    def _several(self, frame_bytes: int) -> int:
        """Bytes of the frames of a request, each of `frame_bytes` in some form."""
        return max(frame_bytes, min(frame_bytes * self.most_frames, SEVERAL_BYTES))


@dataclass(frozen=True)
class ModelRepository:
    """The models of a server; no version of those that are `unready` serves just now."""

    models: tuple[ServedModel, ...]
    unready: frozenset[str] = frozenset()

    def find(self, name: str, version: str = "") -> ServedModel:
        """Return the model that a request names. Raises `RequestError` if there is none."""
        for model in self.models:
            if model.name == name:
                model.check_version(version)
                return model
        if name in self.unready:
            raise RequestError(f"no version of {name!r} serves now", Refusal.UNAVAILABLE)
        served = ", ".join(repr(model.name) for model in self.models) or "nothing"
        raise RequestError(
            f"there is no model {shortened(name)!r}; {served} is served", Refusal.NOT_FOUND
        )

    @property
    def largest_frame_bytes(self) -> int:
        """Bytes that an HTTP request of one frame may have, for any of the models."""
        return max((model.largest_frame_bytes for model in self.models), default=0)

    @property
    def largest_message_bytes(self) -> int:
        """Bytes that a gRPC message may have, for any of the models."""
        return max((model.largest_message_bytes for model in self.models), default=MESSAGE_BYTES)


def size_bytes(tensor: TensorInfo) -> int:
    """Bytes of its values."""
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def checked_input(
    model: ServedModel, name: str, datatype: str, shape: Collection[int], known: Collection[str]
) -> TensorInfo:
    """Return the input that a request names, with the shape given, if the model takes it.

    The first axis of that shape counts the frames, if a request may have several. `known` are the
    earlier inputs of the request. Raises `RequestError` naming the input.
    """
    tensor = model.inputs.get(name)
    if tensor is None:
        raise RequestError(
            f"model {model.name!r} has no input {shortened(name)!r}; "
            f"its inputs are {', '.join(model.inputs)}"
        )
    if name in known:
        raise RequestError(f"input {name!r} is given twice")
    wanted = DATATYPES[tensor.dtype]
    if datatype != wanted:
        raise RequestError(f"input {name!r} is {shortened(datatype)!r}; the model takes {wanted}")
    given = tuple(shape)
    if given == tensor.shape:
        return tensor
    most = model.most_frames
    if most > 1 and len(given) == len(tensor.shape) and given[1:] == tensor.shape[1:]:
        if 1 <= given[0] <= most:
            return replace(tensor, shape=given)
        raise RequestError(f"input {name!r} has {given[0]} frames; a request has 1 to {most}")
    shown = list(given) if len(given) <= MOST_DIMENSIONS else f"of {len(given)} dimensions"
    raise RequestError(
        f"input {name!r} has the shape {shown}; the model takes {list(tensor.shape)}"
    )


def frames_of(model: ServedModel, given: Mapping[str, Array]) -> int:
    """Return the number of frames of a request with these inputs.

    Raises `RequestError` naming the first input that is missing, or that has another number of
    frames than the first.
    """
    for name in model.inputs:
        if name not in given:
            raise RequestError(f"input {name!r} is missing")
    if model.most_frames == 1:
        return 1
    counts = {name: len(array) for name, array in given.items()}
    first = next(iter(counts), "")
    for name, count in counts.items():
        if count != counts[first]:
            raise RequestError(
                f"input {first!r} has {counts[first]} frames, but input {name!r} has {count}"
            )
    return counts[first] if counts else 1


def check_output(model: ServedModel, name: str) -> str:
    """Return the name of an output that a request names; raise `RequestError` if there is none."""
    if name not in model.outputs:
        raise RequestError(
            f"model {model.name!r} has no output {shortened(name)!r}; "
            f"its outputs are {', '.join(model.outputs)}"
        )
    return name


def from_bytes(tensor: TensorInfo, data: Buffer) -> Array:
    """Return the array of little-endian values in `data`, which is not copied.

    Raises `RequestError` if there are more or fewer than the shape has.
    """
    wanted = size_bytes(tensor)
    if len(data) != wanted:
        raise RequestError(
            f"input {tensor.name!r} has {len(data)} bytes; {DATATYPES[tensor.dtype]}"
            f"{list(tensor.shape)} has {wanted}"
        )
    array = np.frombuffer(data, np.dtype(tensor.dtype).newbyteorder("<")).reshape(tensor.shape)
    if tensor.dtype == "bool" and (array.view(np.uint8) > 1).any():
        raise RequestError(f"input {tensor.name!r} has bytes other than 0 and 1")
    return array.astype(tensor.dtype, copy=False)


def from_numbers(tensor: TensorInfo, data: object) -> Array:
    """Return the array of numbers in `data`: a flat list, or lists nested as the shape is.

    Numbers are counted, and their types compared, before NumPy makes an array of them, because it
    would pad every text to the longest. Raises `RequestError` for another count or nesting, for
    what is not a number, and for numbers that the dtype does not hold.
    """
    dtype = np.dtype(tensor.dtype)
    numbers = _flat(tensor, data)
    kinds: dict[str, set[type]] = {"b": {bool}, "f": {int, float}}
    if not set(map(type, numbers)) <= kinds.get(dtype.kind, {int}):
        raise RequestError(
            f"the data of input {tensor.name!r} is not all {DATATYPES[tensor.dtype]}"
        )
    if dtype.kind in "iu" and numbers:
        limits = np.iinfo(dtype)
        if min(numbers) < limits.min or max(numbers) > limits.max:
            raise RequestError(
                f"input {tensor.name!r} holds numbers beyond {limits.min} and {limits.max}, "
                f"the limits of {DATATYPES[tensor.dtype]}"
            )
    try:
        array = np.array(numbers, float if dtype.kind == "f" else dtype)
    except OverflowError:
        raise RequestError(
            f"input {tensor.name!r} holds a number beyond the limits of FP64"
        ) from None
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False).reshape(tensor.shape)


def _flat(tensor: TensorInfo, data: object) -> list[Any]:
    """Return as many values as the tensor has. Raises `RequestError` for another nesting."""
    count = math.prod(tensor.shape)
    if type(data) is list and len(data) == count and not (data and type(data[0]) is list):
        return data
    values: list[Any] = [data]
    for size in tensor.shape:
        if not all(type(one) is list and len(one) == size for one in values):
            raise RequestError(
                f"the data of input {tensor.name!r} is not of the shape {list(tensor.shape)}, "
                f"which the model takes, and not {count} numbers in one list"
            )
        values = list(chain.from_iterable(values))
    return values


def to_bytes(array: Array) -> bytes:
    """Return an array's values as little-endian bytes in C order."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
