"""Outputs of a model that no input reaches: anchors, strides, class tables.

They are the same for every frame, so no device has to make or send them.
"""

from __future__ import annotations

from cnn.errors import ModelError
from cnn.read.bodies import reads
from cnn.read.weights import Array
from cnn.simplify.evaluate import evaluate
from cnn.simplify.graph import OperatorGraph


def take_constant_outputs(graph: OperatorGraph, label: str) -> dict[str, Array]:
    """Remove such outputs from `graph`, which is folded already; returns their values by name.

    Raises `ModelError` if that leaves no output, or a value cannot be computed.
    """
    varying = set(graph.inputs)
    for node in graph.nodes:
        if not varying.isdisjoint(reads(node)):
            varying.update(filter(None, node.output))
    found = {name: _value(graph, name, label) for name in graph.outputs if name not in varying}
    if len(found) == len(graph.outputs):
        raise ModelError(
            f"{label}: no output of the model depends on an input, so there is nothing to run"
        )
    graph.outputs = tuple(name for name in graph.outputs if name not in found)
    return found


def _value(graph: OperatorGraph, output: str, label: str) -> Array:
    """The value of an output; operators that folding left alone are carried out."""
    wanted, needed = {output}, []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(reads(node))
            needed.append(node)
    known = {name: graph.constants[name] for name in wanted if name in graph.constants}
    for node in reversed(needed):
        arrays = {name: known[name] for name in reads(node)}
        known |= evaluate(graph, node, arrays, is_wanted=True) or {}
        if not known.keys() >= set(filter(None, node.output)):
            break
    if output not in known:
        raise ModelError(
            f"{label}: output {output!r} depends on no input, and its value cannot be computed "
            "beforehand; list the other outputs as `outputs` of the model"
        )
    return known[output]
