"""The tiny networks by which a board is measured, as ONNX files written without the `onnx` package.

Each takes about a millisecond on a board that computes 10⁹ multiply-accumulates per second, and has
layers of the sizes that convolutional networks have. The times of the kinds of layers follow from
the differences between the networks' times (`nodes.measuring.derivation`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nodes.executors.onnx.protobuf import field, integer_field
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.protocol.payload import Array

SIDE = 28
"""Rows and columns of all images."""

DENSE, POINTWISE, DEPTHWISE, ADDED = 64, 128, 128, 256
"""Channels in the networks of each kind of layer."""

MATRIX = (1024, 1000)
"""The matrix that a single row is multiplied with."""

_OPSET, _FORMAT = 13, 7
_FLOAT, _UINT8, _INT8, _INT32 = 1, 2, 3, 6
_DTYPES = {_FLOAT: "float32", _UINT8: "uint8", _INT8: "int8", _INT32: "int32"}
_INTEGERS, _INTEGER = 7, 2
"""The kinds of attributes that are used: several integers, and one."""


_Constants: TypeAlias = Mapping[str, tuple[int, Array]]
_Attributes: TypeAlias = Mapping[str, "int | Sequence[int]"]


@dataclass(frozen=True, slots=True)
class Probe:
    """A network with one input and one output; `content` is its file in ONNX's format."""

    name: str
    content: bytes


def probes() -> tuple[Probe, ...]:
    """Return all networks, in the order in which they run."""
    return (
        Probe("run", _network((1, 4), _FLOAT, (_Node("Relu"),))),
        Probe("dense", _convolutions(DENSE, 3, 2)),
        Probe("pointwise", _convolutions(POINTWISE, 1, 2)),
        Probe("depthwise", _convolutions(DEPTHWISE, 3, 1, groups=DEPTHWISE)),
        Probe("depthwise4", _convolutions(DEPTHWISE, 3, 4, groups=DEPTHWISE)),
        Probe("integer", _integers(DENSE)),
        Probe("matrix", _product(*MATRIX)),
        Probe("added", _sums(ADDED, 4)),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A layer: its operator, constants by name, and attributes.

    It reads the tensor before it; the names of `before` precede the other constants.
    """

    operator: str
    constants: _Constants = dataclasses.field(default_factory=dict)
    attributes: _Attributes = dataclasses.field(default_factory=dict)


def _convolutions(channels: int, kernel: int, layers: int, groups: int = 1) -> bytes:
    shape = (channels, channels // groups, kernel, kernel)
    attributes: _Attributes = {
        "kernel_shape": (kernel, kernel),
        "pads": (kernel // 2,) * 4,
        "group": groups,
    }
    nodes = []
    for number in range(layers):
        weights = synthetic_input("float32", shape) - np.float32(0.5)
        bias = synthetic_input("float32", (channels,))
        constants: _Constants = {f"w{number}": (_FLOAT, weights), f"b{number}": (_FLOAT, bias)}
        nodes += [_Node("Conv", constants, attributes), _Node("Relu")]
    return _network((1, channels, SIDE, SIDE), _FLOAT, nodes)


def _integers(channels: int) -> bytes:
    """Return a convolution of 8-bit integers, in the form in which scales are inputs."""
    levels = synthetic_input("float32", (channels, channels, 3, 3)) - np.float32(0.5)
    constants: _Constants = {
        "s": (_FLOAT, np.array(0.02, np.float32)),
        "z": (_UINT8, np.array(128, np.uint8)),
        "w": (_INT8, (levels * 200).astype(np.int8)),
        "ws": (_FLOAT, np.array(0.01, np.float32)),
        "wz": (_INT8, np.array(0, np.int8)),
        "ys": (_FLOAT, np.array(0.02, np.float32)),
        "yz": (_UINT8, np.array(128, np.uint8)),
    }
    node = _Node("QLinearConv", constants, {"kernel_shape": (3, 3), "pads": (1,) * 4})
    return _network((1, channels, SIDE, SIDE), _UINT8, (node,))


def _product(rows: int, columns: int) -> bytes:
    constants: _Constants = {
        "w": (_FLOAT, synthetic_input("float32", (rows, columns)) - np.float32(0.5)),
        "b": (_FLOAT, synthetic_input("float32", (columns,))),
    }
    return _network((1, rows), _FLOAT, (_Node("Gemm", constants),), (1, columns))


def _sums(channels: int, layers: int) -> bytes:
    shape = (1, channels, SIDE, SIDE)
    given: _Constants = {"a": (_FLOAT, synthetic_input("float32", shape))}
    return _network(shape, _FLOAT, (_Node("Add", given),) * layers)


def _network(
    shape: Sequence[int], dtype: int, nodes: Sequence[_Node], made: Sequence[int] | None = None
) -> bytes:
    """Return a chain of layers from `x` to `y` in ONNX's format; `made` is the shape of `y`."""
    graph = b""
    constants: dict[str, tuple[int, Array]] = {}
    for number, node in enumerate(nodes):
        read = f"t{number}" if number else "x"
        written = "y" if number == len(nodes) - 1 else f"t{number + 1}"
        constants |= node.constants
        graph += field(1, _node(node, (read, *node.constants), written))
    graph += field(2, b"probe")
    for name, (kind, array) in constants.items():
        graph += field(5, _tensor(name, kind, array))
    graph += field(11, _value("x", dtype, shape)) + field(12, _value("y", dtype, made or shape))
    opset = integer_field(2, _OPSET)
    return integer_field(1, _FORMAT) + field(7, graph) + field(8, opset)


def _node(node: _Node, inputs: Sequence[str], output: str) -> bytes:
    message = b"".join(field(1, name.encode()) for name in inputs) + field(2, output.encode())
    message += field(3, output.encode()) + field(4, node.operator.encode())
    for name, value in node.attributes.items():
        content = field(1, name.encode())
        if isinstance(value, int):
            content += integer_field(3, value) + integer_field(20, _INTEGER)
        else:
            content += b"".join(integer_field(8, each) for each in value)
            content += integer_field(20, _INTEGERS)
        message += field(5, content)
    return message


def _tensor(name: str, kind: int, array: Array) -> bytes:
    dims = b"".join(integer_field(1, axis) for axis in array.shape)
    raw = array.astype(_DTYPES[kind], copy=False).tobytes()
    return dims + integer_field(2, kind) + field(8, name.encode()) + field(9, raw)


def _value(name: str, kind: int, shape: Sequence[int]) -> bytes:
    dims = b"".join(field(1, integer_field(1, axis)) for axis in shape)
    tensor = integer_field(1, kind) + field(2, dims)
    return field(1, name.encode()) + field(2, field(1, tensor))
