"""Remove no-ops, duplicates, chains of reshapes, and outputs that are constant.

- An operator whose output equals its input is removed.
- Equal operators that read the same tensors are merged into one.
- Outputs that depend on no input (anchors, strides, class tables) are computed here: they are the
  same for every frame, so no device has to make or send them.
- Of two consecutive operators that keep the order of the values (reshape, flatten, a transposition
  that moves only axes of length 1), a single `Reshape` to the second's shape remains. Two
  transpositions become one, and so do two concatenations along one axis.
"""

from __future__ import annotations

import numpy as np
import onnx

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.attributes import attribute, has_input, integer, integers
from cnn.operators.bodies import reads, rename
from cnn.reading.weights import INLINE_BYTES
from cnn.simplify.fold import evaluate
from cnn.simplify.graph import OperatorGraph, attribute_or_input


def remove_duplicates(graph: OperatorGraph) -> bool:
    """Merge equal operators; return whether there were any.

    Small constants are equal if their values are; they stay separate, because layers that shared
    one would have to be on one device. Operators that make outputs of the network stay as well.
    """
    before = len(graph.nodes)
    instead: dict[str, str] = {}
    first: dict[tuple[object, ...], onnx.NodeProto] = {}
    kept = []
    for node in graph.nodes:
        rename(node, instead)
        known = first.setdefault(_key(graph, node), node)
        if known is node or not set(node.output).isdisjoint(graph.outputs):
            kept.append(node)
            continue
        instead.update(zip(node.output, known.output, strict=True))
    graph.nodes = kept
    return len(kept) < before


def _key(graph: OperatorGraph, node: onnx.NodeProto) -> tuple[object, ...]:
    attributes = sorted(x.SerializeToString(deterministic=True) for x in node.attribute)
    inputs = tuple(_identity(graph, name) for name in node.input)
    outputs = tuple(bool(name) for name in node.output)
    if all(name in graph.constants for name in reads(node)):  # each reader has its own
        inputs = (*inputs, node.output[0])
    return node.domain, node.op_type, tuple(attributes), inputs, outputs


def _identity(graph: OperatorGraph, name: str) -> object:
    array = graph.constants.get(name)
    if array is None or array.nbytes >= INLINE_BYTES:
        return name
    return array.dtype.name, array.shape, array.tobytes()


def extract_constant_outputs(graph: OperatorGraph, label: str) -> dict[str, Array]:
    """Remove the constant outputs of `graph`, which is folded; return their values.

    Raises `ModelError` if no output remains, or if a value cannot be computed.
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
    """Compute the value of an output, executing the operators that folding left alone."""
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


_IN_ORDER = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


def merge_views(graph: OperatorGraph) -> bool:
    """Merge pairs of reshapes, transpositions or concatenations; return whether any was.

    Return whether there was any.
    """
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
    """Let `second` read what `first` reads, if possible; return whether it does."""
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
    assert attribute(node, name) is not None  # noqa: S101 - only existing nodes are changed
    for found in node.attribute:
        if found.name == name:
            found.ints[:] = values


_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"})
"""They keep the values in their order, so one that also keeps the shape has no effect."""

_OF_ONE = frozenset({"Sum", "Max", "Min", "Mean", "Concat"})


def remove_no_ops(graph: OperatorGraph) -> bool:
    """Remove operators without effect; return whether there were any.

    The network's outputs keep their names: the layer that makes the input takes over the output's
    name. An operator directly between an input and an output of the network stays.
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
    """Return which input, not a constant, a node passes on unchanged."""
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
        steps = attribute_or_input(graph, node, 4, "", 10)
        return 0 if steps is not None and all(step == 1 for step in steps) else None
    if operator == "Pad":
        pads = attribute_or_input(graph, node, 1, "pads", 11)
        return 0 if pads is not None and not any(pads) else None
    return None


def _is_inference(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    """Whether a dropout drops nothing and its mask is not read."""
    if any(node.output[1:]):
        return False
    if not has_input(node, 2):
        return True
    training = graph.constant(node, 2)
    return training is not None and not np.asarray(training).any()


def _neutral(graph: OperatorGraph, node: onnx.NodeProto) -> int | None:
    """Return the other input of a product or quotient with 1, or of a sum or difference with 0."""
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
