"""Small random CNNs, for whatever must hold for every network.

`small_models()` draws an ONNX model of a few layers: convolutions of all kinds, batch norms,
rectifiers, poolings, additions, concatenations, splits, shape shuffling, a classifier; one or two
inputs, branches that part and meet, tensors with several readers, several outputs (an interior
tensor among them now and then), shared weights, nodes without names, operator sets from 7 on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

OPSETS = (7, 9, 11, 13, 17, 21)


@dataclass
class Sketch:
    """A model in the making: float tensors of shape [1, C, H, W], by name."""

    opset: int
    generator: np.random.Generator
    named: bool
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def weight(self, shape: tuple[int, ...], scale: float = 1.0, shift: float = 0.0) -> str:
        name = f"w{len(self.weights)}"
        values = self.generator.standard_normal(shape) * scale + shift
        self.weights[name] = values.astype(np.float32)
        return name

    def constant(self, values: list[int]) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array(values, np.int64)
        return name

    def add(
        self,
        operator: str,
        inputs: list[str],
        *shapes: tuple[int, ...],
        **attributes: Any,
    ) -> list[str]:
        made = [f"t{len(self.nodes)}" + "abc"[i] for i in range(len(shapes))]
        name = f"n{len(self.nodes)}" if self.named else ""
        self.nodes.append(helper.make_node(operator, inputs, made, name, **attributes))
        self.tensors.update(zip(made, shapes, strict=True))
        return made

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "small",
            [_value(name, shape) for name, shape in self.inputs.items()],
            [_value(name, self.tensors[name]) for name in outputs],
            [numpy_helper.from_array(values, name) for name, values in self.weights.items()],
        )
        opset = helper.make_opsetid("", self.opset)
        return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def _value(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


Draw = Callable[[st.SearchStrategy[Any]], Any]


def _convolution(sketch: Sketch, draw: Draw, source: str) -> None:
    _, channels, height, width = sketch.tensors[source]
    group = draw(st.sampled_from([g for g in (1, 2, channels) if channels % g == 0]))
    filters = group * draw(st.integers(1, 4))
    size = draw(st.sampled_from([1, 3]))
    stride = draw(st.sampled_from([1, 2])) if min(height, width) > 1 else 1
    kernel = (filters, channels // group, size, size)
    inputs = [source, sketch.weight(kernel, (2 / np.prod(kernel[1:])) ** 0.5)]
    if draw(st.booleans()):
        inputs.append(sketch.weight((filters,), 0.1))
    shape = (1, filters, -(-height // stride), -(-width // stride))
    (made,) = sketch.add(
        "Conv",
        inputs,
        shape,
        kernel_shape=[size, size],
        pads=[size // 2] * 4,
        strides=[stride, stride],
        group=group,
    )
    if draw(st.booleans()):
        _norm(sketch, draw, made)


def _transposed(sketch: Sketch, draw: Draw, source: str) -> None:
    _, channels, height, width = sketch.tensors[source]
    if height * width > 64:
        return
    filters = draw(st.integers(1, 4))
    weight = sketch.weight((channels, filters, 2, 2), channels**-0.5)
    shape = (1, filters, height * 2, width * 2)
    sketch.add("ConvTranspose", [source, weight], shape, kernel_shape=[2, 2], strides=[2, 2])


def _norm(sketch: Sketch, draw: Draw, source: str) -> None:
    shape = sketch.tensors[source]
    channels = (shape[1],)
    parameters = [
        sketch.weight(channels, 0.1, 1.0),
        sketch.weight(channels, 0.1),
        sketch.weight(channels, 0.1),
    ]
    variance = sketch.weight(channels, 0.1, 1.0)
    sketch.weights[variance] = np.abs(sketch.weights[variance]) + np.float32(0.1)
    sketch.add("BatchNormalization", [source, *parameters, variance], shape)


def _elementwise(sketch: Sketch, draw: Draw, source: str) -> None:
    operator = draw(st.sampled_from(["Relu", "LeakyRelu", "Sigmoid", "Identity", "Dropout"]))
    sketch.add(operator, [source], sketch.tensors[source])


def _pool(sketch: Sketch, draw: Draw, source: str) -> None:
    _, channels, height, width = sketch.tensors[source]
    operator = draw(st.sampled_from(["MaxPool", "AveragePool", "GlobalAveragePool"]))
    if operator == "GlobalAveragePool":
        sketch.add(operator, [source], (1, channels, 1, 1))
    elif min(height, width) >= 2:
        shape = (1, channels, (height - 2) // 2 + 1, (width - 2) // 2 + 1)
        sketch.add(operator, [source], shape, kernel_shape=[2, 2], strides=[2, 2])


def _join(sketch: Sketch, draw: Draw, source: str) -> None:
    """An addition, a product or a concatenation with another tensor (or with itself)."""
    shape = sketch.tensors[source]
    operator = draw(st.sampled_from(["Add", "Sum", "Mul", "Concat"]))
    if operator == "Concat":
        fitting = [x for x, s in sketch.tensors.items() if s[2:] == shape[2:]]
        other = draw(st.sampled_from(fitting))
        channels = shape[1] + sketch.tensors[other][1]
        if channels <= 16:
            sketch.add(operator, [source, other], (1, channels, *shape[2:]), axis=1)
        return
    fitting = [x for x, s in sketch.tensors.items() if s == shape]
    sketch.add(operator, [source, draw(st.sampled_from(fitting))], shape)


def _shift(sketch: Sketch, draw: Draw, source: str) -> None:
    """A factor or a shift per channel."""
    shape = sketch.tensors[source]
    operator = draw(st.sampled_from(["Add", "Mul"]))
    weight = sketch.weight((shape[1], 1, 1), 0.1, 1.0 if operator == "Mul" else 0.0)
    sketch.add(operator, [source, weight], shape)


def _shuffle(sketch: Sketch, draw: Draw, source: str) -> None:
    """Channel shuffle: split the channel axis, swap, join again."""
    shape = sketch.tensors[source]
    if shape[1] % 2:
        return
    split = (1, 2, shape[1] // 2, *shape[2:])
    swapped = (1, split[2], 2, *shape[2:])
    (first,) = sketch.add("Reshape", [source, sketch.constant(list(split))], split)
    (second,) = sketch.add("Transpose", [first], swapped, perm=[0, 2, 1, 3, 4])
    sketch.add("Reshape", [second, sketch.constant(list(shape))], shape)
    del sketch.tensors[first], sketch.tensors[second]  # five axes, which nothing else expects


def _split(sketch: Sketch, draw: Draw, source: str) -> None:
    """Two halves of the channels: an operator with two outputs."""
    shape = sketch.tensors[source]
    if shape[1] % 2:
        return
    half = (1, shape[1] // 2, *shape[2:])
    if sketch.opset < 13:
        sketch.add("Split", [source], half, half, axis=1, split=[half[1], half[1]])
    else:
        sketch.add("Split", [source, sketch.constant([half[1]] * 2)], half, half, axis=1)


def _reuse(sketch: Sketch, draw: Draw, source: str) -> None:
    """The kernel of an earlier convolution again, where it fits."""
    shape = sketch.tensors[source]
    for node in sketch.nodes:
        if node.op_type == "Conv" and len(node.input) == 2:
            kernel = sketch.weights[node.input[1]]
            if kernel.shape[1] == shape[1] and kernel.shape[2] == 1:
                made = (1, kernel.shape[0], *shape[2:])
                sketch.add("Conv", [source, node.input[1]], made, kernel_shape=[1, 1])
                return


_STEPS = (
    _convolution,
    _convolution,
    _convolution,
    _transposed,
    _norm,
    _elementwise,
    _elementwise,
    _pool,
    _join,
    _join,
    _shift,
    _shuffle,
    _split,
    _reuse,
)


@st.composite
def small_models(draw: Draw, max_steps: int = 12) -> onnx.ModelProto:
    """A valid model of up to about `max_steps` layers (some steps make none, some make three)."""
    sketch = Sketch(
        draw(st.sampled_from(OPSETS)),
        np.random.default_rng(draw(st.integers(0, 2**32 - 1))),
        draw(st.booleans()),
    )
    for index in range(draw(st.integers(1, 2))):
        shape = (1, draw(st.integers(1, 4)), draw(st.integers(4, 9)), draw(st.integers(4, 9)))
        sketch.inputs[f"x{index}"] = shape
        sketch.tensors[f"x{index}"] = shape
        _convolution(sketch, draw, f"x{index}")
    for _ in range(draw(st.integers(1, max_steps))):
        source = draw(st.sampled_from(list(sketch.tensors)))
        draw(st.sampled_from(_STEPS))(sketch, draw, source)
    if draw(st.booleans()):
        _classifier(sketch, draw)
    return sketch.model(_outputs(sketch, draw))


def _classifier(sketch: Sketch, draw: Draw) -> None:
    source = draw(st.sampled_from([x for x in sketch.tensors if x not in sketch.inputs]))
    inner = int(np.prod(sketch.tensors[source]))
    (flat,) = sketch.add("Flatten", [source], (1, inner))
    inputs = [flat, sketch.weight((inner, 10), inner**-0.5), sketch.weight((10,), 0.1)]
    (scores,) = sketch.add("Gemm", inputs, (1, 10))
    sketch.add("Softmax", [scores], (1, 10), axis=1)


def _outputs(sketch: Sketch, draw: Draw) -> list[str]:
    read = {name for node in sketch.nodes for name in node.input}
    made = [name for name in sketch.tensors if name not in sketch.inputs]
    outputs = [name for name in made if name not in read]
    if draw(st.integers(0, 3)) == 0:
        interior = draw(st.sampled_from(made))
        outputs += [interior] if interior not in outputs else []
    return outputs or made[-1:]


def save(model: onnx.ModelProto, directory: Path) -> Path:
    """Write a drawn model, after checking that it is valid; returns its path."""
    onnx.checker.check_model(model, full_check=True)
    path = directory / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
