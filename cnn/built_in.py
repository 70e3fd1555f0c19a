"""Build two networks in ONNX: YOLOv2, and a probe that measures links.

**YOLOv2** for COCO at 416 × 416 (Redmon and Farhadi, "YOLO9000: Better, Faster, Stronger", 2017)
follows the authors' `yolov2.cfg` layer by layer: 23 convolutions, all but the last followed by a
batch norm and a leaky rectifier, five maximum poolings, and a passthrough that rearranges the 26 ×
26 features of the 13th convolution to 13 × 13 and concatenates them. The passthrough is ONNX's
`SpaceToDepth`; Darknet orders the channels differently, so Darknet's trained weights would have to
be permuted. The network has no weights (see `cnn.reading.fill`).

**The wire probe** carries tensors of any size between layers. Each branch expands one value to a
row (`growN`) and reduces the row to one value (`shrinkN`): almost no computation, almost no data in
or out, and in between a tensor as large as wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 13
IR_VERSION = 8


SIZE = 416
CLASSES = 80
ANCHORS = 5


_SLOPE = 0.1

_POOL = (0, 0)
_BACKBONE = (
    *((32, 3), _POOL, (64, 3), _POOL),
    *((128, 3), (64, 1), (128, 3), _POOL),
    *((256, 3), (128, 1), (256, 3), _POOL),
    *((512, 3), (256, 1), (512, 3), (256, 1), (512, 3)),
)
_DEEP = (_POOL, (1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3), (1024, 3), (1024, 3))
"""(output channels, kernel size) of each convolution; `_POOL` stands for a 2 × 2 pooling."""


def write_wire_probe(path: Path, values: int, branches: int = 1) -> Path:
    """Write the wire probe as ONNX, with a tensor float32 [1, `values`] in each branch.

    The inputs are `x0`, `x1`, … and the outputs `y0`, `y1`, …, all [1, 1]; `values` is at least 2.
    Branches share no input, so that simplification does not merge them.
    """
    nodes = []
    for number in range(branches):
        row = f"row{number}"
        nodes.append(helper.make_node("Expand", [f"x{number}", "shape"], [row], f"grow{number}"))
        nodes.append(
            helper.make_node("ReduceMax", [row], [f"y{number}"], f"shrink{number}", axes=[1])
        )
    one = [1, 1]
    graph = helper.make_graph(
        nodes,
        "wire probe",
        [
            helper.make_tensor_value_info(f"x{number}", onnx.TensorProto.FLOAT, one)
            for number in range(branches)
        ],
        [
            helper.make_tensor_value_info(f"y{number}", onnx.TensorProto.FLOAT, one)
            for number in range(branches)
        ],
        [numpy_helper.from_array(np.array([1, values], np.int64), "shape")],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
    onnx.save(model, str(path))
    return path


def build() -> onnx.ModelProto:
    """Build YOLOv2 without weights: float32 [1, 3, 416, 416] → [1, 425, 13, 13]."""
    net = _Builder()
    shallow = net.row("image", 3, _BACKBONE)
    deep = net.row(shallow, 512, _DEEP)
    net.convolution(shallow, 512, 64, 1)
    passed = net.node("SpaceToDepth", [net.last], "reorg", blocksize=2)
    joined = net.node("Concat", [passed, deep], "concat", axis=1)
    wide = net.convolution(joined, 256 + 1024, 1024, 3)
    filters = ANCHORS * (5 + CLASSES)
    net.convolution(wide, 1024, filters, 1, linear_output="boxes")
    grid = SIZE // 32
    graph = helper.make_graph(
        net.nodes,
        "yolov2",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, [1, filters, grid, grid])],
        net.shapes,
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


class _Builder:
    """The nodes and weight shapes of a network under construction; `last` is the newest tensor."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: list[onnx.TensorProto] = []
        self.last = ""
        self._convolutions = 0
        self._pools = 0

    def row(self, source: str, channels: int, parts: Sequence[tuple[int, int]]) -> str:
        """Append convolutions and poolings one after another; return the last tensor."""
        for filters, size in parts:
            if (filters, size) == _POOL:
                self._pools += 1
                name = f"pool{self._pools}"
                source = self.node("MaxPool", [source], name, kernel_shape=[2, 2], strides=[2, 2])
            else:
                source = self.convolution(source, channels, filters, size)
                channels = filters
        return source

    def convolution(
        self, source: str, channels: int, filters: int, size: int, linear_output: str | None = None
    ) -> str:
        """Append a convolution: with batch norm and leaky rectifier, or with only a bias."""
        self._convolutions += 1
        name = f"conv{self._convolutions}"
        kernel = self._weight(f"{name}.weight", (filters, channels, size, size))
        shape: dict[str, Any] = {"kernel_shape": [size, size], "pads": [size // 2] * 4}
        if linear_output is not None:
            bias = self._weight(f"{name}.bias", (filters,))
            return self.node("Conv", [source, kernel, bias], name, linear_output, **shape)
        made = self.node("Conv", [source, kernel], name, **shape)
        parameters = ("scale", "bias", "mean", "variance")
        norm = [self._weight(f"{name}.norm.{parameter}", (filters,)) for parameter in parameters]
        made = self.node("BatchNormalization", [made, *norm], f"{name}.norm")
        return self.node("LeakyRelu", [made], f"{name}.leaky", alpha=_SLOPE)

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        name: str,
        output: str | None = None,
        **attributes: Any,
    ) -> str:
        """Append one operator and return its output, which is named after it by default."""
        self.last = output or f"{name}.out"
        self.nodes.append(helper.make_node(operator, inputs, [self.last], name, **attributes))
        return self.last

    def _weight(self, name: str, shape: tuple[int, ...]) -> str:
        """Add a weight that is left out: a `ConstantOfShape` of its shape."""
        self.shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}.shape"))
        self.nodes.append(helper.make_node("ConstantOfShape", [f"{name}.shape"], [name]))
        return name
