"""Constant folding and batch-norm fusion, by onnxslim, and the simplified model taken apart.

After this step nothing is left of shape arithmetic, a batch norm behind a convolution is part of
it, and identities and dropouts are gone. Weights are held once, as arrays, apart from the operators.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from cnn.errors import ModelError
from cnn.supported import check_domains, check_operators, numpy_dtype

_Message = TypeVar("_Message", onnx.NodeProto, onnx.ValueInfoProto, onnx.OperatorSetIdProto)

_SKIPPED = ["weight_tying"]
"""Tying would make layers share a bias that happens to be equal, which ties devices together."""


@dataclass(frozen=True)
class Simplified:
    """Operators in topological order and their constants by name.

    `value_info` describes inputs and outputs of the graph; `described` is what onnxslim found out
    about the tensors between.
    """

    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, NDArray[np.generic]]
    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    described: tuple[onnx.ValueInfoProto, ...]
    opset_import: tuple[onnx.OperatorSetIdProto, ...]
    ir_version: int


def simplify(proto: onnx.ModelProto, label: str) -> Simplified:
    """Simplify `proto`, which is used up, and take it apart.

    Raises `ModelError` for operators that cannot be handled and for models that onnxslim cannot.
    """
    inputs = [value.name for value in proto.graph.input]
    outputs = [value.name for value in proto.graph.output]
    nodes = list(proto.graph.node)
    check_domains(nodes, label)
    try:
        slimmed = _slim(proto)
    except Exception as error:
        check_operators(nodes, label)
        raise ModelError(f"{label}: the model cannot be simplified: {error}") from error
    check_operators(slimmed.graph.node, label)
    if [value.name for value in slimmed.graph.output] != outputs:
        raise ModelError(f"{label}: simplification has lost an output; please report this model")
    _check_outputs(slimmed.graph, label)
    if slimmed.graph.sparse_initializer:
        raise ModelError(f"{label}: the model has sparse weights; export it with dense ones")
    return Simplified(
        nodes=tuple(_copied(node) for node in slimmed.graph.node),
        weights={x.name: _array(x, label) for x in slimmed.graph.initializer},
        inputs=tuple(_copied(x) for x in slimmed.graph.input if x.name in inputs),
        outputs=tuple(_copied(x) for x in slimmed.graph.output),
        described=tuple(_copied(x) for x in slimmed.graph.value_info),
        opset_import=tuple(_copied(x) for x in slimmed.opset_import),
        ir_version=max(slimmed.ir_version, 4),
    )


def _slim(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim  # noqa: PLC0415 - imports sympy, half a second that `--help` need not pay

    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        slimmed: onnx.ModelProto = onnxslim.slim(proto, skip_optimizations=list(_SKIPPED))
    finally:
        logging.disable(disabled)
    return slimmed


def _check_outputs(graph: onnx.GraphProto, label: str) -> None:
    produced = {name for node in graph.node for name in node.output}
    inputs = {value.name for value in graph.input}
    for value in graph.output:
        if value.name in produced:
            continue
        what = "is an input handed through" if value.name in inputs else "depends on no input"
        raise ModelError(
            f"{label}: output {value.name!r} {what}; remove it from the model's outputs"
        )


def _array(tensor: onnx.TensorProto, label: str) -> NDArray[np.generic]:
    numpy_dtype(tensor.data_type, f"{label}: weight {tensor.name!r}")
    return np.ascontiguousarray(numpy_helper.to_array(tensor)).reshape(tuple(tensor.dims))


def _copied(message: _Message) -> _Message:
    """A copy that does not keep the weights' memory alive as a part of the whole model would."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
