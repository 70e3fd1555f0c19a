"""Small networks whose shapes depend on the data, and a way to run their layers one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

import cnn
from tests.cnn.models import INT64, constant, graph, model, node, run, value, weight

Arrays = Mapping[str, np.ndarray]


def detector() -> onnx.ModelProto:
    """Boxes and scores by convolutions, some of which a suppression selects."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "stem", pads=[1] * 4, strides=[2, 2]),
        node("Relu", ["c"], ["r"], "relu"),
        node("Conv", ["r", "wb"], ["b"], "boxes"),
        node("Conv", ["r", "ws"], ["s"], "scores"),
        node("Reshape", ["b", "flat4"], ["b3"], "flat boxes"),
        node("Transpose", ["b3"], ["rows"], "rows", perm=[0, 2, 1]),
        node("Reshape", ["s", "flat2"], ["s3"], "flat scores"),
        node("NonMaxSuppression", ["rows", "s3", "most", "iou", "least"], ["chosen"], "nms"),
        node("Gather", ["chosen", "two"], ["places"], "places", axis=1),
        node("Squeeze", ["places", "one"], ["place"], "place"),
        node("Gather", ["rows", "place"], ["found"], "found", axis=1),
    ]
    weights = [
        weight("w", 6, 3, 3, 3),
        weight("wb", 4, 6, 1, 1, seed=1),
        weight("ws", 2, 6, 1, 1, seed=2),
        constant("flat4", [1, 4, -1]),
        constant("flat2", [1, 2, -1]),
        constant("most", [20]),
        constant("iou", [0.5], np.float32),
        constant("least", [1.0], np.float32),
        constant("two", [2]),
        constant("one", [1]),
    ]
    outputs = [value("chosen", None, INT64), value("found")]
    return model(nodes, [value("x", (1, 3, 16, 16))], outputs, weights)


def detector_frames() -> list[Arrays]:
    """Frames in which the detector finds nothing, a few boxes, and many."""
    noise = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    return [{"x": noise * size} for size in (0.0, 0.3, 3.0)]


def branch(name: str, operator: str, *reads: str) -> onnx.GraphProto:
    """A branch of one operator, which makes `name`."""
    return graph([node(operator, list(reads), [name])], f"branch {name}", [], [value(name)])


def looping() -> onnx.ModelProto:
    """A loop with as many iterations as its input says, which reads an outer tensor and an outer
    weight.

    All intermediate results are outputs.
    """
    turn = graph(
        [
            node("Identity", ["going"], ["goes"]),
            node("Add", ["sum", "y"], ["more"]),
            node("Mul", ["more", "half"], ["next"]),
        ],
        "turn",
        [
            value("i", (), INT64),
            value("going", (), TensorProto.BOOL),
            value("sum", (1, 4)),
        ],
        [value("goes", (), TensorProto.BOOL), value("next", (1, 4)), value("next", (1, 4))],
    )
    nodes = [
        node("Relu", ["x"], ["y"], "relu"),
        node("ReduceMax", ["y"], ["m"], "max", keepdims=0),
        node("Cast", ["m"], ["n"], "count", to=INT64),
        node("Loop", ["n", "", "y"], ["last", "all"], "loop", body=turn),
        node("Neg", ["last"], ["z"], "neg"),
    ]
    half = constant("half", [0.5] * 4, np.float32)
    return model(nodes, [value("x", (1, 4))], [value("z"), value("all")], [half])


def layer_by_layer(built: cnn.Model, frame: Arrays, directory: Path) -> dict[str, np.ndarray]:
    """Compute the network with each layer as its own subnet."""
    known = dict(frame)
    for layer in built.network.layers:
        made = [
            name
            for name in layer.outputs
            if built.network.consumers[name] or name in built.network.outputs
        ]
        subnet = built.cut([layer.name], layer.inputs, made, directory)
        results = run(subnet.graph, {name: known[name] for name in layer.inputs})
        known.update(zip(made, results, strict=True))
    return {name: known[name] for name in built.network.outputs}
