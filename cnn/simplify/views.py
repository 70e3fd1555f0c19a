"""Merges operators that only arrange values anew, one behind the other, into one.

Of two that keep the order of the values (a reshape, a flattening, a transposition that only moves
axes of length 1) the second alone gives the same from the first one's input, as a `Reshape` to its
shape. Of two transpositions one does the work of both, and of two concatenations along one axis.
"""

from __future__ import annotations

import numpy as np
import onnx

from cnn.simplify.graph import OperatorGraph, attribute, integer, integers

_IN_ORDER = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def merge_views(graph: OperatorGraph) -> bool:
    """Merge each such pair whose first is read by the second alone; whether there was any."""
    producers, readers = graph.producers(), graph.readers()
    is_changed = False
    for node in graph.nodes:
        for name in tuple(node.input):
            first = producers.get(name)
            if first is None or name in graph.outputs or len(readers.get(name, [])) != 1:
                continue
            if len(first.output) != 1 or len(node.output) != 1:
                continue
            is_changed |= _merge(graph, first, node)
    if is_changed:
        graph.remove_unread()
    return is_changed


def _merge(graph: OperatorGraph, first: onnx.NodeProto, second: onnx.NodeProto) -> bool:
    """Let `second` read what `first` reads, if that can be; whether it does."""
    kinds = first.op_type, second.op_type
    if kinds == ("Concat", "Concat"):
        return _merge_concatenations(graph, first, second)
    if second.input[0] != first.output[0] or first.input[0] in graph.constants:
        return False
    if kinds == ("Transpose", "Transpose"):
        order, then = integers(first, "perm"), integers(second, "perm")
        if not order or len(order) != len(then):
            return False
        _set(second, "perm", [order[axis] for axis in then])
        second.input[0] = first.input[0]
        return True
    if not (_keeps_order(graph, first) and _keeps_order(graph, second)):
        return False
    shape = graph.shape(second.output[0])
    if shape is None or 0 in shape:
        return False
    second.input[:] = [
        first.input[0],
        graph.add_constant(f"{second.output[0]}_shape", np.array(shape, np.int64)),
    ]
    second.op_type = "Reshape"
    del second.attribute[:]
    return True


def _keeps_order(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    if node.op_type in _IN_ORDER:
        return True
    shape, order = graph.shape(node.input[0]), integers(node, "perm")
    if node.op_type != "Transpose" or shape is None or not order:
        return False
    moved = [axis for axis in order if shape[axis] != 1]
    return moved == sorted(moved)


def _merge_concatenations(
    graph: OperatorGraph, first: onnx.NodeProto, second: onnx.NodeProto
) -> bool:
    rank = len(graph.shape(second.output[0]) or ())
    axes = {integer(node, "axis", 0) % rank for node in (first, second)} if rank else set()
    if len(axes) != 1:
        return False
    inputs: list[str] = []
    for name in second.input:
        inputs += first.input if name == first.output[0] else [name]
    second.input[:] = inputs
    return True


def _set(node: onnx.NodeProto, name: str, values: list[int]) -> None:
    assert attribute(node, name) is not None  # noqa: S101 - only what is there is changed
    for found in node.attribute:
        if found.name == name:
            found.ints[:] = values
