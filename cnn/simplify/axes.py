"""Operators that compute the same in any order of the axes, and what they say of axes.

Let every tensor y that such an operator reads and makes be a transposition of another one,
`y = Transpose(x, perm=order)`: axis i of y is axis `order[i]` of x. Then the operator computes the
x that it makes from those that it reads, once it is renumbered: an axis i becomes `order[i]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper

from cnn.operators.supported import STANDARD_DOMAINS
from cnn.simplify.graph import OperatorGraph, given, has_input, integer

Order = tuple[int, ...]

_ONE_BY_ONE = frozenset({
    "Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu",
    "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
"""Element by element, of their first input."""

_BROADCASTING = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean",
    "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
})  # fmt: skip
"""Element by element, of all inputs, from operator set 7 on."""

_REDUCTIONS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
         "ReduceMin", "ReduceProd", "ReduceSumSquare"), 18,
    ) | {"ReduceSum": 13}
)  # fmt: skip
"""Operator → the operator set from which on its axes are an input."""

_ALONG_AN_AXIS = frozenset({"Concat", "Split", "Softmax", "LogSoftmax", "Hardmax"})
_CHOICES = frozenset({"ArgMax", "ArgMin"})
_QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_OPSET_OF_SOFTMAX_ON_ONE_AXIS = 13
_OPSET_OF_PADS_AS_INPUT = 11
_OPSET_OF_SLICES_AS_INPUT = 10


@dataclass(frozen=True, slots=True)
class Carried:
    """The inputs and outputs of an operator, by number, whose axes are in the order that is
    changed; and what is to be called to renumber it."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    renumber: Callable[[], None]


def carried(graph: OperatorGraph, node: onnx.NodeProto, order: Order) -> Carried | None:
    """How `node` computes in another order of axes; None if it does not, or if too little is known.

    Tensors in that order all have as many axes as `order`; constants may have fewer.
    """
    if node.domain not in STANDARD_DOMAINS or not has_input(node, 0):
        return None
    kind = node.op_type
    numbers = _Numbers(graph, node, order)
    found = None
    if kind in _ONE_BY_ONE:
        found = numbers.plain((0,))
    elif kind in _BROADCASTING and graph.opset >= 7:
        found = numbers.plain(range(len(node.input)))
    elif kind in _QUANTISERS:
        found = numbers.quantiser()
    elif kind in _ALONG_AN_AXIS:
        found = numbers.along_an_axis()
    elif kind in _REDUCTIONS:
        found = numbers.reduction(_REDUCTIONS[kind])
    elif kind in _CHOICES:
        found = numbers.choice()
    elif kind == "Pad":
        found = numbers.pad()
    elif kind == "Slice" and graph.opset >= _OPSET_OF_SLICES_AS_INPUT:
        found = numbers.slice()
    return found if found is not None and _has_ranks(graph, node, found, len(order)) else None


def _has_ranks(graph: OperatorGraph, node: onnx.NodeProto, found: Carried, rank: int) -> bool:
    """Whether all that is carried has `rank` axes; constants may have fewer, and are not all."""
    variables = 0
    for number in found.inputs:
        name = node.input[number]
        shape = graph.shape(name)
        if shape is None or len(shape) > rank:
            return False
        if name not in graph.constants:
            variables += 1
            if len(shape) != rank:
                return False
    made = [graph.shape(node.output[number]) for number in found.outputs]
    return variables > 0 and all(shape is not None and len(shape) == rank for shape in made)


@dataclass(frozen=True)
class _Numbers:
    """What an operator says of axes."""

    graph: OperatorGraph
    node: onnx.NodeProto
    order: Order

    @property
    def _rank(self) -> int:
        return len(self.order)

    def plain(self, inputs: Sequence[int]) -> Carried:
        """Nothing."""
        return Carried(tuple(inputs), (0,), lambda: None)

    def quantiser(self) -> Carried | None:
        """`axis`, of the scales."""
        scales = self.graph.shape(self.node.input[1])
        if scales is None or integer(self.node, "block_size", 0):
            return None
        if math.prod(scales) == 1:
            return self.plain((0,))
        return self._with_axis(integer(self.node, "axis", 1), (0,))

    def along_an_axis(self) -> Carried | None:
        """`axis`."""
        kind = self.node.op_type
        if kind == "Concat":
            return self._with_axis(integer(self.node, "axis", 0), range(len(self.node.input)))
        if kind == "Split":
            return self._with_axis(integer(self.node, "axis", 0), (0,))
        if self.graph.opset < _OPSET_OF_SOFTMAX_ON_ONE_AXIS:
            return None
        return self._with_axis(integer(self.node, "axis", -1), (0,))

    def choice(self) -> Carried | None:
        """`axis`, which is gone from the output unless it is kept."""
        axis = integer(self.node, "axis", 0)
        outputs = self._left([axis])
        return None if outputs is None else self._with_axis(axis, (0,), outputs)

    def reduction(self, since: int) -> Carried | None:
        """The axes, which are gone from the output unless they are kept."""
        axes = given(self.graph, self.node, 1, "axes", since)
        if axes is None or (not axes and integer(self.node, "noop_with_empty_axes", 0)):
            return None
        outputs = self._left(axes or range(self._rank))
        if outputs is None:
            return None
        return Carried((0,), outputs, lambda: self._set_axes(axes, 1, since) if axes else None)

    def pad(self) -> Carried | None:
        """One number for each axis, or for those that are named."""
        pads = given(self.graph, self.node, 1, "pads", _OPSET_OF_PADS_AS_INPUT)
        axes = given(self.graph, self.node, 3, "", 18)
        if pads is None or axes is None:
            return None
        if axes:
            return Carried((0,), (0,), lambda: self._set_axes(axes, 3, 18))
        if len(pads) != 2 * self._rank:
            return None

        def permute() -> None:
            moved = [0] * len(pads)
            for axis, place in enumerate(self.order):
                moved[place], moved[self._rank + place] = pads[axis], pads[self._rank + axis]
            self._set("pads", moved, 1, _OPSET_OF_PADS_AS_INPUT)

        return Carried((0,), (0,), permute)

    def slice(self) -> Carried | None:
        """The axes; without any, the first ones."""
        axes, starts = given(self.graph, self.node, 3, "", 10), self.graph.shape(self.node.input[1])
        if axes is None or starts is None:
            return None
        named = axes or list(range(starts[0]))
        return Carried((0,), (0,), lambda: self._set_axes(named, 3, 10))

    def _with_axis(
        self, axis: int, inputs: Sequence[int], outputs: Sequence[int] | None = None
    ) -> Carried | None:
        if not -self._rank <= axis < self._rank:
            return None

        def renumber() -> None:
            kept = [x for x in self.node.attribute if x.name != "axis"]
            del self.node.attribute[:]
            moved = helper.make_attribute("axis", self.order[axis % self._rank])
            self.node.attribute.extend([*kept, moved])

        made = range(len(self.node.output)) if outputs is None else outputs
        return Carried(tuple(inputs), tuple(made), renumber)

    def _left(self, axes: Sequence[int]) -> tuple[int, ...] | None:
        """The outputs that are in the changed order where these axes go; None if what is left of
        the axes would stand in another order."""
        if integer(self.node, "keepdims", 1):
            return (0,)
        gone = {axis % self._rank for axis in axes}
        left = [place for axis, place in enumerate(self.order) if axis not in gone]
        return () if left == sorted(left) else None

    def _set_axes(self, axes: Sequence[int], index: int, since: int) -> None:
        self._set("axes", [self.order[axis % self._rank] for axis in axes], index, since)

    def _set(self, name: str, values: list[int], index: int, since: int) -> None:
        """Let the attribute `name`, or from operator set `since` on input `index`, be `values`."""
        if self.graph.opset < since:
            kept = [x for x in self.node.attribute if x.name != name]
            del self.node.attribute[:]
            self.node.attribute.extend([*kept, helper.make_attribute(name, values)])
            return
        while len(self.node.input) <= index:
            self.node.input.append("")
        array = np.array(values, np.int64)
        self.node.input[index] = self.graph.add_constant(f"{self.node.output[0]}_{name}", array)
