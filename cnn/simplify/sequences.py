"""Sequences whose members are known: the lists to which scripted loops append their results.

Once a loop is written out, it is known which tensors a sequence holds, and what takes it apart or
puts it together can be written with the tensors themselves. The operators on sequences are unread
then.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from cnn.simplify.graph import OperatorGraph, has_input, integer

Members = tuple[str, ...]


def without_sequences(graph: OperatorGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Operators that make the tensors which `node` takes from a sequence; None if it takes none.

    The members of a sequence that it makes are noted in `graph.sequences`, if they are known.
    """
    made = _made(graph, node)
    if made is not None:
        graph.sequences[node.output[0]] = made
        return None
    if not node.input or node.input[0] not in graph.sequences:
        return None
    members, output = graph.sequences[node.input[0]], node.output[0]
    if node.op_type == "SequenceLength":
        count = helper.make_tensor("count", onnx.TensorProto.INT64, (), [len(members)])
        return [helper.make_node("Constant", [], [output], value=count)]
    if node.op_type == "SequenceAt":
        place = _place(graph, node, 1, len(members), len(members))
        return None if place is None else [helper.make_node("Identity", [members[place]], [output])]
    if node.op_type == "ConcatFromSequence" and members:
        axis = integer(node, "axis", 0)
        nodes = []
        if integer(node, "new_axis", 0):
            unsqueezed = [unsqueeze(graph, name, axis) for name in members]
            nodes, members = [x for x, _ in unsqueezed], tuple(name for _, name in unsqueezed)
        return [*nodes, helper.make_node("Concat", members, [output], axis=axis)]
    return None


def unsqueeze(graph: OperatorGraph, name: str, axis: int) -> tuple[onnx.NodeProto, str]:
    """An operator that gives a tensor one more axis, and what it makes."""
    output = graph.new_name(f"{name}/1")
    if graph.opset < 13:
        return helper.make_node("Unsqueeze", [name], [output], axes=[axis]), output
    axes = graph.add_constant(f"{name}/axis", np.array([axis], np.int64))
    return helper.make_node("Unsqueeze", [name, axes], [output]), output


def _made(graph: OperatorGraph, node: onnx.NodeProto) -> Members | None:
    """The members of the sequence that a node makes, if it makes one and they are known."""
    if node.op_type == "SequenceEmpty":
        return ()
    if node.op_type == "SequenceConstruct":
        return tuple(node.input)
    if not node.input or node.input[0] not in graph.sequences:
        return None
    members = graph.sequences[node.input[0]]
    if node.op_type == "Identity":
        return members
    if node.op_type == "SequenceInsert":
        place = _place(graph, node, 2, len(members), len(members) + 1)
        return None if place is None else (*members[:place], node.input[1], *members[place:])
    if node.op_type == "SequenceErase":
        place = _place(graph, node, 1, len(members) - 1, len(members))
        return None if place is None else (*members[:place], *members[place + 1 :])
    return None


def _place(
    graph: OperatorGraph, node: onnx.NodeProto, index: int, default: int, places: int
) -> int | None:
    """The place in a sequence that input number `index` of a node says, `default` if it is not
    given; None if it depends on the data or there is no such place.

    `places` is how many there are; negative ones count from the end of the sequence.
    """
    length = len(graph.sequences[node.input[0]])
    place = default
    if has_input(node, index):
        array = graph.constant(node, index)
        if array is None or array.size != 1:
            return None
        place = int(array.reshape(-1)[0])
        place += length if place < 0 else 0
    return place if 0 <= place < places else None
