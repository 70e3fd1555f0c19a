"""`Loop` and `Scan` written out, where it is known how often their bodies run.

A `Scan` runs as often as its sequences are long. A `Loop` ends after its trip count, or when its
body says so. Whether it does is known once the operators that compute the condition are folded, and
so iterations are written out one by one and folded at once. If a condition turns out to depend on
the data, or a model comes to more than `MOST_UNROLLED` operators of iterations, or to very large
constants, what was written out is taken back and the operator stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import onnx
from onnx import helper

from cnn.read.weights import Array
from cnn.simplify.bodies import Body, body_of, handed_on
from cnn.simplify.graph import OperatorGraph, has_input, integer, integers
from cnn.simplify.sequences import unsqueeze

MOST_UNROLLED = 10_000
"""Operators of all iterations of a model, those included that folding removes."""

_MOST_BYTES = 256 << 20
"""Of the constants that come of all iterations of a model."""

_SCAN_WITHOUT_BATCH = 9
"""The operator set from which `Scan` works on one sequence and not on a batch of them."""


class Unroller:
    """Writes out the loops of `graph`; `fold` adds operators to the graph, or their values."""

    def __init__(
        self, graph: OperatorGraph, fold: Callable[[Iterable[onnx.NodeProto]], None]
    ) -> None:
        self._graph = graph
        self._fold = fold
        self._left = MOST_UNROLLED
        self._left_bytes = _MOST_BYTES

    def unroll(self, node: onnx.NodeProto) -> bool:
        """Add a `Loop` or `Scan` to the graph iteration by iteration; False, and no change, if
        that cannot be done."""
        mark = self._graph.mark()
        body = body_of(self._graph, node, "body")
        is_done = body is not None and (
            self._unroll_loop(node, body)
            if node.op_type == "Loop"
            else self._unroll_scan(node, body)
        )
        if not is_done:
            self._graph.return_to(mark)
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
        """Add an iteration; the names of its outputs, None if it does not fit in any more."""
        self._left -= len(body) + 1
        if self._left < 0 or self._left_bytes < 0:
            return None
        mark = self._graph.mark()
        nodes, made = body.written_out(inputs, lambda name: f"{name}[{number}]")
        for node in nodes:
            node.name = node.name and f"{node.name}[{number}]"
        self._fold(nodes)
        self._left_bytes -= self._graph.constant_bytes_since(mark)
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
        """Make the outputs of the operator: the last states, and for each of the body's outputs
        that are `scanned` its values in all iterations, stacked along an axis."""
        stacked = [(i, name) for i, name in enumerate(node.output[len(states) :]) if name]
        if not rows:
            for index, output in stacked:
                empty = _empty(scanned[index], axes[index])
                if empty is None:
                    return False
                self._graph.set_constant(output, empty)
        self._fold(handed_on(states, node.output))
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
        """Whether a number that a node reads is constant, or not given."""
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
    """What no iteration has made: an array of length 0 along `axis`, if its shape is known."""
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
