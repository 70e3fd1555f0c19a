"""Bodies of `If`, `Loop` and `Scan`, written out in the graph that they stand in.

A body reads its own inputs and initialisers, what its operators make, and any tensor of the graphs
around it. What is its own gets new names each time that the body is written out; what it captures
from around it keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnn.read.bodies import renamed
from cnn.simplify.graph import OperatorGraph, attribute, in_order


class Body:
    """A body whose initialisers are constants of `graph` already."""

    def __init__(
        self, graph: OperatorGraph, body: onnx.GraphProto, initialisers: Mapping[str, str]
    ) -> None:
        self.inputs = tuple(value.name for value in body.input)
        self.outputs = tuple(body.output)
        self._graph = graph
        self._nodes = in_order(body.node)
        self._initialisers = initialisers

    def __len__(self) -> int:
        return len(self._nodes)

    def maker(self, output: int) -> str:
        """The operator that makes an output, "" if that comes from outside or is a constant."""
        name = self.outputs[output].name
        return next((node.op_type for node in self._nodes if name in node.output), "")

    def written_out(
        self, inputs: Sequence[str], called: Callable[[str], str]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Its operators, which read the tensors `inputs`, and the names of its outputs.

        `called` makes of a name in the body the one that is wanted outside.
        """
        names = {**self._initialisers, **dict(zip(self.inputs, inputs, strict=True))}
        for node in self._nodes:
            for name in filter(None, node.output):
                names[name] = self._graph.new_name(called(name))
        nodes = [renamed(node, names) for node in self._nodes]
        return nodes, [names.get(value.name, value.name) for value in self.outputs]


def body_of(graph: OperatorGraph, node: onnx.NodeProto, name: str) -> Body | None:
    """The body that is the attribute `name` of a node; None if it holds what no array can be."""
    body = attribute(node, name)
    if not isinstance(body, onnx.GraphProto) or body.sparse_initializer:
        return None
    arrays = {}
    for initial in body.initializer:
        try:
            arrays[initial.name] = np.asarray(numpy_helper.to_array(initial))
        except (TypeError, ValueError):
            return None
        if arrays[initial.name].dtype.kind not in "fiub":
            return None
    first = next(filter(None, node.output), node.op_type)
    names = {name: graph.add_constant(f"{first}/{name}", array) for name, array in arrays.items()}
    return Body(graph, body, names)


def taken_branch(graph: OperatorGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """The operators of the branch that an `If` with a constant condition takes."""
    is_then = bool(np.asarray(graph.constants[node.input[0]]).reshape(-1)[0])
    branch = body_of(graph, node, "then_branch" if is_then else "else_branch")
    if branch is None:
        return None
    first = next(filter(None, node.output), node.op_type)
    if len(branch.outputs) != len(node.output):
        return None
    nodes, made = branch.written_out((), lambda name: f"{first}/{name}")
    return [*nodes, *handed_on(made, node.output)]


def handed_on(made: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Operators that give tensors the names of outputs; one that nobody reads has none."""
    return [
        helper.make_node("Identity", [name], [output])
        for name, output in zip(made, outputs, strict=False)
        if output
    ]
