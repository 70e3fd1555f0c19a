"""Networks written with fewer operators that compute the same, and taken apart.

Afterwards nothing is left of shape arithmetic: whatever depends on constants and on shapes alone is
a constant. A batch norm behind a convolution is part of it, and so are a bias and zeros padded in
front. Identities, dropouts and whatever else changes nothing are gone. Weights are held once, as
arrays, apart from the operators.

Each pass (`fold`, `idle`, `views`, `duplicates`, `layouts`, `kernels`) rewrites an
`OperatorGraph`, in which tensors have types. A pass rewrites an operator only where the types
and constants at hand prove that the result is the same; what it does not know, it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from cnn.errors import ModelError
from cnn.operators.supported import check_operators
from cnn.reading.bodies import reads
from cnn.reading.names import make_names_unique
from cnn.reading.weights import Array
from cnn.simplify.fold import fold
from cnn.simplify.graph import OperatorGraph
from cnn.simplify.kernels import fuse_kernels
from cnn.simplify.layouts import change_layouts
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

    `inputs` and `outputs` describe those of the graph; `described` is what was found out about the
    tensors between. `constant_outputs` are outputs of the model that no input reaches.
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
    """Run the passes until none finds anything."""
    graph.remove_unread()
    is_changed = True
    while is_changed:
        is_changed = False
        for rewrite in _PASSES:
            is_changed |= rewrite(graph)


def simplify(proto: onnx.ModelProto, weights: dict[str, Array], label: str) -> Simplified:
    """Simplify `proto`, which is used up together with `weights`, and take it apart.

    Raises `ModelError` for operators that cannot be handled.
    """
    graph = OperatorGraph(proto, weights)
    try:
        fold(graph)
        graph.remove_unread()
        check_operators(graph.nodes, label)
        constant_outputs = extract_constant_outputs(graph, label)
        _run_passes(graph)
        make_names_unique(graph.nodes)
    except ModelError:
        raise
    except Exception as error:  # whatever a damaged model leads to
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
