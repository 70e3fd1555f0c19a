"""The graph that simplification rewrites: operators, constants, and types of tensors."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
import onnx
from onnx import helper

from cnn.network import Array
from cnn.operators.attributes import has_input, integers
from cnn.operators.bodies import captured, reads, rename
from cnn.operators.standard import standard_opset
from cnn.reading.names import short


class OperatorGraph:
    """Operators in topological order, with constants and types by tensor name.

    `types` lacks a tensor of which nothing is known; a type lacks a shape that depends on the data.
    `sequences` has the members of a sequence, by its name, if they are known.
    """

    def __init__(self, proto: onnx.ModelProto, weights: dict[str, Array]) -> None:
        self.nodes = in_order(proto.graph.node)
        self.constants = weights
        self.inputs = tuple(value.name for value in proto.graph.input)
        self.outputs = tuple(value.name for value in proto.graph.output)
        self.opset_import = tuple(proto.opset_import)
        self.ir_version = proto.ir_version
        self.types: dict[str, onnx.TypeProto] = {
            value.name: value.type for value in proto.graph.input
        }
        self.opset = standard_opset(proto.opset_import)
        self.sequences: dict[str, tuple[str, ...]] = {}
        self._names = dict.fromkeys([*self.inputs, *self.outputs, *weights])
        self._names.update(dict.fromkeys(name for node in self.nodes for name in node.output))
        for name, array in weights.items():
            self.types[name] = type_of(array)

    def new_name(self, wanted: str) -> str:
        """Return an unused tensor name, `wanted` if possible."""
        wanted = short(wanted)
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}#{number}", number + 1
        self._names[name] = None
        return name

    def checkpoint(self) -> tuple[int, int]:
        """Return the state for `roll_back`.

        Until then, operators may only be appended, and only under new names.
        """
        return len(self.nodes), len(self._names)

    def roll_back(self, checkpoint: tuple[int, int]) -> None:
        """Remove the operators and the names that were added since the checkpoint."""
        nodes, names = checkpoint
        del self.nodes[nodes:]
        while len(self._names) > names:
            name, _ = self._names.popitem()
            self.constants.pop(name, None)
            self.types.pop(name, None)
            self.sequences.pop(name, None)

    def constant_bytes_since(self, checkpoint: tuple[int, int]) -> int:
        """Return the bytes of the constants that were added since the checkpoint."""
        added = islice(reversed(self._names), len(self._names) - checkpoint[1])
        return sum(self.constants[name].nbytes for name in added if name in self.constants)

    def add_constant(self, wanted: str, array: Array) -> str:
        """Add a constant; return its name, which is `wanted` or one like it."""
        name = self.new_name(wanted)
        self.set_constant(name, array)
        return name

    def set_constant(self, name: str, array: Array) -> None:
        """Make `name` this constant."""
        self.constants[name] = array
        self.types[name] = type_of(array)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return the static shape of a tensor, None if it is unknown."""
        found = self.types.get(name)
        if found is None or not found.HasField("tensor_type"):
            return None
        if not found.tensor_type.HasField("shape"):
            return None
        dims = found.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            return None
        return tuple(dim.dim_value for dim in dims)

    def element_type(self, name: str) -> int:
        """Return the ONNX element type of a tensor, `UNDEFINED` if it is unknown."""
        found = self.types.get(name)
        return found.tensor_type.elem_type if found is not None else onnx.TensorProto.UNDEFINED

    def has_same_type(self, one: str, other: str) -> bool:
        """Whether two tensors are known to have the same static shape and element type."""
        shape, kind = self.shape(one), self.element_type(one)
        known = shape is not None and kind != onnx.TensorProto.UNDEFINED
        return known and shape == self.shape(other) and kind == self.element_type(other)

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """Return the value of a node's input if it is present and constant."""
        return self.constants.get(node.input[index]) if has_input(node, index) else None

    def readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        """Return, for each tensor, the nodes that read it, each as often as it does."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in (*node.input, *captured(node)):
                found.setdefault(name, []).append(node)
        return found

    def producers(self) -> Mapping[str, onnx.NodeProto]:
        """Return the node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.output if name}

    def sort(self) -> None:
        """Restore the topological order after nodes were added."""
        self.nodes = in_order(self.nodes)

    def rename(self, new_names: Mapping[str, str]) -> None:
        """Rename tensors in all nodes."""
        for node in self.nodes:
            rename(node, new_names)

    def remove_unread(self) -> bool:
        """Remove the nodes that no output depends on, and unread optional outputs.

        Returns whether there were such nodes.
        """
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted.isdisjoint(node.output):
                continue
            while len(node.output) > 1 and self._is_spare(node) and node.output[-1] not in wanted:
                del node.output[-1]
            kept.append(node)
            wanted.update(reads(node))
        is_changed = len(kept) < len(self.nodes)
        self.nodes = kept[::-1]
        return is_changed

    def _is_spare(self, node: onnx.NodeProto) -> bool:
        """Whether the last output of an operator is optional."""
        if not onnx.defs.has(node.op_type, self.opset, node.domain):
            return False
        formal = onnx.defs.get_schema(node.op_type, self.opset, node.domain).outputs
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        last = len(node.output) - 1
        return last < len(formal) and formal[last].option == optional

    def described(self) -> Iterator[onnx.ValueInfoProto]:
        """Yield the types of all tensors that nodes make."""
        for node in self.nodes:
            for name in node.output:
                if name in self.types:
                    yield helper.make_value_info(name, self.types[name])


def in_order(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Sort the nodes topologically, keeping their order where possible (Kahn's algorithm).

    Nodes on a cycle, and those that depend on one, come last. Some converters append the casts that
    they insert, so files need not be sorted.
    """
    found = list(nodes)
    maker = {name: index for index, node in enumerate(found) for name in node.output if name}
    awaited: list[set[int]] = []
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(found):
        awaited.append({maker[name] for name in reads(node) if name in maker})
        for before in awaited[index]:
            readers.setdefault(before, []).append(index)
    ready = [index for index, makers in enumerate(awaited) if not makers]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for reader in readers.get(index, []):
            awaited[reader].discard(index)
            if not awaited[reader]:
                heapq.heappush(ready, reader)
    placed = set(order)
    order += [index for index in range(len(found)) if index not in placed]
    return [found[index] for index in order]


def type_of(array: Array) -> onnx.TypeProto:
    """Return the ONNX type of an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(kind, array.shape)


def attribute_or_input(
    graph: OperatorGraph, node: onnx.NodeProto, index: int, name: str, since: int
) -> list[int] | None:
    """Return integers from an attribute, or from an input since operator set `since`.

    The list is empty if they are absent; the result is None if they are not constant.
    """
    if graph.opset < since:
        return integers(node, name)
    if not has_input(node, index):
        return []
    array = graph.constant(node, index)
    return None if array is None else [int(x) for x in np.asarray(array).reshape(-1)]
