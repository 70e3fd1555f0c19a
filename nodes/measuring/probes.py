"""The tiny networks by which a board is measured, as ONNX files written without the `onnx` package.

Each takes about a millisecond on a board that computes 10⁹ multiply-accumulates per second, and has
layers of the sizes that convolutional networks have. The times of the kinds of layers follow from
the differences between the networks' times (`nodes.measuring.derivation`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nodes.executors.onnx.writing import model_of, node, value_info
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.protocol.payload import Array

SIDE = 28
"""Rows and columns of all images."""

DENSE, POINTWISE, DEPTHWISE, ADDED = 64, 128, 128, 256
"""Channels in the networks of each kind of layer."""

MATRIX = (1024, 1000)
"""The matrix that a single row is multiplied with."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A network with one input and one output; `content` is its file in ONNX's format."""

    name: str
    content: bytes


def probes() -> tuple[Probe, ...]:
    """Return all networks, in the order in which they run."""
    return (
        Probe("run", _network((1, 4), (_Layer("Relu"),))),
        Probe("dense", _convolutions(DENSE, 3, 2)),
        Probe("pointwise", _convolutions(POINTWISE, 1, 2)),
        Probe("depthwise", _convolutions(DEPTHWISE, 3, 1, groups=DEPTHWISE)),
        Probe("depthwise4", _convolutions(DEPTHWISE, 3, 4, groups=DEPTHWISE)),
        Probe("integer", _integers(DENSE)),
        Probe("matrix", _product(*MATRIX)),
        Probe("added", _sums(ADDED, 4)),
    )


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer, which reads the tensor before it and then its weights."""

    operator: str
    weights: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    attributes: Mapping[str, int | Sequence[int]] = dataclasses.field(default_factory=dict)


def _convolutions(channels: int, kernel: int, layers: int, groups: int = 1) -> bytes:
    shape = (channels, channels // groups, kernel, kernel)
    attributes: Mapping[str, int | Sequence[int]] = {
        "kernel_shape": (kernel, kernel),
        "pads": (kernel // 2,) * 4,
        "group": groups,
    }
    chain = []
    for number in range(layers):
        weights = synthetic_input("float32", shape) - np.float32(0.5)
        bias = synthetic_input("float32", (channels,))
        chain += [_Layer("Conv", {f"w{number}": weights, f"b{number}": bias}, attributes)]
        chain += [_Layer("Relu")]
    return _network((1, channels, SIDE, SIDE), chain)


def _integers(channels: int) -> bytes:
    """Return a convolution of 8-bit integers, in the form in which scales are inputs."""
    levels = synthetic_input("float32", (channels, channels, 3, 3)) - np.float32(0.5)
    weights: dict[str, Array] = {
        "s": np.array(0.02, np.float32),
        "z": np.array(128, np.uint8),
        "w": (levels * 200).astype(np.int8),
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        "ys": np.array(0.02, np.float32),
        "yz": np.array(128, np.uint8),
    }
    layer = _Layer("QLinearConv", weights, {"kernel_shape": (3, 3), "pads": (1,) * 4})
    return _network((1, channels, SIDE, SIDE), (layer,), dtype="uint8")


def _product(rows: int, columns: int) -> bytes:
    weights = {
        "w": synthetic_input("float32", (rows, columns)) - np.float32(0.5),
        "b": synthetic_input("float32", (columns,)),
    }
    return _network((1, rows), (_Layer("Gemm", weights),), (1, columns))


def _sums(channels: int, layers: int) -> bytes:
    shape = (1, channels, SIDE, SIDE)
    return _network(shape, (_Layer("Add", {"a": synthetic_input("float32", shape)}),) * layers)


def _network(
    shape: Sequence[int],
    layers: Sequence[_Layer],
    made: Sequence[int] | None = None,
    dtype: str = "float32",
) -> bytes:
    """Return a chain of layers from `x` to `y` in ONNX's format; `made` is the shape of `y`."""
    tensors = ["x", *(f"t{number}" for number in range(1, len(layers))), "y"]
    nodes = [
        node(each.operator, (tensors[number], *each.weights), (after,), each.attributes, after)
        for number, (each, after) in enumerate(zip(layers, tensors[1:], strict=True))
    ]
    weights = {name: array for each in layers for name, array in each.weights.items()}
    taken, given = value_info("x", dtype, shape), value_info("y", dtype, made or shape)
    return model_of("probe", nodes, taken, given, weights)
