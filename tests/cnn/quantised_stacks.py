"""Random networks in QDQ form with exact arithmetic, for properties that every cut must have.

All scales are powers of two and all sums are small, so floats represent every result exactly.
However an engine sums, fuses or cuts, each number is the same to the last bit. Some tensors are
quantised and some stay floats; several readers share a `DequantizeLinear` or have one each; kernels
have one scale or one per channel; outputs are 8-bit numbers, floats, or tensors that are also
quantised.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 13
STEP = 2.0**-4


class _Stack:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.generator = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.readable: dict[str, tuple[int, int, int]] = {}
        """Tensors that are back in floats → their channels, rows and columns."""
        self.quantised: dict[str, tuple[str, str, str]] = {}
        """Dequantised tensor → the quantised one, its scale and its zero point."""

    def constant(self, values: Any, dtype: type) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def node(self, operator: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> str:
        number = len(self.nodes)
        made = [f"t{number}" + (f".{x}" if x else "") for x in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, made, f"n{number}", **attributes))
        return made[0]

    def is_likely(self, probability: float) -> bool:
        return self.dice.random() < probability

    def quantise(self, source: str, shape: tuple[int, int, int]) -> str:
        """A tensor in 8 bits, and back; returns the name of what readers read."""
        dtype = self.dice.choice([np.uint8, np.int8])
        zero = self.dice.choice([0, 0, 7, 100 if dtype is np.uint8 else -128])
        parameters = [self.constant(STEP, np.float32), self.constant(zero, dtype)]
        made = self.node("QuantizeLinear", [source, *parameters])
        name = self.node("DequantizeLinear", [made, *parameters])
        self.readable[name] = shape
        self.quantised[name] = (made, *parameters)
        return name

    def read(self, name: str) -> str:
        """A tensor as a reader gets it: sometimes by a `DequantizeLinear` of its own."""
        if name in self.quantised and self.is_likely(0.4):
            return self.node("DequantizeLinear", list(self.quantised[name]))
        return name

    def kernel(self, *shape: int, axis: int = 0) -> str:
        values = self.constant(self.generator.integers(-15, 16, shape), np.int8)
        if self.is_likely(0.5):
            scales = 2.0 ** -self.generator.integers(4, 6, shape[axis])
            parameters = [self.constant(scales, np.float32)]
            parameters.append(self.constant(np.zeros(shape[axis]), np.int8))
            return self.node("DequantizeLinear", [values, *parameters], axis=axis)
        parameters = [self.constant(STEP / 2, np.float32), self.constant(0, np.int8)]
        return self.node("DequantizeLinear", [values, *parameters])

    def bias(self, count: int) -> str:
        values = self.constant(self.generator.integers(-99, 99, count), np.int32)
        return self.node("DequantizeLinear", [values, self.constant(STEP**2 / 2, np.float32)])

    def convolve(self, name: str) -> tuple[str, tuple[int, int, int]]:
        channels, rows, columns = self.readable[name]
        groups = self.dice.choice([1, 1, channels, 2 if channels % 2 == 0 else 1])
        filters = groups * self.dice.randint(1, 3) if groups > 1 else self.dice.randint(2, 6)
        size = self.dice.choice([1, 3])
        kernel = self.kernel(filters, channels // groups, size, size)
        stride = self.dice.choice([1, 1, 2]) if min(rows, columns) > 3 else 1
        inputs = [self.read(name), kernel]
        if self.is_likely(0.5):
            inputs.append(self.bias(filters))
        made = self.node("Conv", inputs, group=groups, strides=[stride] * 2, pads=[size // 2] * 4)
        return made, (filters, -(-rows // stride), -(-columns // stride))

    def pool(self, name: str) -> tuple[str, tuple[int, int, int]]:
        channels, rows, columns = self.readable[name]
        if min(rows, columns) < 4:
            return self.node("Relu", [self.read(name)]), self.readable[name]
        made = self.node("MaxPool", [self.read(name)], kernel_shape=[2, 2], strides=[2, 2])
        return made, (channels, rows // 2, columns // 2)

    def join(self, name: str) -> tuple[str, tuple[int, int, int]]:
        channels, rows, columns = self.readable[name]
        others = [x for x, shape in self.readable.items() if shape[1:] == (rows, columns)]
        other = self.dice.choice(others)
        if self.readable[other] == self.readable[name] and self.is_likely(0.7):
            operator = self.dice.choice(["Add", "Mul", "Sub"])
            return self.node(operator, [self.read(name), self.read(other)]), self.readable[name]
        made = self.node("Concat", [self.read(name), self.read(other)], axis=1)
        return made, (channels + self.readable[other][0], rows, columns)

    def enlarge(self, name: str) -> tuple[str, tuple[int, int, int]]:
        channels, rows, columns = self.readable[name]
        if rows > 8:
            return self.pool(name)
        scales = self.constant([1, 1, 2, 2], np.float32)
        made = self.node(
            "Resize", [self.read(name), "", scales], mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )  # fmt: skip
        return made, (channels, 2 * rows, 2 * columns)

    def split(self, name: str) -> tuple[str, tuple[int, int, int]]:
        channels, rows, columns = self.readable[name]
        if channels % 2:
            return self.convolve(name)
        made = self.node("Split", [self.read(name)], outputs=2, axis=1)
        half = (channels // 2, rows, columns)
        self.quantise(f"{made}.1", half)
        return made, half

    def step(self) -> None:
        name = self.dice.choice(list(self.readable)[-3:])
        make = self.dice.choice(
            [
                *(self.convolve, self.convolve, self.convolve, self.pool, self.join, self.join),
                *(self.enlarge, self.split),
            ]
        )
        made, shape = make(name)
        if self.is_likely(0.4):
            if self.is_likely(0.7):
                made = self.node("Relu", [made])
            else:
                bounds = [self.constant(x, np.float32) for x in (0, 6)]
                made = self.node("Clip", [made, *bounds])
        self.quantise(made, shape)

    def model(self) -> onnx.ModelProto:
        read = {name for node in self.nodes for name in node.input}
        made: set[str] = set()
        for node in self.nodes:
            if "x" in node.input or not made.isdisjoint(node.input):
                made.update(node.output)
        ends = sorted(made - read)
        if self.is_likely(0.3):  # one that others read too
            ends.append(self.dice.choice(sorted((made & read) - set(ends))))
        if self.is_likely(0.3):
            found = [x for x in self.nodes if x.op_type == "QuantizeLinear"]
            ends.append(found[-1].output[0])
        outputs = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(ends)]
        shape = (1, 3, 8, 8)
        graph = helper.make_graph(
            self.nodes,
            "stack",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
            outputs,
            self.weights,
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
        return onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)


def quantised_stack(seed: int, steps: int = 6) -> onnx.ModelProto:
    """Draw a network of about so many quantised layers."""
    stack = _Stack(seed)
    stack.quantise("x", (3, 8, 8))
    for _ in range(steps):
        stack.step()
    if stack.is_likely(0.5):
        name = list(stack.readable)[-1]
        channels, rows, columns = stack.readable[name]
        count = channels * rows * columns
        if count <= 256:
            flat = stack.node("Flatten", [stack.read(name)])
            kernel = stack.kernel(5, count)
            made = stack.node("Gemm", [flat, kernel, stack.bias(5)], transB=1)
            parameters = [stack.constant(1.0, np.float32), stack.constant(0, np.int8)]
            stack.node("QuantizeLinear", [made, *parameters])
    return stack.model()
