"""Fuse convolutions with batch norms, constants and padding, and products with biases.

For a batch norm of scale γ, bias β, mean μ and variance σ² after a convolution with kernel W and
bias b, each output channel is

    γ (W∗x + b − μ) / √(σ² + ε) + β = (s W)∗x + s (b − μ) + β,   s = γ / √(σ² + ε).

Some exporters write the batch norm as a difference, a product and a sum with a constant for each
channel. New weights are computed in double precision and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from cnn.network import Array
from cnn.operators.attributes import attribute, change_attributes, has_input, integer, integers
from cnn.operators.standard import PADS_AS_INPUT_SINCE
from cnn.simplify.graph import OperatorGraph, attribute_or_input


@dataclass(frozen=True, slots=True)
class Pads:
    """The elements that a `Pad` adds before and after each axis, and their constant value."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    mode: str
    value: float


def pads_of(graph: OperatorGraph, node: onnx.NodeProto) -> Pads | None:
    """Return the pads of a `Pad` in any operator set, None if they are unknown."""
    shape = graph.shape(node.input[0])
    pads = attribute_or_input(graph, node, 1, "pads", PADS_AS_INPUT_SINCE)
    axes = attribute_or_input(graph, node, 3, "", 18)
    if shape is None or pads is None or axes is None:
        return None
    rank = len(shape)
    if graph.opset < PADS_AS_INPUT_SINCE:
        value = attribute(node, "value", 0.0)
    elif has_input(node, 2):
        constant = graph.constant(node, 2)
        if constant is None:
            return None
        value = float(np.asarray(constant).reshape(-1)[0])
    else:
        value = 0.0
    begins, ends = [0] * rank, [0] * rank
    affected = [axis % rank for axis in axes] or list(range(rank))
    for number, axis in enumerate(affected):
        begins[axis], ends[axis] = pads[number], pads[len(affected) + number]
    mode = attribute(node, "mode", b"constant")
    assert isinstance(mode, bytes)  # noqa: S101 - ONNX knows no other
    assert isinstance(value, float)  # noqa: S101
    return Pads(tuple(begins), tuple(ends), mode.decode(), value)


_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_AFFINE = frozenset({"Add", "Sub", "Mul", "Div"})
_FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16})
_DEFAULT_EPSILON = 1e-5


def fuse_kernels(graph: OperatorGraph) -> bool:
    """Fuse each such pair of operators; return whether there was any."""
    producers, readers = graph.producers(), graph.readers()
    is_changed = False
    for node in graph.nodes:
        if node.op_type == "Conv":
            is_changed |= _fuse_zeros(graph, producers.get(node.input[0]), node)
        for name in tuple(node.input):
            first = producers.get(name)
            alone = name not in graph.outputs and len(readers.get(name, [])) == 1
            if first is None or not alone:
                continue
            if node.op_type == "BatchNormalization" and name == node.input[0]:
                is_changed |= _fuse_norm(graph, first, node)
            elif node.op_type == "Add" and first.op_type == "MatMul":
                is_changed |= _fuse_product(graph, first, node)
            elif node.op_type in _AFFINE:
                is_changed |= _fuse_affine(graph, first, node, name)
    if is_changed:
        graph.remove_unread()
    return is_changed


def _fuse_norm(graph: OperatorGraph, first: onnx.NodeProto, norm: onnx.NodeProto) -> bool:
    """Turn `norm` into the convolution before it, with other weights."""
    if first.op_type not in _CONVOLUTIONS or any(norm.output[1:]):
        return False
    if integer(norm, "training_mode", 0) or integer(norm, "spatial", 1) != 1:
        return False
    kernel, bias = graph.constant(first, 1), _bias(graph, first)
    parameters = [graph.constant(norm, index) for index in range(1, 5)]
    if kernel is None or bias is None or any(x is None for x in parameters):
        return False
    gamma, beta, mean, variance = (np.asarray(x, np.float64) for x in parameters)
    epsilon = attribute(norm, "epsilon", _DEFAULT_EPSILON)
    assert isinstance(epsilon, float)  # noqa: S101 - ONNX knows no other
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + epsilon)
        shifted = (bias - mean) * scale + beta
    return _scale(graph, norm, first, scale, shifted)


def _fuse_affine(
    graph: OperatorGraph, first: onnx.NodeProto, node: onnx.NodeProto, name: str
) -> bool:
    """Turn `node`, arithmetic with a constant per channel, into the convolution before it."""
    number = 1 if node.input[0] == name else 0
    constant = graph.constant(node, number)
    kernel = graph.constant(first, 1)
    if first.op_type not in _CONVOLUTIONS or constant is None or kernel is None:
        return False
    if graph.element_type(node.output[0]) not in _FLOATS:
        return False
    if number == 0 and node.op_type in ("Sub", "Div"):
        return False
    bias, channels = _bias(graph, first), _channels(first, kernel)
    shape = (1,) * (kernel.ndim - constant.ndim) + constant.shape
    if bias is None or shape != (1, channels, *(1,) * (kernel.ndim - 2)):
        return False
    values = constant.reshape(-1).astype(np.float64)
    if node.op_type in ("Add", "Sub"):
        shifted = bias + values if node.op_type == "Add" else bias - values
        _become(graph, node, first, [None, shifted.astype(kernel.dtype)])
        return True
    with np.errstate(all="ignore"):
        scale = values if node.op_type == "Mul" else 1 / values
        scaled = bias * scale
    return _scale(graph, node, first, scale, scaled)


def _scale(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    kernel: onnx.NodeProto,
    scale: NDArray[np.float64],
    bias: NDArray[np.float64],
) -> bool:
    """Turn `node` into the convolution `kernel` with channels scaled by `scale`, and this bias.

    Returns False, and changes nothing, if a weight would not be finite.
    """
    weights = graph.constant(kernel, 1)
    assert weights is not None  # noqa: S101 - the caller has looked
    with np.errstate(all="ignore"):
        scaled = np.asarray(weights, np.float64) * _over_channels(kernel, weights, scale)
        fused = [scaled.astype(weights.dtype), bias.astype(weights.dtype)]
    if not all(np.isfinite(array).all() for array in fused):
        return False
    _become(graph, node, kernel, fused)
    return True


def _fuse_product(graph: OperatorGraph, product: onnx.NodeProto, add: onnx.NodeProto) -> bool:
    """Turn a matrix product and the bias after it, which keeps the shape, into a `Gemm`."""
    summand = graph.constant(add, 1 if add.input[0] == product.output[0] else 0)
    if summand is None or graph.element_type(add.output[0]) not in _FLOATS:
        return False
    rows = graph.shape(product.input[0])
    right = graph.constant(product, 1)
    if rows is None or len(rows) != 2 or right is None or right.ndim != 2:
        return False
    if product.input[0] in graph.constants or summand.ndim > 2:
        return False
    if not graph.has_same_type(product.output[0], add.output[0]):
        return False
    bias = next(name for name in add.input if name != product.output[0])
    add.op_type, add.name = "Gemm", product.name or product.output[0]
    add.input[:] = [*product.input, bias]
    del add.attribute[:]
    return True


def _fuse_zeros(graph: OperatorGraph, pad: onnx.NodeProto | None, node: onnx.NodeProto) -> bool:
    """Let a convolution that reads zero padding pad its input itself."""
    if pad is None or pad.op_type != "Pad" or attribute(node, "auto_pad") not in (
        None, b"NOTSET", b"VALID"
    ):  # fmt: skip
        return False
    found = pads_of(graph, pad)
    if found is None or found.value != 0 or found.mode != "constant":
        return False
    begins, ends = found.begins, found.ends
    if min(*begins, *ends) < 0 or any((*begins[:2], *ends[:2])):
        return False
    own = integers(node, "pads", [0] * (2 * len(begins) - 4))
    if attribute(node, "auto_pad") == b"VALID":
        own = [0] * len(own)
    pads = [x + y for x, y in zip(own, (*begins[2:], *ends[2:]), strict=True)]
    change_attributes(node, {"auto_pad": None, "pads": pads})
    node.input[0] = pad.input[0]
    return True


def _become(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    kernel: onnx.NodeProto,
    weights: Sequence[Array | None],
) -> None:
    """Turn `node` into a copy of `kernel` with its own output; None keeps a weight."""
    names = [
        graph.add_constant(f"{node.output[0]}_{what}", array)
        if array is not None
        else kernel.input[index]
        for index, (what, array) in enumerate(zip(("weight", "bias"), weights, strict=True), 1)
    ]
    output = node.output[0]
    node.CopyFrom(kernel)
    node.name = kernel.name or kernel.output[0]
    node.input[:] = [kernel.input[0], *names]
    node.output[:] = [output]


def _bias(graph: OperatorGraph, kernel: onnx.NodeProto) -> NDArray[np.float64] | None:
    """Return a convolution's bias, zeros if it has none; None if it is not constant."""
    weight = graph.constant(kernel, 1)
    if weight is None or kernel.input[0] in graph.constants:
        return None
    if not has_input(kernel, 2):
        return np.zeros(_channels(kernel, weight))
    bias = graph.constant(kernel, 2)
    return None if bias is None else np.asarray(bias, np.float64)


def _channels(node: onnx.NodeProto, kernel: Array) -> int:
    """Return the number of output channels of a convolution."""
    if node.op_type == "Conv":
        return int(kernel.shape[0])
    return int(kernel.shape[1]) * integer(node, "group", 1)


def _over_channels(
    node: onnx.NodeProto, kernel: Array, scale: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `scale`, one value per output channel, in a shape that broadcasts against the kernel.

    A transposed convolution's kernel is [C_in, C_out / groups, taps …], with its groups one after
    another along the first axis.
    """
    taps = (1,) * (kernel.ndim - 2)
    if node.op_type == "Conv":
        return scale.reshape(-1, 1, *taps)
    group = integer(node, "group", 1)
    per_group = np.repeat(scale.reshape(group, -1), kernel.shape[0] // group, axis=0)
    return per_group.reshape(*per_group.shape, *taps)
