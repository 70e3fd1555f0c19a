"""Constant folding and batch-norm fusion, by onnxslim, and the simplified model taken apart.

After this step nothing is left of shape arithmetic, a batch norm behind a convolution is part of
it, and identities and dropouts are gone. Weights are held once, as arrays, apart from the
operators.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from cnn.errors import ModelError
from cnn.roles import KERNEL_OPERATORS
from cnn.supported import check_operators
from cnn.weights import Array, described, take, tensor

_LARGE_BYTES = 1 << 20

_SKIPPED = ["weight_tying"]
"""Tying would make layers share a bias that happens to be equal, which ties devices together."""

_MISTAKEN = ["FusionConvMul", "FusionConvTransposeMul", "FusionGemmMul"]
"""Fusions of onnxslim (0.1.98 at least) that change results: a factor with as many values as there
are channels is taken for one per channel, even if it is one per row or column. Engines fuse these
when they load a subnet, and look at the shape."""


@dataclass(frozen=True)
class Simplified:
    """Operators in topological order and their constants by name.

    `value_info` describes inputs and outputs of the graph; `described` is what onnxslim found out
    about the tensors between.
    """

    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, Array]
    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    described: tuple[onnx.ValueInfoProto, ...]
    opset_import: tuple[onnx.OperatorSetIdProto, ...]
    ir_version: int


def simplify(proto: onnx.ModelProto, weights: dict[str, Array], label: str) -> Simplified:
    """Simplify `proto`, which is used up together with `weights`, and take it apart.

    Raises `ModelError` for operators that cannot be handled and for models that onnxslim cannot.
    """
    inputs = [value.name for value in proto.graph.input]
    outputs = [value.name for value in proto.graph.output]
    nodes = list(proto.graph.node)
    aside = {name: weights.pop(name) for name in _irrelevant(proto.graph, weights)}
    proto.graph.input.extend(described(name, array) for name, array in aside.items())
    proto.graph.initializer.extend(tensor(name, array) for name, array in weights.items())
    weights.clear()
    try:
        slimmed, folded = take(_slim(proto), None, label)
    except ModelError:
        raise
    except Exception as error:
        check_operators(nodes, label)
        raise ModelError(f"{label}: the model cannot be simplified: {error}") from error
    check_operators(slimmed.graph.node, label)
    if [value.name for value in slimmed.graph.output] != outputs:
        raise ModelError(f"{label}: simplification has lost an output; please report this model")
    return Simplified(
        nodes=tuple(slimmed.graph.node),
        weights={**folded, **aside},
        inputs=tuple(value for value in slimmed.graph.input if value.name in inputs),
        outputs=tuple(slimmed.graph.output),
        described=tuple(slimmed.graph.value_info),
        opset_import=tuple(slimmed.opset_import),
        ir_version=max(slimmed.ir_version, 4),
    )


def _irrelevant(graph: onnx.GraphProto, weights: Mapping[str, Array]) -> list[str]:
    """Large kernels that no fusion will look at, so that they need not go through onnxslim.

    It fuses a kernel with an operator behind it that has constants: a batch norm, a factor, a bias.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def is_left_alone(node: onnx.NodeProto) -> bool:
        behind = [reader for name in node.output for reader in readers.get(name, [])]
        return node.op_type in KERNEL_OPERATORS and not any(
            name in weights
            for reader in behind
            for name in reader.input
            if reader.op_type not in KERNEL_OPERATORS
        )

    return [
        name
        for name, array in weights.items()
        if array.nbytes >= _LARGE_BYTES
        and name in readers
        and all(map(is_left_alone, readers[name]))
    ]


def _slim(proto: onnx.ModelProto) -> onnx.ModelProto:
    # It imports ONNX Runtime, which else notes for its maker what it does, in the user's home.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxslim  # noqa: PLC0415 - imports sympy, half a second that `--help` need not pay

    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        slimmed: onnx.ModelProto = onnxslim.slim(
            proto, skip_optimizations=list(_SKIPPED), skip_fusion_patterns=list(_MISTAKEN)
        )
    finally:
        logging.disable(disabled)
    return slimmed
