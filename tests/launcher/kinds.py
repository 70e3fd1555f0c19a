"""Networks of every kind of number that people run, with seeded weights.

A small residual network with its own head for each task, and its float16 and int8 forms. Its
weights are drawn so that activations neither vanish nor grow (He et al. 2015).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

SIDE = 32
CHANNELS = 16
KINDS = ("float32", "float16", "qdq", "qoperator", "dynamic")


def frames(kind: str = "float32") -> dict[str, np.ndarray]:
    """What cameras show when nothing is there, and noise."""
    noise = np.random.default_rng(7).random((1, 3, SIDE, SIDE))
    shown = {"black": np.zeros_like(noise), "white": np.ones_like(noise), "noise": noise}
    dtype = np.float16 if kind == "float16" else np.float32
    return {name: array.astype(dtype) for name, array in shown.items()}


def write(path: Path, kind: str = "float32", head: str = "scores", depth: int = 6) -> Path:
    """Write the network with that kind of numbers and that head; returns `path`."""
    model = _network(head, depth, np.float16 if kind == "float16" else np.float32)
    onnx.checker.check_model(model)
    if kind in ("float32", "float16"):
        onnx.save(model, str(path))
        return path
    whole = path.with_suffix(".float32.onnx")
    onnx.save(model, str(whole))
    if kind == "dynamic":
        quantize_dynamic(str(whole), str(path), weight_type=QuantType.QUInt8)
    else:
        quantize_static(
            str(whole),
            str(path),
            _Frames(),
            quant_format=QuantFormat.QDQ if kind == "qdq" else QuantFormat.QOperator,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    return path


class _Frames(CalibrationDataReader):
    """Frames to take the ranges of activations from."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        arrays = [*frames().values()]
        arrays += [generator.random((1, 3, SIDE, SIDE)).astype(np.float32) for _ in range(4)]
        self._left = iter([{"image": array} for array in arrays])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


class _Graph:
    """Nodes and weights while they are put together."""

    def __init__(self, dtype: type) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._dtype = dtype
        self._generator = np.random.default_rng(11)

    def constant(self, name: str, values: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, operator: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def conv(self, source: str, name: str, inputs: int, outputs: int, **attributes: object) -> str:
        shape = (outputs, inputs, 3, 3)
        drawn = self._generator.standard_normal(shape) * np.sqrt(2 / (inputs * 9))
        bias = self._generator.standard_normal(outputs) * 0.1
        weight = self.constant(f"{name}.weight", drawn.astype(self._dtype))
        shift = self.constant(f"{name}.bias", bias.astype(self._dtype))
        pads = [1, 1, 1, 1]
        return self.node("Conv", [source, weight, shift], name, pads=pads, **attributes)


def _network(head: str, depth: int, dtype: type) -> onnx.ModelProto:
    graph = _Graph(dtype)
    last = graph.node(
        "Relu", [graph.conv("image", "stem", 3, CHANNELS, strides=[2, 2])], "stem_out"
    )
    for number in range(depth):
        inner = graph.conv(last, f"conv{number}a", CHANNELS, CHANNELS)
        inner = graph.node("Relu", [inner], f"relu{number}")
        inner = graph.conv(inner, f"conv{number}b", CHANNELS, CHANNELS)
        last = graph.node("Add", [last, inner], f"add{number}")
        last = graph.node("Relu", [last], f"out{number}")
    float_kind = TensorProto.FLOAT16 if dtype is np.float16 else TensorProto.FLOAT
    side = SIDE // 2
    outputs = _HEADS[head](graph, last, dtype)
    shapes = {
        "scores": {"scores": (float_kind, [1, 10])},
        "classes": {"class": (TensorProto.INT64, [1])},
        "mask": {"mask": (TensorProto.INT64, [1, side, side])},
        "boxes": {
            "score": (float_kind, [1, 20]),
            "box": (float_kind, [1, 20, 4]),
            "index": (TensorProto.INT64, [1, 20]),
        },
    }[head]
    assert list(shapes) == outputs
    made = helper.make_graph(
        graph.nodes,
        f"residual_{head}",
        [helper.make_tensor_value_info("image", float_kind, [1, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, *shape) for name, shape in shapes.items()],
        graph.weights,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def _logits(graph: _Graph, last: str, dtype: type) -> str:
    pooled = graph.node("GlobalAveragePool", [last], "pooled")
    flat = graph.node("Flatten", [pooled], "flat")
    drawn = np.random.default_rng(5).standard_normal((CHANNELS, 10)) / np.sqrt(CHANNELS)
    weight = graph.constant("fc.weight", drawn.astype(dtype))
    return graph.node("MatMul", [flat, weight], "logits")


def _scores(graph: _Graph, last: str, dtype: type) -> list[str]:
    return [graph.node("Softmax", [_logits(graph, last, dtype)], "scores", axis=1)]


def _classes(graph: _Graph, last: str, dtype: type) -> list[str]:
    logits = _logits(graph, last, dtype)
    return [graph.node("ArgMax", [logits], "class", axis=1, keepdims=0)]


def _mask(graph: _Graph, last: str, dtype: type) -> list[str]:
    logits = graph.conv(last, "head", CHANNELS, 5)
    return [graph.node("ArgMax", [logits], "mask", axis=1, keepdims=0)]


def _boxes(graph: _Graph, last: str, dtype: type) -> list[str]:
    """Twenty boxes with the highest scores, as detectors without suppression give them."""
    places = (SIDE // 2) ** 2
    raw = graph.conv(last, "head", CHANNELS, 5)
    rows = graph.constant("rows", np.array([1, 5, places], np.int64))
    raw = graph.node("Reshape", [raw, rows], "raw")
    for name, start, stop in (("scored", 4, 5), ("boxed", 0, 4)):
        bounds = [
            graph.constant(f"{name}.{key}", np.array([value], np.int64))
            for key, value in (("start", start), ("stop", stop), ("axis", 1))
        ]
        graph.node("Slice", ["raw", *bounds], name)
    flat = graph.constant("flat_rows", np.array([1, places], np.int64))
    score = graph.node("Sigmoid", [graph.node("Reshape", ["scored", flat], "flat_scores")], "all")
    count = graph.constant("count", np.array([20], np.int64))
    graph.nodes.append(helper.make_node("TopK", [score, count], ["score", "index"], "top", axis=1))
    graph.node("Transpose", ["boxed"], "boxes_last", perm=[0, 2, 1])
    graph.node("Squeeze", ["boxes_last", graph.constant("first", np.array([0], np.int64))], "table")
    graph.node("Gather", ["table", "index"], "box", axis=0)
    return ["score", "box", "index"]


_HEADS = {"scores": _scores, "classes": _classes, "mask": _mask, "boxes": _boxes}
