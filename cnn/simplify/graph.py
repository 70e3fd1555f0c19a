"""A network while it is simplified: its operators, its constants, and every tensor's type."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
import onnx
from onnx import helper

from cnn.operators.supported import STANDARD_DOMAINS
from cnn.reading.bodies import captured, reads, rename
from cnn.reading.names import short
from cnn.reading.weights import Array

Value = float | int | bytes | list[int] | list[float] | list[bytes] | onnx.TensorProto | None


class OperatorGraph:
    """Operators in topological order, which files need not keep; `constants` and `types` by tensor
    name; the members of `sequences` by theirs, if they are known.

    A type is absent where nothing is known, and has no shape where that depends on the data.
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
        self.opset = max(x.version for x in proto.opset_import if x.domain in STANDARD_DOMAINS)
        self.sequences: dict[str, tuple[str, ...]] = {}
        self._names = dict.fromkeys([*self.inputs, *self.outputs, *weights])
        self._names.update(dict.fromkeys(name for node in self.nodes for name in node.output))
        for name, array in weights.items():
            self.types[name] = type_of(array)

    def new_name(self, wanted: str) -> str:
        """A tensor name that nothing has yet."""
        wanted = short(wanted)
        name, number = wanted, 2
        while name in self._names:
            name, number = f"{wanted}#{number}", number + 1
        self._names[name] = None
        return name

    def checkpoint(self) -> tuple[int, int]:
        """The present state, for `return_to`: operators may be added until then, at the end and
        under new names."""
        return len(self.nodes), len(self._names)

    def roll_back(self, checkpoint: tuple[int, int]) -> None:
        """Forget the operators and the names that were added since the mark."""
        nodes, names = checkpoint
        del self.nodes[nodes:]
        while len(self._names) > names:
            name, _ = self._names.popitem()
            self.constants.pop(name, None)
            self.types.pop(name, None)
            self.sequences.pop(name, None)

    def constant_bytes_since(self, checkpoint: tuple[int, int]) -> int:
        """The bytes of the constants whose names were added since the mark."""
        added = islice(reversed(self._names), len(self._names) - checkpoint[1])
        return sum(self.constants[name].nbytes for name in added if name in self.constants)

    def add_constant(self, wanted: str, array: Array) -> str:
        """Add a constant; its name is `wanted` or one like it."""
        name = self.new_name(wanted)
        self.set_constant(name, array)
        return name

    def set_constant(self, name: str, array: Array) -> None:
        """Let `name` be this constant."""
        self.constants[name] = array
        self.types[name] = type_of(array)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The static shape of a tensor, None if it is not known."""
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
        """The ONNX element type of a tensor, `UNDEFINED` if it is not known."""
        found = self.types.get(name)
        return found.tensor_type.elem_type if found is not None else onnx.TensorProto.UNDEFINED

    def has_same_type(self, one: str, other: str) -> bool:
        """Whether two tensors are known to have one static shape and one element type."""
        shape, kind = self.shape(one), self.element_type(one)
        known = shape is not None and kind != onnx.TensorProto.UNDEFINED
        return known and shape == self.shape(other) and kind == self.element_type(other)

    def constant(self, node: onnx.NodeProto, index: int) -> Array | None:
        """The value of a node's input if that is there and constant."""
        return self.constants.get(node.input[index]) if has_input(node, index) else None

    def readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        """Tensor → the nodes that read it, each as often as it does."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in (*node.input, *captured(node)):
                found.setdefault(name, []).append(node)
        return found

    def producers(self) -> Mapping[str, onnx.NodeProto]:
        """Tensor → the node that makes it."""
        return {name: node for node in self.nodes for name in node.output if name}

    def sort(self) -> None:
        """Bring nodes that were added anywhere into a topological order."""
        self.nodes = in_order(self.nodes)

    def rename(self, new_names: Mapping[str, str]) -> None:
        """Read and make tensors under other names."""
        for node in self.nodes:
            rename(node, new_names)

    def remove_unread(self) -> bool:
        """Remove the nodes that no output depends on, and optional outputs that nobody reads;
        whether there were such nodes."""
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
        """Whether an operator need not make its last output."""
        if not onnx.defs.has(node.op_type, self.opset, node.domain):
            return False
        formal = onnx.defs.get_schema(node.op_type, self.opset, node.domain).outputs
        optional = onnx.defs.OpSchema.FormalParameterOption.Optional
        last = len(node.output) - 1
        return last < len(formal) and formal[last].option == optional

    def described(self) -> Iterator[onnx.ValueInfoProto]:
        """The types of all tensors that nodes make."""
        for node in self.nodes:
            for name in node.output:
                if name in self.types:
                    yield helper.make_value_info(name, self.types[name])


def in_order(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """The nodes in a topological order, otherwise as they stand (Kahn's algorithm).

    Nodes on a cycle, and behind one, come last. Converters append the casts that they insert.
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
    """The ONNX type of an array."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_type_proto(kind, array.shape)


def has_input(node: onnx.NodeProto, index: int) -> bool:
    """Whether a node is given its input number `index`, which may be optional."""
    return index < len(node.input) and bool(node.input[index])


def attribute(node: onnx.NodeProto, name: str, default: Value = None) -> Value:
    """The value of a node's attribute; texts are bytes."""
    for found in node.attribute:
        if found.name == name:
            value: Value = helper.get_attribute_value(found)
            return list(value) if isinstance(value, (list, tuple)) else value
    return default


def integers(node: onnx.NodeProto, name: str, default: Iterable[int] = ()) -> list[int]:
    """The value of a node's attribute that is a list of integers."""
    value = attribute(node, name)
    return [int(x) for x in value] if isinstance(value, list) else list(default)


def integer(node: onnx.NodeProto, name: str, default: int) -> int:
    """The value of a node's attribute that is an integer."""
    value = attribute(node, name)
    return value if isinstance(value, int) else default


def attribute_or_input(
    graph: OperatorGraph, node: onnx.NodeProto, index: int, name: str, since: int
) -> list[int] | None:
    """Integers that are an attribute of a node before operator set `since`, and from then on its
    input number `index`; empty if they are not given, None if they are not constant."""
    if graph.opset < since:
        return integers(node, name)
    if not has_input(node, index):
        return []
    array = graph.constant(node, index)
    return None if array is None else [int(x) for x in np.asarray(array).reshape(-1)]
