"""Computes keys, dtypes, buffer layouts and error messages for the TensorRT executor.

Nothing here imports TensorRT, so tests cover all of it on any machine.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.cuda import Gpu
from nodes.executors.onnx.signature import DeclaredTensor
from nodes.executors.preparing.entries import entry_key
from nodes.protocol.payload import Array

ALIGNMENT_BYTES = 256
"""CUDA aligns its allocations to this, and TensorRT requires it of tensor addresses."""

_FORMAT = 2
"""A number to increase whenever `build` would build another engine from the same facts."""

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


_ELSEWHERE = (
    "pin the layer to a node that runs ONNX Runtime, or use the executor `onnxruntime` on this node"
)


@dataclass(frozen=True, slots=True)
class Binding:
    """A tensor of an engine and its offset in the one block that holds all its tensors."""

    name: str
    spec: TensorSpec
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ParserError:
    """An error of TensorRT's ONNX parser; `layer` and `operator` may be empty."""

    layer: str
    operator: str
    description: str


def engine_key(digest: str, library: str, gpu: Gpu, options: LoadOptions) -> str:
    """Return an engine's cache key, from everything that its content or its validity depends on.

    `digest` is the subnet's SHA-256 in hex, `library` the name and version of TensorRT.
    """
    facts = (_FORMAT, library, gpu, options.fp16, options.workspace_bytes)
    return entry_key("tensorrt", digest, *facts)


def timing_key(library: str, gpu: Gpu) -> str:
    """Return the cache key of the builder's timings, which all subnets share."""
    return f"tensorrt-timing-{sha256(repr((library, gpu)).encode()).hexdigest()}"


def input_name(index: int) -> str:
    """Return the name that an engine has for the model's input with this index."""
    return f"input {index}"


def output_name(index: int) -> str:
    """Return the name that an engine has for the model's output with this index."""
    return f"output {index}"


def check_dtype(subnet: str, library: str, tensor: DeclaredTensor) -> None:
    """Raise ExecutorError if TensorRT lacks the dtype of a model's input or output.

    Its parser would replace float64 by float32, and other agents would receive another dtype than
    the plan has.
    """
    if tensor.dtype and tensor.dtype not in _NUMPY_NAMES.values():
        raise ExecutorError(
            f'subnet {subnet}: "{tensor.name}" is {tensor.dtype}, which {library} cannot take or '
            f"return; {_ELSEWHERE}"
        )


def check_quantisers(subnet: str, library: str, layer: str) -> None:
    """Raise ExecutorError if there is a layer that quantises to uint8.

    TensorRT's parser makes int8 of it, and all values above 127 become 127.
    """
    if layer:
        raise ExecutorError(
            f"subnet {subnet}: {library} cannot build layer {layer!r} (QuantizeLinear): it "
            f"quantises to uint8, and TensorRT only to int8; {_ELSEWHERE}"
        )


def check_operators(subnet: str, library: str, contrib_layer: str) -> None:
    """Raise ExecutorError if the subnet has a layer with an operator that only ONNX Runtime has."""
    if contrib_layer:
        raise ExecutorError(
            f"subnet {subnet}: layer {contrib_layer} is an operator that ONNX Runtime has and "
            f"{library} does not; {_ELSEWHERE}"
        )


def wants_fp16_flag(subnet: str, library: str, options: LoadOptions, *, has_flag: bool) -> bool:
    """Return whether to set `BuilderFlag.FP16`, which not every TensorRT has.

    Raises ExecutorError if `options` request half precision where networks are strongly typed.
    """
    if options.fp16 and not has_flag:
        raise ExecutorError(
            f"subnet {subnet}: {library} takes its precision from the model; convert the model to "
            "float16 and leave its node at `precision: fp32`"
        )
    return options.fp16


def tensor_spec(subnet: str, name: str, data_type: str, shape: Sequence[int]) -> TensorSpec:
    """Return a tensor's spec from TensorRT's name of its data type and its dimensions.

    Raises ExecutorError for a dynamic dimension (TensorRT: -1) or a type that NumPy lacks.
    """
    if any(dimension < 0 for dimension in shape):
        shown = ["?" if dimension < 0 else dimension for dimension in shape]
        raise ExecutorError(
            f'subnet {subnet}: "{name}" has the dynamic shape {shown}; give the model a static '
            f"`input_shape` or, if the shape depends on the frame, {_ELSEWHERE}"
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

    Places do not overlap. Empty tensors also have an address, which no other shares.
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


def parser_failure(subnet: str, library: str, errors: Sequence[ParserError]) -> str:
    """Return the parser's first error as a sentence, with the number of further ones."""
    if not errors:
        return f"subnet {subnet}: {library} cannot read it and does not say why"
    first = errors[0]
    operator = f" ({first.operator})" if first.operator else ""
    what = f"layer {first.layer!r}{operator}" if first.layer else "the model"
    words = reason(first.description)
    because = f": {words}" if words else ""
    more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
    return f"subnet {subnet}: {library} cannot build {what}{because}{more}; {_ELSEWHERE}"


def builder_failure(subnet: str, library: str, text: str) -> str:
    """Return the builder's error as a sentence; it seldom says which layer it means."""
    why = reason(text) or "it does not say why"
    return (
        f"subnet {subnet}: {library} cannot build an engine from it: {why}; raise the workspace "
        "limit or use the executor `onnxruntime` on this node"
    )


_QUOTED = re.compile(r'&& "(.+?)"')
_ERROR_CODE = re.compile(r"^.*?Error Code \d+: ")
_IN_FUNCTION = re.compile(r"\((?:\[[^]]*\] )?(.+?) In \w+(?:\(\))? at /")
_CHECK_FAILED = re.compile(r"^.*CHECK\(.*?\) failed\. ")


def reason(text: str) -> str:
    """Return TensorRT's words for an error without its functions, files and assertions.

    It writes `Assertion failed: CONDITION && "TEXT"`, `Error Code 4: API Usage Error (TEXT In
    FUNCTION at /FILE:LINE)`, or only `false`, of which nothing is left.
    """
    line = _ERROR_CODE.sub("", " ".join(text.split()).removeprefix("Assertion failed: "))
    found = _QUOTED.search(line) or _IN_FUNCTION.search(line)
    words = _CHECK_FAILED.sub("", found[1] if found else line).rstrip(".")
    return "" if words == "false" else words
