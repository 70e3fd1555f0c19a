"""Small ONNX models for the executors' tests, and their outputs by ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from nodes.protocol.payload import Array

OPSET = 17
IR_VERSION = 8

Spec = tuple[str, int, Sequence[int | str]]


def model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    weights: Mapping[str, Array] | None = None,
) -> onnx.ModelProto:
    """Return a model of these nodes, whose initialisers are `weights`."""
    graph = helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(*spec) for spec in inputs],
        [helper.make_tensor_value_info(*spec) for spec in outputs],
        [numpy_helper.from_array(array, key) for key, array in (weights or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def save(proto: onnx.ModelProto, folder: Path) -> Path:
    """Save `proto` as a node does: two files named by digest, the weights next to the graph."""
    folder.mkdir(parents=True, exist_ok=True)
    own = onnx.ModelProto()
    own.CopyFrom(proto)  # saving empties a model of its weights
    onnx.save(
        own, folder / "graph", save_as_external_data=True, location="weights", size_threshold=256
    )
    weights = folder / "weights"
    if weights.exists():
        digest = sha256(weights.read_bytes()).hexdigest()
        weights.rename(folder / digest)
        saved = onnx.load(folder / "graph", load_external_data=False)
        for tensor in saved.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = digest
        onnx.save(saved, folder / "graph")
    graph = folder / sha256((folder / "graph").read_bytes()).hexdigest()
    return (folder / "graph").rename(graph)


def evaluate(proto: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs by ONNX's own evaluator."""
    names = [output.name for output in proto.graph.output]
    return dict(zip(names, ReferenceEvaluator(proto).run(names, dict(inputs)), strict=True))


def normal(seed: int, *shape: int) -> Array:
    """Return float32 numbers of mean 0 and variance 1."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def residual(channels: int = 16, size: int = 12, seed: int = 0) -> onnx.ModelProto:
    """relu(conv(relu(conv(x))) + x): what CNNs are made of.

    x, y: float32[1, channels, size, size].
    """
    shape = [1, channels, size, size]
    return model(
        f"residual{seed}",
        [
            helper.make_node("Conv", ["x", "w0", "b"], ["c0"], pads=[1] * 4),
            helper.make_node("Relu", ["c0"], ["r0"]),
            helper.make_node("Conv", ["r0", "w1", "b"], ["c1"], pads=[1] * 4),
            helper.make_node("Add", ["c1", "x"], ["s"]),
            helper.make_node("Relu", ["s"], ["y"]),
        ],
        [("x", TensorProto.FLOAT, shape)],
        [("y", TensorProto.FLOAT, shape)],
        {
            "w0": normal(seed, channels, channels, 3, 3) / (3 * channels**0.5),
            "w1": normal(seed + 1, channels, channels, 3, 3) / (3 * channels**0.5),
            "b": normal(seed + 2, channels),
        },
    )


def classifier(features: int = 64, classes: int = 10) -> onnx.ModelProto:
    """softmax(flatten(x) · w + b). x: float32[2, features / 4, 2, 2], y: float32[2, classes]."""
    return model(
        "classifier",
        [
            helper.make_node("Flatten", ["x"], ["f"]),
            helper.make_node("Gemm", ["f", "w", "b"], ["g"]),
            helper.make_node("Softmax", ["g"], ["y"], axis=1),
        ],
        [("x", TensorProto.FLOAT, [2, features // 4, 2, 2])],
        [("y", TensorProto.FLOAT, [2, classes])],
        {"w": normal(0, features, classes), "b": normal(1, classes)},
    )


def two_in_two_out() -> onnx.ModelProto:
    """sum = a + b, difference = a - b; a, b: float32[2, 3]."""
    shape = [2, 3]
    return model(
        "pair",
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Sub", ["a", "b"], ["difference"]),
        ],
        [("a", TensorProto.FLOAT, shape), ("b", TensorProto.FLOAT, shape)],
        [("sum", TensorProto.FLOAT, shape), ("difference", TensorProto.FLOAT, shape)],
    )


def transpose(dtype: str) -> onnx.ModelProto:
    """y = xᵀ for any dtype; x: [3, 5]."""
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return model(
        f"transpose_{dtype}",
        [helper.make_node("Transpose", ["x"], ["y"])],
        [("x", onnx_type, [3, 5])],
        [("y", onnx_type, [5, 3])],
    )


def mean_of_all() -> onnx.ModelProto:
    """y = mean(x), a scalar: an output of shape ()."""
    return model(
        "mean",
        [helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)],
        [("x", TensorProto.FLOAT, [2, 3])],
        [("y", TensorProto.FLOAT, [])],
    )


def passes_through() -> onnx.ModelProto:
    """Return a model with same = x and a constant output; optimisers may leave it no node."""
    return model(
        "passes",
        [
            helper.make_node("Identity", ["x"], ["same"]),
            helper.make_node("Add", ["c", "c"], ["constant"]),
        ],
        [("x", TensorProto.FLOAT, [4])],
        [("same", TensorProto.FLOAT, [4]), ("constant", TensorProto.FLOAT, [4])],
        {"c": np.arange(4, dtype=np.float32)},
    )


def unknown_operator() -> onnx.ModelProto:
    """Return a model whose operator, Frobnicate, no engine knows."""
    return model(
        "strange",
        [helper.make_node("Frobnicate", ["x"], ["y"], name="n1")],
        [("x", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, [1])],
    )


def dynamic_shape() -> onnx.ModelProto:
    """Return a model whose input has a dimension of unknown length."""
    return model(
        "dynamic",
        [helper.make_node("Relu", ["x"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 3])],
        [("y", TensorProto.FLOAT, ["batch", 3])],
    )
