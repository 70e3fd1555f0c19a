"""Random networks whose every layer can be computed in bands of rows, for what must hold of bands.

`image_stacks()` draws an ONNX model with one image as input: windows of all kinds (strides 1 to 3,
kernels 1 to 7, dilations, uneven and automatic padding, ceiling mode), joins of earlier tensors,
element-wise layers, constants that are broadcast or have their own rows, changes of resolution.
Values are shifted below zero now and then, so that padding with zero and with −∞ differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.networks import Draw

OPSET = 13


class Stack:
    """A model in the making; shapes come from ONNX's own inference."""

    def __init__(self, shape: tuple[int, ...], seed: int, opset: int = OPSET) -> None:
        self.generator = np.random.default_rng(seed)
        self.opset = opset
        self.inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)]
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 1.0, shift: float = 0.0) -> str:
        values = self.generator.standard_normal(shape) * scale + shift
        return self.constant(values.astype(np.float32))

    def constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str | None:
        """Add a node if what it makes has rows, not too many; returns the tensor's name."""
        made = f"t{len(self.nodes)}"
        node = helper.make_node(operator, inputs, [made], f"n{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        graph = helper.make_graph(self.nodes, "stack", self.inputs, [], self.weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
        found = {
            value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            for value in inferred.graph.value_info
        }
        if made not in found or min(found[made]) < 1 or max(found[made]) > 64:
            self.nodes.pop()
            return None
        self.shapes[made] = found[made]
        return made

    def model(self) -> onnx.ModelProto:
        last = self.nodes[-1].output[0]
        outputs = [helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, self.shapes[last])]
        graph = helper.make_graph(self.nodes, "stack", self.inputs, outputs, self.weights)
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def _automatic(stack: Stack, draw: Draw, source: str, kernel: list[int], strides: list[int]) -> str:
    """A kind of automatic padding, "" for none or where engines would compute a negative one."""
    sizes = stack.shapes[source][2:]
    if any(s > k or k > size for k, s, size in zip(kernel, strides, sizes, strict=True)):
        return ""
    return str(draw(st.sampled_from(["", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"])))


def _convolution(stack: Stack, draw: Draw, source: str) -> None:
    channels = stack.shapes[source][1]
    kernel = [draw(st.integers(1, 7)), draw(st.integers(1, 3))]
    strides = [draw(st.integers(1, 3)), 1]
    attributes: dict[str, Any] = {"strides": strides}
    automatic = _automatic(stack, draw, source, kernel, strides)
    if automatic:
        attributes["auto_pad"] = automatic
    else:
        pads = attributes["pads"] = [draw(st.integers(0, 4)) for _ in range(4)]
        room = stack.shapes[source][2] + pads[0] + pads[2] - 1
        most = min(room // (kernel[0] - 1), 3) if kernel[0] > 1 else 3
        if most == 0 or kernel[1] > stack.shapes[source][3] + pads[1] + pads[3]:
            return
        attributes["dilations"] = [draw(st.integers(1, most)), 1]
    group = draw(st.sampled_from([1, channels]))
    filters = group * draw(st.integers(1, 2))
    weight = stack.weight(filters, channels // group, *kernel)
    inputs = [source, weight, *([stack.weight(filters)] if draw(st.booleans()) else [])]
    stack.add("Conv", inputs, group=group, **attributes)


def _pool(stack: Stack, draw: Draw, source: str) -> None:
    operator = draw(st.sampled_from(["MaxPool", "AveragePool"]))
    kernel = [draw(st.integers(1, 4)), draw(st.integers(1, 2))]
    strides = [draw(st.integers(1, 3)), draw(st.integers(1, 2))]
    attributes: dict[str, Any] = {"strides": strides}
    automatic = _automatic(stack, draw, source, kernel, strides)
    if automatic:
        attributes["auto_pad"] = automatic
    else:
        # Engines refuse a pooling that pads by a whole window.
        attributes["pads"] = [draw(st.integers(0, size - 1)) for size in kernel * 2]
        attributes["ceil_mode"] = int(
            draw(st.booleans())
            and _last_starts_inside(stack.shapes[source][2:], kernel, strides, attributes["pads"])
        )
        if operator == "MaxPool":
            dilation = draw(st.integers(1, 2))
            rows, pads = stack.shapes[source][2], attributes["pads"]
            if _every_window_meets_a_row(rows, kernel[0], strides[0], dilation, pads[0]):
                attributes["dilations"] = [dilation, 1]
    if operator == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    shift = stack.constant(np.float32(-3))
    below_zero = stack.add("Add", [source, shift])
    assert below_zero is not None
    stack.add(operator, [below_zero], kernel_shape=kernel, **attributes)


def _every_window_meets_a_row(
    rows: int, extent: int, stride: int, dilation: int, before: int
) -> bool:
    """Whether no window lies in the padding with all its rows, of which dilation leaves some out:
    its maximum would be −∞."""
    starts = range(-before, rows, stride)
    return all(any(start + k * dilation in range(rows) for k in range(extent)) for start in starts)


def _last_starts_inside(
    sizes: tuple[int, ...], kernel: list[int], strides: list[int], pads: list[int]
) -> bool:
    """Whether rounding up adds no window that lies in the padding: there ONNX and engines differ.

    Dilations make windows larger, which only helps.
    """
    axes = zip(sizes, kernel, strides, pads, pads[2:], strict=False)
    return all(
        -(-(size + before + after - extent) // stride) * stride < size + before
        for size, extent, stride, before, after in axes
    )


def _transposed(stack: Stack, draw: Draw, source: str) -> None:
    channels = stack.shapes[source][1]
    stride = draw(st.integers(1, 3))
    kernel = draw(st.integers(1, 5))
    dilation = draw(st.integers(1, 2))
    cut = [draw(st.integers(0, min(2, kernel - 1))) for _ in range(2)]
    stack.add(
        "ConvTranspose",
        [source, stack.weight(channels, 2, kernel, 1)],
        strides=[stride, 1],
        dilations=[dilation, 1],
        pads=[cut[0], 0, cut[1], 0],
        output_padding=[draw(st.integers(0, stride - 1)), 0],
    )


def _join(stack: Stack, draw: Draw, source: str) -> None:
    shape = stack.shapes[source]
    operator = draw(st.sampled_from(["Add", "Sub", "Max", "Concat"]))
    if operator == "Concat":
        fitting = [x for x, s in stack.shapes.items() if s[2:] == shape[2:]]
        stack.add("Concat", [draw(st.sampled_from(fitting)), source], axis=1)
    else:
        fitting = [x for x, s in stack.shapes.items() if s == shape]
        stack.add(operator, [source, draw(st.sampled_from(fitting))])


def _elementwise(stack: Stack, draw: Draw, source: str) -> None:
    channels = stack.shapes[source][1]
    match draw(st.sampled_from(["Relu", "Sigmoid", "LRN", "PRelu", "Softmax", "Norm"])):
        case "LRN":
            stack.add("LRN", [source], size=3)
        case "PRelu":
            stack.add("PRelu", [source, stack.weight(channels, 1, 1)])
        case "Softmax":
            stack.add("Softmax", [source], axis=draw(st.sampled_from([1, -1])))
        case "Norm":
            parts = [stack.weight(channels, shift=1.0) for _ in range(3)]
            variance = stack.constant(np.ones(channels, np.float32))
            stack.add("BatchNormalization", [source, *parts, variance])
        case operator:
            stack.add(operator, [source])


def _constant(stack: Stack, draw: Draw, source: str) -> None:
    """A constant of any shape that is broadcast: per channel, per row, per place."""
    shape = [draw(st.sampled_from([1, size])) for size in stack.shapes[source]]
    shape = shape[draw(st.integers(0, 3)) :]
    stack.add(draw(st.sampled_from(["Add", "Mul"])), [source, stack.weight(*shape)])


def _resolution(stack: Stack, draw: Draw, source: str) -> None:
    match draw(st.sampled_from(["scales", "sizes", "to depth", "from depth", "pad"])):
        case "scales":
            scales = np.array([1, 1, draw(st.integers(1, 3)), 2], np.float32)
            stack.add("Resize", [source, "", stack.constant(scales)], mode="nearest")
        case "sizes":
            factors = np.array([1, 1, draw(st.integers(1, 3)), 1], np.int64)
            sizes = stack.constant(factors * stack.shapes[source])
            stack.add(
                "Resize",
                [source, "", "", sizes],
                mode="nearest",
                nearest_mode="floor",
                coordinate_transformation_mode="asymmetric",
            )
        case "to depth":
            if stack.shapes[source][2] % 2 == stack.shapes[source][3] % 2 == 0:
                stack.add("SpaceToDepth", [source], blocksize=2)
        case "from depth":
            if stack.shapes[source][1] % 4 == 0:
                stack.add("DepthToSpace", [source], blocksize=2)
        case _:
            pads = [0, 0, draw(st.integers(0, 4)), 1, 0, 0, draw(st.integers(0, 4)), 0]
            value = stack.constant(np.float32(0.5))
            stack.add("Pad", [source, stack.constant(np.array(pads)), value])


_STEPS = (
    *(_convolution, _convolution, _convolution, _pool, _pool, _transposed),
    *(_join, _join, _elementwise, _constant, _resolution),
)


@st.composite
def image_stacks(draw: Draw, max_steps: int = 8) -> onnx.ModelProto:
    """A model of one to about `max_steps` layers (some steps make none, some make two)."""
    shape = (1, draw(st.integers(1, 3)), draw(st.integers(4, 24)), draw(st.integers(4, 6)))
    stack = Stack(shape, draw(st.integers(0, 2**32 - 1)))
    _elementwise(stack, draw, "x")
    for _ in range(draw(st.integers(1, max_steps))):
        names = list(stack.shapes)
        source = names[-1] if draw(st.integers(0, 3)) else draw(st.sampled_from(names))
        draw(st.sampled_from(_STEPS))(stack, draw, source)
    return stack.model()
