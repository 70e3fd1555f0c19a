"""Tensors of the protocol as arrays and back, and what is known of the model that is served."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from launcher.errors import BadInputError, shortened
from launcher.run.live_cluster import TensorInfo
from launcher.serve.errors import Refusal, RequestError
from launcher.serve.statistics import Statistics

Array: TypeAlias = NDArray[Any]
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
    "model_configuration",
    "model_repository",
    "statistics",
)
"""Those of the protocol's extensions that are served."""

JSON_BYTES_PER_NUMBER = 32
"""A number as JSON with its comma and white space, at most."""

MESSAGE_BYTES = 64 * 1024
"""What a request may hold beside its tensors."""

MOST_DIMENSIONS = 64


@dataclass(frozen=True)
class ServedModel:
    """One version of a model that is served; a batch is part of its shapes."""

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    version: str = "1"
    platform: str = "onnx_csdf_edge"
    statistics: Statistics = field(default_factory=Statistics, compare=False)

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

    @property
    def largest_binary_bytes(self) -> int:
        """Bytes that a request with binary tensors may have."""
        return sum(map(size_bytes, self.inputs.values())) + MESSAGE_BYTES

    @property
    def largest_json_bytes(self) -> int:
        """Bytes that a request with tensors as JSON may have."""
        numbers = sum(math.prod(tensor.shape) for tensor in self.inputs.values())
        return numbers * JSON_BYTES_PER_NUMBER + MESSAGE_BYTES


@dataclass(frozen=True)
class ModelRepository:
    """The models of a server; of those that are `unready`, no version serves just now."""

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
    def largest_json_bytes(self) -> int:
        """Bytes that a request with tensors as JSON may have, for any of the models."""
        return max((model.largest_json_bytes for model in self.models), default=0)


def size_bytes(tensor: TensorInfo) -> int:
    """Bytes of its values."""
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def checked_input(
    model: ServedModel, name: str, datatype: str, shape: Collection[int], known: Collection[str]
) -> TensorInfo:
    """Return the input that a request names, if its datatype and shape are those of the model.

    `known` are the inputs that came before. Raises `RequestError` naming the input.
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
    if tuple(shape) != tensor.shape:
        shown = list(shape) if len(shape) <= MOST_DIMENSIONS else f"of {len(shape)} dimensions"
        raise RequestError(
            f"input {name!r} has the shape {shown}; the model takes {list(tensor.shape)}"
        )
    return tensor


def check_complete(model: ServedModel, given: Collection[str]) -> None:
    """Raise `RequestError` naming the first input that is missing."""
    for name in model.inputs:
        if name not in given:
            raise RequestError(f"input {name!r} is missing")


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

    Raises `RequestError` for another count, and for numbers that the dtype does not hold.
    """
    name, dtype = tensor.name, np.dtype(tensor.dtype)
    try:
        # NumPy makes floats of whole numbers of which some are beyond int64.
        array = np.asarray(data, object if dtype == np.uint64 else None)
    except (ValueError, TypeError, OverflowError):
        raise RequestError(f"the data of input {name!r} is no array of numbers") from None
    if array.shape not in (tensor.shape, (math.prod(tensor.shape),)):
        raise RequestError(
            f"the data of input {name!r} has the shape {list(array.shape)}; "
            f"the model takes {list(tensor.shape)}, or as many numbers in one list"
        )
    kinds = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]
    fits = array.dtype.kind in kinds or (
        dtype == np.uint64 and all(type(number) is int for number in array.flat)
    )
    if not fits:
        raise RequestError(f"the data of input {name!r} is not all {DATATYPES[tensor.dtype]}")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise RequestError(
                f"input {name!r} holds numbers beyond {limits.min} and {limits.max}, "
                f"the limits of {DATATYPES[tensor.dtype]}"
            )
    with np.errstate(over="ignore"):
        return array.astype(dtype).reshape(tensor.shape)


def to_bytes(array: Array) -> bytes:
    """Return an array's values as little-endian bytes in C order."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
