"""Compute in another order of axes where that saves transpositions.

A network whose images are [rows, columns, channels] (Keras) has a transposition before and after
each convolution. Most operators between two convolutions compute the same in any order of the axes;
`permutable` returns how. Let every tensor y that such an operator reads and makes be y =
Transpose(x, perm=order): axis i of y is axis `order[i]` of x. Then the operator computes the x that
it makes from the x that it reads, once each axis i in its attributes is renumbered to `order[i]`.

Permutable operators that read one another form a *region*, all of whose tensors are y = T(x) for
one transposition T. The region is computed on the x instead:

- a T before it and a T⁻¹ after it disappear; another transposition there is composed with T⁻¹ or T;
- any other tensor that enters gets a T⁻¹, and any that leaves gets a T; constants are transposed.

This is done only where fewer transpositions remain and they move no more elements, so it
terminates. A tensor in another order gets another name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from cnn.operators.attributes import change_attributes, has_input, integer, integers
from cnn.operators.bodies import bodies, names_read
from cnn.operators.standard import (
    BROADCASTING,
    ELEMENTWISE,
    PADS_AS_INPUT_SINCE,
    QUANTISERS,
    REDUCTION_AXES_AS_INPUT_SINCE,
    SLICE_AS_INPUT_SINCE,
    SOFTMAX_ON_ONE_AXIS_SINCE,
    SOFTMAXES,
    STANDARD_DOMAINS,
)
from cnn.reading.names import short
from cnn.simplify.graph import OperatorGraph, attribute_or_input

Order = tuple[int, ...]

_ALONG_AN_AXIS = frozenset({"Concat", "Split"}) | SOFTMAXES
_CHOICES = frozenset({"ArgMax", "ArgMin"})


@dataclass(frozen=True, slots=True)
class Permutable:
    """An operator that computes the same in another order of axes.

    `inputs` and `outputs` are the indices of those whose axes are permuted; `renumber` updates the
    operator's attributes.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    renumber: Callable[[], None]


def permutable(graph: OperatorGraph, node: onnx.NodeProto, order: Order) -> Permutable | None:
    """Return how `node` computes in another order of axes, None if it is not known to.

    Permuted tensors have as many axes as `order`; constants may have fewer.
    """
    if node.domain not in STANDARD_DOMAINS or not has_input(node, 0):
        return None
    kind = node.op_type
    rules = _AxisRules(graph, node, order)
    found = None
    if kind in ELEMENTWISE:
        found = rules.plain((0,))
    elif kind in BROADCASTING and graph.opset >= 7:
        found = rules.plain(range(len(node.input)))
    elif kind in QUANTISERS:
        found = rules.quantiser()
    elif kind in _ALONG_AN_AXIS:
        found = rules.along_an_axis()
    elif kind in REDUCTION_AXES_AS_INPUT_SINCE:
        found = rules.reduction(REDUCTION_AXES_AS_INPUT_SINCE[kind])
    elif kind in _CHOICES:
        found = rules.choice()
    elif kind == "Pad":
        found = rules.pad()
    elif kind == "Slice" and graph.opset >= SLICE_AS_INPUT_SINCE:
        found = rules.slice()
    return found if found is not None and _has_ranks(graph, node, found, len(order)) else None


def _has_ranks(graph: OperatorGraph, node: onnx.NodeProto, found: Permutable, rank: int) -> bool:
    """Whether all permuted tensors, constants perhaps excepted, have `rank` axes."""
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
class _AxisRules:
    """Where an operator names axes, by kind of operator."""

    graph: OperatorGraph
    node: onnx.NodeProto
    order: Order

    @property
    def _rank(self) -> int:
        return len(self.order)

    def plain(self, inputs: Sequence[int]) -> Permutable:
        """For operators that name no axis."""
        return Permutable(tuple(inputs), (0,), lambda: None)

    def quantiser(self) -> Permutable | None:
        """For quantisers: `axis` is that of the scales."""
        scales = self.graph.shape(self.node.input[1])
        if scales is None or integer(self.node, "block_size", 0):
            return None
        if math.prod(scales) == 1:
            return self.plain((0,))
        return self._with_axis(integer(self.node, "axis", 1), (0,))

    def along_an_axis(self) -> Permutable | None:
        """For operators with one `axis`."""
        kind = self.node.op_type
        if kind == "Concat":
            return self._with_axis(integer(self.node, "axis", 0), range(len(self.node.input)))
        if kind == "Split":
            return self._with_axis(integer(self.node, "axis", 0), (0,))
        if self.graph.opset < SOFTMAX_ON_ONE_AXIS_SINCE:
            return None
        return self._with_axis(integer(self.node, "axis", -1), (0,))

    def choice(self) -> Permutable | None:
        """For operators with one `axis`, which the output lacks unless it is kept."""
        axis = integer(self.node, "axis", 0)
        outputs = self._left([axis])
        return None if outputs is None else self._with_axis(axis, (0,), outputs)

    def reduction(self, since: int) -> Permutable | None:
        """For operators with several axes, which the output lacks unless they are kept."""
        axes = attribute_or_input(self.graph, self.node, 1, "axes", since)
        if axes is None or (not axes and integer(self.node, "noop_with_empty_axes", 0)):
            return None
        outputs = self._left(axes or range(self._rank))
        if outputs is None:
            return None
        return Permutable((0,), outputs, lambda: self._set_axes(axes, 1, since) if axes else None)

    def pad(self) -> Permutable | None:
        """For `Pad`: one number per axis, or per named axis."""
        pads = attribute_or_input(self.graph, self.node, 1, "pads", PADS_AS_INPUT_SINCE)
        axes = attribute_or_input(self.graph, self.node, 3, "", 18)
        if pads is None or axes is None:
            return None
        if axes:
            return Permutable((0,), (0,), lambda: self._set_axes(axes, 3, 18))
        if len(pads) != 2 * self._rank:
            return None

        def permute() -> None:
            moved = [0] * len(pads)
            for axis, place in enumerate(self.order):
                moved[place], moved[self._rank + place] = pads[axis], pads[self._rank + axis]
            self._set("pads", moved, 1, PADS_AS_INPUT_SINCE)

        return Permutable((0,), (0,), permute)

    def slice(self) -> Permutable | None:
        """For `Slice`: the named axes, by default the first ones."""
        axes = attribute_or_input(self.graph, self.node, 3, "", SLICE_AS_INPUT_SINCE)
        starts = self.graph.shape(self.node.input[1])
        if axes is None or starts is None:
            return None
        named = axes or list(range(starts[0]))
        return Permutable((0,), (0,), lambda: self._set_axes(named, 3, 10))

    def _with_axis(
        self, axis: int, inputs: Sequence[int], outputs: Sequence[int] | None = None
    ) -> Permutable | None:
        if not -self._rank <= axis < self._rank:
            return None

        def renumber() -> None:
            change_attributes(self.node, {"axis": self.order[axis % self._rank]})

        made = range(len(self.node.output)) if outputs is None else outputs
        return Permutable(tuple(inputs), tuple(made), renumber)

    def _left(self, axes: Sequence[int]) -> tuple[int, ...] | None:
        """Return the permuted outputs if these axes are removed.

        Returns None if the remaining axes would be in another order.
        """
        if integer(self.node, "keepdims", 1):
            return (0,)
        gone = {axis % self._rank for axis in axes}
        left = [place for axis, place in enumerate(self.order) if axis not in gone]
        return () if left == sorted(left) else None

    def _set_axes(self, axes: Sequence[int], index: int, since: int) -> None:
        self._set("axes", [self.order[axis % self._rank] for axis in axes], index, since)

    def _set(self, name: str, values: list[int], index: int, since: int) -> None:
        """Set the attribute `name`, or input `index` from operator set `since` on, to `values`."""
        if self.graph.opset < since:
            change_attributes(self.node, {name: values})
            return
        while len(self.node.input) <= index:
            self.node.input.append("")
        array = np.array(values, np.int64)
        self.node.input[index] = self.graph.add_constant(f"{self.node.output[0]}_{name}", array)


def change_layouts(graph: OperatorGraph) -> bool:
    """Change each region where that saves transpositions; return whether there was any."""
    orders = {order for node in graph.nodes if (order := _order(node))}
    is_changed = False
    for order in sorted(orders):
        change = _Change(graph, order)
        paying = [region for region in change.regions() if change.pays(region)]
        touched: set[int] = set()
        for region in paying:
            beside = change.transpositions(region)
            if touched.isdisjoint(beside):  # otherwise count its gain again
                change.apply(region)
                touched |= beside
        if paying:
            graph.sort()
            graph.remove_unread()
            is_changed = True
    return is_changed


def _order(node: onnx.NodeProto | None) -> Order | None:
    """Return the `perm` of a transposition that states it and has an effect."""
    if node is None or node.op_type != "Transpose":
        return None
    order = tuple(integers(node, "perm"))
    return order if order != tuple(sorted(order)) else None


def _composed(first: Order, second: Order) -> Order:
    """Return the transposition that is equal to two."""
    return tuple(first[axis] for axis in second)


def _inverse(order: Order) -> Order:
    return tuple(int(axis) for axis in np.argsort(order))


Region = frozenset[int]
"""Nodes, by their indices."""


class _Change:
    """The effect of one transposition on a graph; indices are those of the original nodes."""

    def __init__(self, graph: OperatorGraph, order: Order) -> None:
        self._graph = graph
        self._order = order
        self._back = _inverse(order)
        self._nodes = tuple(graph.nodes)
        self._producers = graph.producers()
        self._kept = set(graph.outputs)
        """Tensors that must exist under their names and in their order."""
        self._readers: dict[str, list[int]] = {}
        self._permutable: dict[int, Permutable] = {}
        self._maker: dict[str, int] = {}
        for number, node in enumerate(self._nodes):
            for name in node.input:
                self._readers.setdefault(name, []).append(number)
            for body in bodies(node):
                self._kept.update(names_read(body))
            found = permutable(graph, node, order)
            if found is not None:
                self._permutable[number] = found
                self._maker |= {node.output[index]: number for index in found.outputs}

    def regions(self) -> Iterator[Region]:
        """Yield sets of nodes that read one another, or the same transposition's output."""
        left = set(self._permutable)
        while left:
            region, waiting = set(), [min(left)]
            while waiting:
                number = waiting.pop()
                if number in left:
                    left.remove(number)
                    region.add(number)
                    waiting += self._neighbours(number)
            yield frozenset(region)

    def _neighbours(self, number: int) -> Iterator[int]:
        node, found = self._nodes[number], self._permutable[number]
        for index in found.outputs:
            yield from self._carrying(node.output[index])
        for index in found.inputs:
            name = node.input[index]
            if name in self._maker:
                yield self._maker[name]
            if name in self._maker or _order(self._producers.get(name)) is not None:
                yield from self._carrying(name)

    def _carrying(self, name: str) -> Iterator[int]:
        """Yield the readers of a tensor that permute it."""
        for number in self._readers.get(name, []):
            if number in self._permutable and name in self._entering_of(number):
                yield number

    def _entering_of(self, number: int) -> list[str]:
        node = self._nodes[number]
        names = [node.input[index] for index in self._permutable[number].inputs]
        return [name for name in names if name and name not in self._graph.constants]

    def pays(self, region: Region) -> bool:
        """Whether fewer transpositions remain, and they move no more elements."""
        fewer = moved = 0
        for name in self._entering(region):
            order = _order(self._before(name, region))
            if order is not None and self._is_read_only_by(name, region):
                fewer, moved = fewer + 1, moved + self._size(name)
            if order != self._order:
                fewer, moved = fewer - 1, moved - self._size(name)
        for name in self._leaving(region):
            for number in self._outside(name, region):
                order = _order(self._nodes[number])
                if order is None or self._nodes[number].output[0] in self._kept:
                    continue
                if order == self._back:
                    fewer, moved = fewer + 1, moved + self._size(name)
            if self._is_needed_in_old_order(name, region):
                fewer, moved = fewer - 1, moved - self._size(name)
        return fewer > 0 and moved >= 0

    def apply(self, region: Region) -> None:
        """Change the region; afterwards the nodes are in no particular order."""
        instead = {name: self._entered(name, region) for name in self._entering(region)}
        for name in self._leaving(region):
            instead[name] = self._renamed(name)
        for name in self._leaving(region):
            for number in self._outside(name, region):
                order = _order(self._nodes[number])
                if order is not None:
                    change_attributes(self._nodes[number], {"perm": _composed(self._order, order)})
                    self._nodes[number].input[0] = instead[name]
            if self._is_needed_in_old_order(name, region):
                self._insert(instead[name], name, self._order)
        for number in region:
            node, found = self._nodes[number], self._permutable[number]
            found.renumber()
            for index in found.inputs:
                node.input[index] = self._read(node.input[index], instead)
            for index in found.outputs:
                node.output[index] = instead[node.output[index]]

    def transpositions(self, region: Region) -> set[int]:
        """Return the transpositions that a region reads from, and those that read from it."""
        found = {
            number
            for name in self._leaving(region)
            for number in self._outside(name, region)
            if _order(self._nodes[number]) is not None
        }
        before = {id(self._before(name, region)) for name in self._entering(region)}
        return found | {n for n, node in enumerate(self._nodes) if id(node) in before}

    def _before(self, name: str, region: Region) -> onnx.NodeProto | None:
        """Return the transposition that makes what enters a region from outside it."""
        producer = self._producers.get(name)
        if producer is None or _order(producer) is None:
            return None
        return None if self._maker.get(producer.input[0]) in region else producer

    def _entering(self, region: Region) -> list[str]:
        """Return what the region reads in the permuted order and does not make itself."""
        made = set(self._leaving(region))
        names = (name for number in sorted(region) for name in self._entering_of(number))
        return list(dict.fromkeys(name for name in names if name not in made))

    def _leaving(self, region: Region) -> list[str]:
        """Return what the region makes in the permuted order."""
        return [
            self._nodes[number].output[index]
            for number in sorted(region)
            for index in self._permutable[number].outputs
        ]

    def _outside(self, name: str, region: Region) -> list[int]:
        """Return the readers of a tensor outside a region, and those that do not permute it."""
        return [
            number
            for number in self._readers.get(name, [])
            if number not in region or not self._carries(number, name)
        ]

    def _carries(self, number: int, name: str) -> bool:
        """Whether an operator permutes a tensor wherever it reads it."""
        at = {index for index, read in enumerate(self._nodes[number].input) if read == name}
        return at <= set(self._permutable[number].inputs)

    def _is_read_only_by(self, name: str, region: Region) -> bool:
        """Whether nothing but the region reads a tensor that enters it."""
        return name not in self._kept and not self._outside(name, region)

    def _is_needed_in_old_order(self, name: str, region: Region) -> bool:
        """Whether a tensor that the region makes is also needed in the old order."""
        others = (_order(self._nodes[number]) for number in self._outside(name, region))
        return name in self._kept or any(order is None for order in others)

    def _size(self, name: str) -> int:
        return math.prod(self._graph.shape(name) or ())

    def _entered(self, name: str, region: Region) -> str:
        """Return a tensor from outside in the new order."""
        before = self._before(name, region)
        order = _order(before)
        if before is None or order is None:
            source, whole = name, self._back
        elif order == self._order:
            return str(before.input[0])
        else:
            source, whole = before.input[0], _composed(order, self._back)
        made = self._renamed(name)
        self._insert(source, made, whole)
        return made

    def _renamed(self, name: str) -> str:
        """Add the tensor that is `name` in the new order; return its name."""
        graph = self._graph
        shape = graph.shape(name)
        assert shape is not None  # noqa: S101 - else nothing carries it
        made = graph.new_name(f"{name}_moved")
        graph.types[made] = helper.make_tensor_type_proto(
            graph.element_type(name), [shape[axis] for axis in self._back]
        )
        return made

    def _insert(self, source: str, name: str, order: Order) -> None:
        called = short(f"{name}_transposed")
        self._graph.nodes.append(
            helper.make_node("Transpose", [source], [name], called, perm=order)
        )

    def _read(self, name: str, instead: Mapping[str, str]) -> str:
        """Return what to read in the new order instead of `name`."""
        array = self._graph.constants.get(name)
        if array is None or array.size == 1:
            return instead.get(name, name)
        whole = array.reshape((1,) * (len(self._order) - array.ndim) + array.shape)
        moved = np.ascontiguousarray(whole.transpose(self._back))
        return self._graph.add_constant(f"{name}_moved", moved)
