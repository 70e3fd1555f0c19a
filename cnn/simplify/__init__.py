"""Simplify a network: fold constants, remove operators without effect, fuse operators.

No shape arithmetic is left afterwards: whatever depends only on constants and shapes is a constant.
Batch norms, biases and zero padding are part of the convolution next to them. Identities, dropouts
and other operators without effect are gone. Quantisers stand where engines would move them to. Each
weight exists once, as an array, separate from the operators.

Each pass (`fold`, `redundant`, `layouts`, `kernels`) rewrites an `OperatorGraph`, in which tensors
have types. A pass rewrites an operator only where the known types and constants prove that the
result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.bodies import reads
from cnn.operators.supported import check_operators
from cnn.reading.names import make_names_unique
from cnn.simplify.fold import fold
from cnn.simplify.graph import OperatorGraph
from cnn.simplify.kernels import fuse_kernels
from cnn.simplify.layouts import change_layouts
from cnn.simplify.quantisers import move_quantisers
from cnn.simplify.redundant import (
    extract_constant_outputs,
    merge_views,
    remove_duplicates,
    remove_no_ops,
)

_PASSES = (remove_no_ops, merge_views, remove_duplicates, change_layouts, fuse_kernels)


@dataclass(frozen=True)
class Simplified:
    """Operators in topological order and their constants by name.

    `inputs` and `outputs` declare those of the graph; `described` declares the tensors between
    them, as far as their types were found. `constant_outputs` are outputs of the model that depend
    on no input.
    """

    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, Array]
    inputs: tuple[onnx.ValueInfoProto, ...]
    outputs: tuple[onnx.ValueInfoProto, ...]
    described: tuple[onnx.ValueInfoProto, ...]
    opset_import: tuple[onnx.OperatorSetIdProto, ...]
    ir_version: int
    constant_outputs: dict[str, Array] = field(default_factory=dict)


def _run_passes(graph: OperatorGraph) -> None:
    """Run the passes until none changes anything."""
    graph.remove_unread()
    is_changed = True
    while is_changed:
        is_changed = False
        for rewrite in _PASSES:
            is_changed |= rewrite(graph)


def simplify(proto: onnx.ModelProto, weights: dict[str, Array], label: str) -> Simplified:
    """Simplify `proto`; uses up `proto` and `weights`.

    Raises `ModelError` for operators that are not supported.
    """
    graph = OperatorGraph(proto, weights)
    try:
        fold(graph)
        graph.remove_unread()
        check_operators(graph.nodes, label)
        constant_outputs = extract_constant_outputs(graph, label)
        _run_passes(graph)
        move_quantisers(graph)
        make_names_unique(graph.nodes)
    except ModelError:
        raise
    except Exception as error:  # any error that a damaged model causes
        check_operators(graph.nodes, label)
        raise ModelError(f"{label}: the model cannot be simplified: {error}") from error
    read = {name for node in graph.nodes for name in reads(node)}
    return Simplified(
        nodes=tuple(graph.nodes),
        weights={name: array for name, array in graph.constants.items() if name in read},
        inputs=tuple(value for value in proto.graph.input if value.name in read),
        outputs=tuple(value for value in proto.graph.output if value.name in graph.outputs),
        described=tuple(graph.described()),
        opset_import=tuple(proto.opset_import),
        ir_version=max(proto.ir_version, 4),
        constant_outputs=constant_outputs,
    )
