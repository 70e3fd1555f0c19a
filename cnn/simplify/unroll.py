"""Unroll loops whose number of iterations is known, and inline branches and sequence operators.

A `Scan` has as many iterations as its sequences have elements. A `Loop` ends after its trip count,
or when its body returns a false condition, which is known once the operators that compute it are
folded. Iterations are therefore inlined one by one, and folded at once. If a condition turns out to
depend on the data, or a model would exceed `MOST_UNROLLED` operators or the limit on constants, the
changes are rolled back and the operator stays as it is.

A body reads its own inputs and initialisers, what its operators make, and any tensor of the
surrounding graphs. Its own tensors get new names each time it is inlined; captured tensors keep
theirs.

Scripted loops append their results to sequences. Once a loop is unrolled, the tensors in a sequence
are known, and the operators that split or join sequences are expressed with these tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnn.network import Array
from cnn.operators.attributes import attribute, has_input, integer, integers
from cnn.operators.bodies import renamed
from cnn.simplify.graph import OperatorGraph, in_order


class Body:
    """A body whose initialisers have been added to the constants of `graph`."""

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
        """Return the operator that makes an output, "" if that is captured or a constant."""
        name = self.outputs[output].name
        return next((node.op_type for node in self._nodes if name in node.output), "")

    def inlined(
        self, inputs: Sequence[str], called: Callable[[str], str]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """Return the operators for the inputs `inputs`, and the names of the outputs.

        `called` maps a name in the body to the one that is wanted in the graph.
        """
        names = {**self._initialisers, **dict(zip(self.inputs, inputs, strict=True))}
        for node in self._nodes:
            for name in filter(None, node.output):
                names[name] = self._graph.new_name(called(name))
        nodes = [renamed(node, names) for node in self._nodes]
        return nodes, [names.get(value.name, value.name) for value in self.outputs]


def body_of(graph: OperatorGraph, node: onnx.NodeProto, name: str) -> Body | None:
    """Return the body in the attribute `name` of a node; None if an initialiser is not an array."""
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


def inlined_branch(graph: OperatorGraph, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
    """Return the operators of the branch that an `If` with a constant condition takes."""
    is_then = bool(np.asarray(graph.constants[node.input[0]]).reshape(-1)[0])
    branch = body_of(graph, node, "then_branch" if is_then else "else_branch")
    if branch is None:
        return None
    first = next(filter(None, node.output), node.op_type)
    if len(branch.outputs) != len(node.output):
        return None
    nodes, made = branch.inlined((), lambda name: f"{first}/{name}")
    return [*nodes, *identities(made, node.output)]


def identities(made: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """Return operators that give tensors the names of outputs; unread outputs have no name."""
    return [
        helper.make_node("Identity", [name], [output])
        for name, output in zip(made, outputs, strict=False)
        if output
    ]


Members = tuple[str, ...]


def expand_sequence_operator(
    graph: OperatorGraph, node: onnx.NodeProto
) -> list[onnx.NodeProto] | None:
    """Return operators that make what `node` reads from a sequence, None if it reads none.

    If `node` makes a sequence with known members, these are recorded in `graph.sequences`.
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
    """Return an operator that adds an axis to a tensor, and the name of its output."""
    output = graph.new_name(f"{name}/1")
    if graph.opset < 13:
        return helper.make_node("Unsqueeze", [name], [output], axes=[axis]), output
    axes = graph.add_constant(f"{name}/axis", np.array([axis], np.int64))
    return helper.make_node("Unsqueeze", [name, axes], [output]), output


def _made(graph: OperatorGraph, node: onnx.NodeProto) -> Members | None:
    """Return the members of the sequence that a node makes, None if they are unknown."""
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
    """Return the position in a sequence that input `index` gives, `default` if it is absent.

    There are `places` positions; negative ones count from the end of the sequence. Returns None if
    the position depends on the data or does not exist.
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


MOST_UNROLLED = 10_000
"""The most operators in all iterations of a model, those that folding removes included."""

_MOST_BYTES = 256 << 20
"""The most bytes of constants in all iterations of a model."""

_SCAN_WITHOUT_BATCH = 9
"""The operator set from which `Scan` works on one sequence and not on a batch of them."""


class Unroller:
    """Unrolls the loops of `graph`; `fold` adds operators to the graph, or their values."""

    def __init__(
        self, graph: OperatorGraph, fold: Callable[[Iterable[onnx.NodeProto]], None]
    ) -> None:
        self._graph = graph
        self._fold = fold
        self._left = MOST_UNROLLED
        self._left_bytes = _MOST_BYTES

    def unroll(self, node: onnx.NodeProto) -> bool:
        """Add a `Loop` or `Scan` to the graph iteration by iteration.

        Returns False, and changes nothing, if that is impossible.
        """
        checkpoint = self._graph.checkpoint()
        body = body_of(self._graph, node, "body")
        is_done = body is not None and (
            self._unroll_loop(node, body)
            if node.op_type == "Loop"
            else self._unroll_scan(node, body)
        )
        if not is_done:
            self._graph.roll_back(checkpoint)
        return is_done

    def _unroll_loop(self, node: onnx.NodeProto, body: Body) -> bool:
        states = list(node.input[2:])
        if not all(states) or not (self._is_known(node, 0) and self._is_known(node, 1)):
            return False
        limit, is_going_on = self._number(node, 0), self._number(node, 1) != 0
        if len(body.inputs) != 2 + len(states) or len(body.outputs) < 1 + len(states):
            return False
        is_counted = limit is not None and body.maker(0) in ("", "Identity", "Constant")
        if limit is not None and is_counted and not self._is_affordable(limit, body):
            return False
        rows: list[list[str]] = []
        while is_going_on and (limit is None or len(rows) < limit):
            count = self._constant(node, f"iteration {len(rows)}", np.array(len(rows), np.int64))
            condition = self._constant(node, "condition", np.array(True))
            made = self._iteration(body, [count, condition, *states], len(rows))
            if made is None:
                return False
            states = made[1 : 1 + len(states)]
            rows.append(made[1 + len(states) :])
            if limit is None or len(rows) < limit:
                found = self._graph.constants.get(made[0])
                if found is None:
                    return False
                is_going_on = bool(found.reshape(-1)[0])
        scanned = body.outputs[1 + len(states) :]
        axes = [0] * len(scanned)
        return self._finish(node, states, rows, scanned, axes)

    def _unroll_scan(self, node: onnx.NodeProto, body: Body) -> bool:
        count = integer(node, "num_scan_inputs", 0)
        known = len(node.input) - count
        if self._graph.opset < _SCAN_WITHOUT_BATCH or count < 1 or known < 0 or not all(node.input):
            return False
        if len(body.inputs) != len(node.input) or len(body.outputs) < known:
            return False
        states, sequences = list(node.input[:known]), node.input[known:]
        axes = integers(node, "scan_input_axes", [0] * count)
        backwards = integers(node, "scan_input_directions", [0] * count)
        lengths = {self._length(name, axis) for name, axis in zip(sequences, axes, strict=True)}
        length = lengths.pop()
        if lengths or length is None or not self._is_affordable(length, body):
            return False
        rows: list[list[str]] = []
        for number in range(length):
            elements = []
            for name, axis, is_back in zip(sequences, axes, backwards, strict=True):
                place = length - 1 - number if is_back else number
                index = self._constant(node, f"place {place}", np.array(place, np.int64))
                elements.append(self._graph.new_name(f"{name}[{place}]"))
                self._fold([helper.make_node("Gather", [name, index], elements[-1:], axis=axis)])
            made = self._iteration(body, [*states, *elements], number)
            if made is None:
                return False
            states = made[:known]
            rows.append(made[known:])
        scanned = body.outputs[known:]
        axes = integers(node, "scan_output_axes", [0] * len(scanned))
        backwards = integers(node, "scan_output_directions", [0] * len(scanned))
        return self._finish(node, states, rows, scanned, axes, backwards)

    def _iteration(self, body: Body, inputs: Sequence[str], number: int) -> list[str] | None:
        """Add an iteration; return the names of its outputs, None if it exceeds a limit."""
        self._left -= len(body) + 1
        if self._left < 0 or self._left_bytes < 0:
            return None
        checkpoint = self._graph.checkpoint()
        nodes, made = body.inlined(inputs, lambda name: f"{name}[{number}]")
        for node in nodes:
            node.name = node.name and f"{node.name}[{number}]"
        self._fold(nodes)
        self._left_bytes -= self._graph.constant_bytes_since(checkpoint)
        return made

    def _finish(
        self,
        node: onnx.NodeProto,
        states: Sequence[str],
        rows: Sequence[Sequence[str]],
        scanned: Sequence[onnx.ValueInfoProto],
        axes: Sequence[int],
        backwards: Sequence[int] = (),
    ) -> bool:
        """Add the outputs: the last states, and the `scanned` ones stacked along an axis."""
        stacked = [(i, name) for i, name in enumerate(node.output[len(states) :]) if name]
        if not rows:
            for index, output in stacked:
                empty = _empty(scanned[index], axes[index])
                if empty is None:
                    return False
                self._graph.set_constant(output, empty)
        self._fold(identities(states, node.output))
        for index, output in stacked if rows else ():
            parts = [self._unsqueezed(row[index], axes[index]) for row in rows]
            if backwards and backwards[index]:
                parts.reverse()
            self._fold([helper.make_node("Concat", parts, [output], axis=axes[index])])
        return True

    def _unsqueezed(self, name: str, axis: int) -> str:
        node, output = unsqueeze(self._graph, name, axis)
        self._fold([node])
        return output

    def _constant(self, node: onnx.NodeProto, what: str, array: Array) -> str:
        first = next(filter(None, node.output), node.op_type)
        return self._graph.add_constant(f"{first}/{what}", array)

    def _is_known(self, node: onnx.NodeProto, index: int) -> bool:
        """Whether a number that a node reads is constant, or absent."""
        array = self._graph.constant(node, index)
        return not has_input(node, index) or (array is not None and array.size == 1)

    def _number(self, node: onnx.NodeProto, index: int) -> int | None:
        array = self._graph.constant(node, index)
        return None if array is None else int(array.reshape(-1)[0])

    def _length(self, name: str, axis: int) -> int | None:
        shape = self._graph.shape(name)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def _is_affordable(self, iterations: int, body: Body) -> bool:
        return iterations * (len(body) + 1) <= self._left


def _empty(described: onnx.ValueInfoProto, axis: int) -> Array | None:
    """Return the scanned output of no iterations, of length 0 along `axis`, if possible."""
    tensor = described.type.tensor_type
    if not tensor.HasField("shape") or not all(d.HasField("dim_value") for d in tensor.shape.dim):
        return None
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except KeyError:
        return None
    shape = [dim.dim_value for dim in tensor.shape.dim]
    shape.insert(axis % (len(shape) + 1), 0)
    return np.zeros(shape, dtype)
