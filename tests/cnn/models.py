"""Models written by hand for one point each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

FLOAT = onnx.TensorProto.FLOAT
INT64 = onnx.TensorProto.INT64

node = helper.make_node
graph = helper.make_graph


def value(
    name: str, shape: Sequence[int | str | None] | None = None, kind: int = FLOAT
) -> onnx.ValueInfoProto:
    """An input or output; no shape at all unless one is given."""
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    """A float32 weight of normal values."""
    values = np.random.default_rng(seed).standard_normal(shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def constant(name: str, values: object, dtype: type[np.generic] = np.int64) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(x, 1) for x in domains)]
    return helper.make_model(
        graph(nodes, "by hand", inputs, outputs, list(weights)), opset_imports=opsets, ir_version=8
    )


def convolution(
    shape: Sequence[int | str | None] | None = (1, 3, 8, 8), *more: onnx.NodeProto, opset: int = 17
) -> onnx.ModelProto:
    """`x` → Conv `c` (4 filters, 3 × 3, padded) → `y`, and whatever follows; the last node's output
    is the model's."""
    nodes = [node("Conv", ["x", "w"], ["y"], "c", pads=[1, 1, 1, 1]), *more]
    return model(
        nodes, [value("x", shape)], [value(nodes[-1].output[0])], [weight("w", 4, 3, 3, 3)], opset
    )


def save(proto: onnx.ModelProto, directory: Path, name: str = "model.onnx") -> Path:
    path = directory / name
    path.unlink(missing_ok=True)  # a file that is written over is flushed to the disk
    path.write_bytes(proto.SerializeToString())
    return path


def run(
    path: Path, frame: dict[str, np.ndarray], outputs: Sequence[str] | None = None
) -> list[np.ndarray]:
    """Run a model as it stands, on one thread and unoptimised, for all outputs or for these."""
    return opened(path).run(outputs, frame)


def opened(path: Path) -> ort.InferenceSession:
    """A session that runs a model as it stands, on one thread and unoptimised."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
