"""Computes in another order of axes where that leaves fewer transpositions.

A network whose images are [rows, columns, channels] (Keras) comes with a transposition in front of
each convolution and another one behind it. Most operators between two convolutions compute the same
in any order of the axes (`cnn.simplify.axes`). Those that read one another form a *region*, all of
whose tensors are y = T(x) for one transposition T. The region is computed on the x instead:

- a T in front of it falls away, and so does a T⁻¹ behind it; another transposition there becomes
  one with T⁻¹ or T;
- any other tensor that enters gets a T⁻¹, and any that leaves a T; constants are transposed.

That is done only where it leaves fewer transpositions and does not transpose more elements; so it
ends. A tensor in another order has another name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import helper

from cnn.read.names import short
from cnn.read.weights import names_read
from cnn.simplify.axes import Carried, Order, carried
from cnn.simplify.graph import OperatorGraph, integers


def change_layouts(graph: OperatorGraph) -> bool:
    """Change each region for which that pays; whether there was any."""
    orders = {order for node in graph.nodes if (order := _order(node))}
    is_changed = False
    for order in sorted(orders):
        change = _Change(graph, order)
        paying = [region for region in change.regions() if change.pays(region)]
        touched: set[int] = set()
        for region in paying:
            beside = change.transpositions(region)
            if touched.isdisjoint(beside):  # else what it pays is to be counted again
                change.carry_out(region)
                touched |= beside
        if paying:
            graph.sort()
            graph.remove_unread()
            is_changed = True
    return is_changed


def _order(node: onnx.NodeProto | None) -> Order | None:
    """The `perm` of a transposition that says it, and changes anything."""
    if node is None or node.op_type != "Transpose":
        return None
    order = tuple(integers(node, "perm"))
    return order if order != tuple(sorted(order)) else None


def _then(first: Order, second: Order) -> Order:
    """The transposition that does the work of two."""
    return tuple(first[axis] for axis in second)


def _inverse(order: Order) -> Order:
    return tuple(int(axis) for axis in np.argsort(order))


Region = frozenset[int]
"""Nodes, by their numbers."""


class _Change:
    """What one transposition would change in a graph, where the nodes are as they were at first."""

    def __init__(self, graph: OperatorGraph, order: Order) -> None:
        self._graph = graph
        self._order = order
        self._back = _inverse(order)
        self._nodes = tuple(graph.nodes)
        self._producers = graph.producers()
        self._kept = set(graph.outputs)
        """What must be there under its name and in its order."""
        self._readers: dict[str, list[int]] = {}
        self._carried: dict[int, Carried] = {}
        self._maker: dict[str, int] = {}
        for number, node in enumerate(self._nodes):
            for name in node.input:
                self._readers.setdefault(name, []).append(number)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    self._kept.update(names_read(attribute.g))
            found = carried(graph, node, order)
            if found is not None:
                self._carried[number] = found
                self._maker |= {node.output[index]: number for index in found.outputs}

    def regions(self) -> Iterator[Region]:
        """Nodes that read one another, or the same transposition's output."""
        left = set(self._carried)
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
        node, found = self._nodes[number], self._carried[number]
        for index in found.outputs:
            yield from self._carrying(node.output[index])
        for index in found.inputs:
            name = node.input[index]
            if name in self._maker:
                yield self._maker[name]
            if name in self._maker or _order(self._producers.get(name)) is not None:
                yield from self._carrying(name)

    def _carrying(self, name: str) -> Iterator[int]:
        """The readers of a tensor that carry it."""
        for number in self._readers.get(name, []):
            if number in self._carried and name in self._entering_of(number):
                yield number

    def _entering_of(self, number: int) -> list[str]:
        node = self._nodes[number]
        names = [node.input[index] for index in self._carried[number].inputs]
        return [name for name in names if name and name not in self._graph.constants]

    def pays(self, region: Region) -> bool:
        """Whether fewer transpositions are left, which move no more elements."""
        fewer = moved = 0
        for name in self._entering(region):
            order = _order(self._before(name, region))
            if order is not None and self._is_for(name, region):
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
            if self._is_asked_for(name, region):
                fewer, moved = fewer - 1, moved - self._size(name)
        return fewer > 0 and moved >= 0

    def carry_out(self, region: Region) -> None:
        """Change the region; the nodes are then in no order."""
        instead = {name: self._entered(name, region) for name in self._entering(region)}
        for name in self._leaving(region):
            instead[name] = self._renamed(name)
        for name in self._leaving(region):
            for number in self._outside(name, region):
                order = _order(self._nodes[number])
                if order is not None:
                    _set_order(self._nodes[number], _then(self._order, order))
                    self._nodes[number].input[0] = instead[name]
            if self._is_asked_for(name, region):
                self._insert(instead[name], name, self._order)
        for number in region:
            node, found = self._nodes[number], self._carried[number]
            found.renumber()
            for index in found.inputs:
                node.input[index] = self._read(node.input[index], instead)
            for index in found.outputs:
                node.output[index] = instead[node.output[index]]

    def transpositions(self, region: Region) -> set[int]:
        """Those that a region reads from, and those that read from it."""
        found = {
            number
            for name in self._leaving(region)
            for number in self._outside(name, region)
            if _order(self._nodes[number]) is not None
        }
        before = {id(self._before(name, region)) for name in self._entering(region)}
        return found | {n for n, node in enumerate(self._nodes) if id(node) in before}

    def _before(self, name: str, region: Region) -> onnx.NodeProto | None:
        """The transposition that makes what enters a region, unless it reads what the region
        makes."""
        producer = self._producers.get(name)
        if producer is None or _order(producer) is None:
            return None
        return None if self._maker.get(producer.input[0]) in region else producer

    def _entering(self, region: Region) -> list[str]:
        """What the region reads in the order that is changed and does not make itself."""
        made = set(self._leaving(region))
        names = (name for number in sorted(region) for name in self._entering_of(number))
        return list(dict.fromkeys(name for name in names if name not in made))

    def _leaving(self, region: Region) -> list[str]:
        """What the region makes in the order that is changed."""
        return [
            self._nodes[number].output[index]
            for number in sorted(region)
            for index in self._carried[number].outputs
        ]

    def _outside(self, name: str, region: Region) -> list[int]:
        """The readers of a tensor that do not belong to a region, or do not carry it."""
        return [
            number
            for number in self._readers.get(name, [])
            if number not in region or not self._carries(number, name)
        ]

    def _carries(self, number: int, name: str) -> bool:
        """Whether an operator carries a tensor wherever it reads it."""
        at = {index for index, read in enumerate(self._nodes[number].input) if read == name}
        return at <= set(self._carried[number].inputs)

    def _is_for(self, name: str, region: Region) -> bool:
        """Whether nothing else reads what enters a region."""
        return name not in self._kept and not self._outside(name, region)

    def _is_asked_for(self, name: str, region: Region) -> bool:
        """Whether what a region makes is needed in the old order."""
        others = (_order(self._nodes[number]) for number in self._outside(name, region))
        return name in self._kept or any(order is None for order in others)

    def _size(self, name: str) -> int:
        return math.prod(self._graph.shape(name) or ())

    def _entered(self, name: str, region: Region) -> str:
        """A tensor from outside in the new order."""
        before = self._before(name, region)
        order = _order(before)
        if before is None or order is None:
            source, whole = name, self._back
        elif order == self._order:
            return str(before.input[0])
        else:
            source, whole = before.input[0], _then(order, self._back)
        made = self._renamed(name)
        self._insert(source, made, whole)
        return made

    def _renamed(self, name: str) -> str:
        """A new tensor: the one called `name` in the new order."""
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
        """What is read in the new order in place of `name`."""
        array = self._graph.constants.get(name)
        if array is None or array.size == 1:
            return instead.get(name, name)
        whole = array.reshape((1,) * (len(self._order) - array.ndim) + array.shape)
        moved = np.ascontiguousarray(whole.transpose(self._back))
        return self._graph.add_constant(f"{name}_moved", moved)


def _set_order(node: onnx.NodeProto, order: Order) -> None:
    for found in node.attribute:
        if found.name == "perm":
            found.ints[:] = order
