"""Removes operators whose output is their input."""

from __future__ import annotations

import numpy as np
import onnx

from cnn.read.bodies import rename
from cnn.read.weights import Array
from cnn.simplify.graph import OperatorGraph, given, has_input, integers

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
"""They keep the values in their order, so one that keeps the shape changes nothing."""

_OF_ONE = frozenset({"Sum", "Max", "Min", "Mean", "Concat"})


def remove_idle(graph: OperatorGraph) -> bool:
    """Let what reads the output of such an operator read its input; whether there was any.

    The network's outputs keep their names: the layer that makes the input takes the output's name.
    An operator between an input and an output of the network stays.
    """
    before = len(graph.nodes)
    instead: dict[str, str] = {}
    renamed: dict[str, str] = {}
    made = {name for node in graph.nodes for name in node.output}
    kept = []
    for node in graph.nodes:
        rename(node, instead)
        index_of_same = _unchanged_input(graph, node)
        if index_of_same is None:
            kept.append(node)
            continue
        source, output = node.input[index_of_same], node.output[0]
        if output not in graph.outputs:
            instead[output] = source
        elif source in made and source not in graph.outputs and source not in renamed:
            renamed[source] = output
        else:
            kept.append(node)
    graph.nodes = kept
    graph.rename(renamed)
    return len(kept) < before


def _unchanged_input(graph: OperatorGraph, node: onnx.NodeProto) -> int | None:
    """Which of its inputs, which is no constant, a node hands on as it is."""
    operator = node.op_type
    if operator in ("Mul", "Add", "Sub", "Div"):
        return _neutral(graph, node)
    if not has_input(node, 0) or node.input[0] in graph.constants:
        return None
    if operator == "Identity" or (operator == "Dropout" and _is_inference(graph, node)):
        return 0
    if any(node.output[1:]) or not graph.has_same_type(node.input[0], node.output[0]):
        return None
    if operator in _VIEWS or operator in ("Cast", "CastLike"):
        return 0
    if operator in _OF_ONE and len(node.input) == 1:
        return 0
    if operator == "Split" and len(node.output) == 1:
        return 0
    if operator == "Transpose":
        order = integers(node, "perm")
        return 0 if order and order == sorted(order) else None
    if operator == "Slice":
        steps = given(graph, node, 4, "", 10)
        return 0 if steps is not None and all(step == 1 for step in steps) else None
    if operator == "Pad":
        pads = given(graph, node, 1, "pads", 11)
        return 0 if pads is not None and not any(pads) else None
    return None


def _is_inference(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    """Whether a dropout drops nothing and nobody asks for its mask."""
    if any(node.output[1:]):
        return False
    if not has_input(node, 2):
        return True
    training = graph.constant(node, 2)
    return training is not None and not np.asarray(training).any()


def _neutral(graph: OperatorGraph, node: onnx.NodeProto) -> int | None:
    """The input beside a constant 1 of a product or quotient, 0 of a sum or difference."""
    neutral = 1 if node.op_type in ("Mul", "Div") else 0
    for index, other in ((0, 1), (1, 0)):
        constant = graph.constant(node, other)
        if constant is None or node.input[index] in graph.constants:
            continue
        if index == 1 and node.op_type in ("Sub", "Div"):
            continue
        if _is_all(constant, neutral) and graph.has_same_type(node.input[index], node.output[0]):
            return index
    return None


def _is_all(array: Array, value: int) -> bool:
    return bool(np.all(array == np.asarray(value, array.dtype)))
