"""Computes keys, dtypes, buffer layouts and error messages for the TensorRT executor.

Nothing here imports TensorRT, so tests cover all of it on any machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from nodes.executors.base import Array, ExecutorError, LoadOptions, TensorSpec
from nodes.executors.cuda import Gpu

ALIGNMENT_BYTES = 256
"""CUDA aligns its allocations to this, and TensorRT requires it of tensor addresses."""

_FORMAT = 1
"""A number to increase whenever `build` would build another engine from the same facts."""

_LAST_WITH_FP16_FLAG = 10

# `trt.DataType`'s members by name; the others have no equivalent in NumPy.
_NUMPY_NAMES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}


@dataclass(frozen=True, slots=True)
class Binding:
    """A tensor of an engine and its offset in the one block that holds all its tensors."""

    name: str
    spec: TensorSpec
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ParserError:
    """An error of TensorRT's ONNX parser; `node` and `operator` may be empty."""

    node: str
    operator: str
    description: str


def engine_key(digest: str, version: str, gpu: Gpu, options: LoadOptions) -> str:
    """Return an engine's cache key, from everything that its content or its validity depends on.

    `digest` is the subnet's SHA-256 in hex.
    """
    facts = (_FORMAT, version, gpu, options.fp16, options.workspace_bytes)
    return f"tensorrt-{digest}-{sha256(repr(facts).encode()).hexdigest()[:16]}"


def timing_key(version: str, gpu: Gpu) -> str:
    """Return the cache key of the builder's timings, which all subnets share."""
    return f"tensorrt-timing-{sha256(repr((version, gpu)).encode()).hexdigest()}"


def check_operators(subnet: str, version: str, contrib_layer: str) -> None:
    """Raise ExecutorError if the subnet has a layer with an operator of ONNX Runtime's own."""
    if contrib_layer:
        raise ExecutorError(
            f"subnet {subnet}: layer {contrib_layer} is an operator of ONNX Runtime's own, which "
            f"TensorRT {version} does not have; pin the layer to a node that runs ONNX Runtime, or "
            "use the executor `onnxruntime` on this node"
        )


def wants_fp16_flag(subnet: str, version: str, options: LoadOptions) -> bool:
    """Return whether to set `BuilderFlag.FP16`.

    Up to TensorRT 10 the builder chooses precisions, float32 unless allowed otherwise; from 11 on
    networks are strongly typed: the model's own types decide, and the flag does not exist. Raises
    ExecutorError if `options` request half precision from the latter.
    """
    if options.fp16 and int(version.partition(".")[0]) > _LAST_WITH_FP16_FLAG:
        raise ExecutorError(
            f"subnet {subnet}: TensorRT {version} takes its precision from the model; convert the "
            "model to float16 and leave `fp16` off"
        )
    return options.fp16


def tensor_spec(subnet: str, name: str, data_type: str, shape: Sequence[int]) -> TensorSpec:
    """Return a tensor's spec from TensorRT's name of its data type and its dimensions.

    Raises ExecutorError for a dynamic dimension (TensorRT: -1) or a type that NumPy lacks.
    """
    if any(dimension < 0 for dimension in shape):
        shown = ["?" if dimension < 0 else dimension for dimension in shape]
        raise ExecutorError(
            f'subnet {subnet}: "{name}" has the dynamic shape {shown}; '
            "give the model a static `input_shape`"
        )
    dtype = _NUMPY_NAMES.get(data_type)
    if dtype is None:
        raise ExecutorError(
            f'subnet {subnet}: "{name}" is of TensorRT\'s type {data_type}, which cannot be sent; '
            "convert the model's tensors to float, integer or bool"
        )
    return TensorSpec(dtype, tuple(shape))


def lay_out(tensors: Mapping[str, TensorSpec]) -> tuple[tuple[Binding, ...], int]:
    """Return an aligned place for every tensor in one block, and the block's size in bytes.

    Places do not overlap. Empty tensors have an address of their own, too.
    """
    bindings = []
    offset = 0
    for name, spec in tensors.items():
        bindings.append(Binding(name, spec, offset))
        taken = max(spec.size_bytes, 1)
        offset += -(-taken // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return tuple(bindings), max(offset, ALIGNMENT_BYTES)


def view(block: int, binding: Binding) -> Array:
    """Return a tensor's place in the block of host memory at address `block`, as an array.

    The array shares the memory and does not keep it alive.
    """
    size = max(binding.spec.size_bytes, 1)
    place = (ctypes.c_byte * size).from_address(block + binding.offset_bytes)
    flat = np.frombuffer(memoryview(place), np.uint8)[: binding.spec.size_bytes]
    array: Array = flat.view(binding.spec.dtype).reshape(binding.spec.shape)
    return array


def parser_failure(subnet: str, version: str, errors: Sequence[ParserError]) -> str:
    """Return the parser's first error as a sentence, with the number of further ones."""
    if not errors:
        return f"subnet {subnet}: TensorRT {version} cannot read it and does not say why"
    first = errors[0]
    operator = f"operator {first.operator}" if first.operator else "the model"
    node = f' (node "{first.node}")' if first.node else ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return (
        f"subnet {subnet}: TensorRT {version} cannot take {operator}{node}: "
        f"{' '.join(first.description.split()).rstrip('.')}{more}; "
        "use the executor `onnxruntime` on this node, or a newer TensorRT"
    )
