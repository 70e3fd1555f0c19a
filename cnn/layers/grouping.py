"""Group the operators of a simplified model into layers, and count their multiply-accumulates.

A layer is one operator that reads an activation, its *own* operator, together with the operators
that prepare its constants and that folding leaves alone on purpose (`DequantizeLinear` of an 8-bit
weight). These go wherever the layer goes; if two layers share one, each has a copy. Operators whose
shapes depend on the data form one layer together (`cnn.layers.tail`).

A quantised network in QDQ form has `QuantizeLinear` after every operator and `DequantizeLinear`
before every reader. Engines fuse an operator and its neighbours into one that computes in integers.
A cut between them would prevent this fusion, change the rounding, and send four bytes per number
instead of one. So a layer also contains

- before its own operator (`leading`), the `DequantizeLinear` of each activation that it reads;
  several readers have a copy each;
- after it (`trailing`), the `QuantizeLinear` of its output, if nothing else reads that output, and
  what works element by element between the two, such as `Relu` or a product with one constant.

Then all tensors between layers have 8 bits. Only quantisation by one constant scale is included: it
treats every element alike, so a part of the layer has the same operators around it. Quantisation by
a scale per channel or by a computed scale is a separate layer.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from cnn.layers.tail import split_tail
from cnn.layers.views import Views
from cnn.network import MERGED, TAIL, Array, Layer, Tensor
from cnn.operators import contrib
from cnn.operators.bodies import bodies, every_node, names_read, reads, renamed
from cnn.operators.standard import ELEMENTWISE
from cnn.simplify import Simplified

_BETWEEN = ELEMENTWISE - {"Cast", "IsInf", "IsNaN", "Not"}
"""Operators from floats to floats, with constant parameters, that may stand between an operator and
its quantiser."""

_BY_ONE_CONSTANT = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
"""Operators that may stand there too if their second operand is one constant for all elements."""


@dataclass(frozen=True)
class QuantiserGroups:
    """The quantisers that belong to the layers of other operators.

    `leading` names the dequantised activations that each reader computes itself. `trailing` has,
    for an operator's output, the nodes from there to its quantised form.
    """

    leading: frozenset[str]
    trailing: Mapping[str, tuple[onnx.NodeProto, ...]]

    def trailing_nodes(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, ...]:
        """Return the trailing nodes of all outputs of an operator."""
        return tuple(x for name in node.output for x in self.trailing.get(name, ()))


def quantiser_groups(
    nodes: Iterable[onnx.NodeProto], weights: Mapping[str, Array], outputs: Collection[str]
) -> QuantiserGroups:
    """Find the quantiser groups of a network with these operators, constants and outputs."""
    found = list(nodes)
    readers: dict[str, list[onnx.NodeProto]] = {}
    constant = {"", *weights}
    kept = set(outputs)
    """Tensors that must exist as they are: outputs, and those that bodies read."""
    for node in found:
        if constant.issuperset(node.input):
            constant.update(node.output)
        for name in node.input:
            readers.setdefault(name, []).append(node)
        for body in bodies(node):
            kept.update(names_read(body))
    varying = [node for node in found if not constant.issuperset(node.output)]
    leading = frozenset(
        node.output[0]
        for node in varying
        if node.op_type == "DequantizeLinear"
        and _is_by_one_scale(node, weights)
        and node.output[0] not in kept
    )
    trailing: dict[str, tuple[onnx.NodeProto, ...]] = {}
    taken: set[str] = set()
    for node in varying:
        if leading.isdisjoint(node.output) and taken.isdisjoint(node.output):
            for name in filter(None, node.output):
                chain = _to_quantiser(name, readers, weights, kept)
                trailing[name] = chain
                taken.update(made for each in chain for made in each.output)
    return QuantiserGroups(leading, {name: chain for name, chain in trailing.items() if chain})


def _to_quantiser(
    name: str,
    readers: Mapping[str, list[onnx.NodeProto]],
    weights: Mapping[str, Array],
    kept: Collection[str],
) -> tuple[onnx.NodeProto, ...]:
    """Return the nodes from a tensor to its only quantised form; none if it has other readers."""
    chain: list[onnx.NodeProto] = []
    while name not in kept and len(readers.get(name, [])) == 1:
        (reader,) = readers[name]
        if reader.input[0] != name:
            break
        if reader.op_type == "QuantizeLinear" and _is_by_one_scale(reader, weights):
            return (*chain, reader)
        if not _is_between(reader, weights):
            break
        chain.append(reader)
        name = reader.output[0]
    return ()


def _is_between(node: onnx.NodeProto, weights: Mapping[str, Array]) -> bool:
    """Whether a node treats each element of its first input alike, and keeps shape and type."""
    further = [weights.get(name) for name in node.input[1:] if name]
    if node.op_type in _BY_ONE_CONSTANT:
        return len(further) == 1 and further[0] is not None and further[0].ndim == 0
    return node.op_type in _BETWEEN and all(array is not None for array in further)


def _is_by_one_scale(node: onnx.NodeProto, weights: Mapping[str, Array]) -> bool:
    parameters = [name for name in node.input[1:] if name]
    return all(name in weights and weights[name].size == 1 for name in parameters)


_CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "DeformConv": 1, "QLinearConv": 3}
"""Operator → index of the input that holds the kernel, [C_out, C_in / groups, taps …]."""

_PRODUCTS = {"MatMul": 0, "MatMulInteger": 0, "QLinearMatMul": 0}
"""Operator → index of its left operand, […, M, K]."""

_TRANSPOSABLE = frozenset({"FusedMatMul", "Gemm", "TransposeMatMul"})
"""Products whose left operand may come as […, K, M]."""


def macs(node: onnx.NodeProto, tensors: Mapping[str, Tensor]) -> int:
    """Return an operator's multiply-accumulates per frame: 0 unless product or convolution.

    A convolution multiplies one filter for each element of its output; a transposed convolution
    multiplies, for each element of its input, the taps that the element is spread over. A bias does
    not count.
    """

    def shape(index: int) -> tuple[int, ...]:
        return tensors[node.input[index]].shape

    output = tensors[node.output[0]] if node.output[0] else None
    if output is None:
        return 0
    of_attention = contrib.macs(node, shape, output.shape)
    if of_attention is not None:
        return of_attention
    operator = contrib.standard_operator(node)
    if operator in _CONVOLUTIONS:
        return output.elements * math.prod(shape(_CONVOLUTIONS[operator])[1:])
    if operator == "ConvTranspose":
        return tensors[node.input[0]].elements * math.prod(shape(1)[1:])
    if operator in _TRANSPOSABLE:
        turned = {attribute.name for attribute in node.attribute if attribute.i}
        summed = (0 if "transBatchA" in turned else -2) if "transA" in turned else -1
        return output.elements * shape(0)[summed]
    if operator in _PRODUCTS:
        return output.elements * shape(_PRODUCTS[operator])[-1]
    return 0


PRODUCER = "csdf-edge"


@dataclass(frozen=True)
class Operators:
    """The ONNX nodes of each layer.

    `of_layer` has the nodes that prepare what the layer reads, then its own node, last. A tail and
    a merged layer (`cnn.layers.state`) have several own nodes. `trailing` has the quantisers after
    a layer's own node, for layers that have any. Nodes may read `views`, which are described in
    `described`; a network as it was read has none.
    """

    of_layer: Mapping[str, tuple[onnx.NodeProto, ...]]
    opset_import: tuple[onnx.OperatorSetIdProto, ...]
    ir_version: int
    views: Views = field(default_factory=lambda: Views({}, 0))
    described: Mapping[str, Tensor] = field(default_factory=dict)
    trailing: Mapping[str, tuple[onnx.NodeProto, ...]] = field(default_factory=dict)

    def nodes(self, layers: Iterable[str]) -> list[onnx.NodeProto]:
        """Return the nodes of these layers and of the views that they read, each once, in order."""
        found: dict[str, onnx.NodeProto] = {}
        for layer in layers:
            for node in self._with_views(layer):
                found.setdefault(node_key(node), node)
        return list(found.values())

    def _with_views(self, layer: str) -> Iterator[onnx.NodeProto]:
        for node in self.of_layer[layer]:
            read = {name: self.views.assembly(name) for name in reads(node)}
            for assembly in read.values():
                yield from assembly.nodes
            names = {name: found.name for name, found in read.items() if name != found.name}
            yield renamed(node, names) if names else node
        yield from self.trailing.get(layer, ())

    def on_activations(self, layers: Iterable[Layer]) -> Iterator[str]:
        """Yield the types of operators on activations: own ones and the quantisers around them."""
        for layer in layers:
            if layer.operator in (TAIL, MERGED):
                yield from (x.op_type for x in every_node(self.of_layer[layer.name]))
                continue
            *before, own = self.of_layer[layer.name]
            yield from (x.op_type for x in before if not set(layer.inputs).isdisjoint(x.input))
            yield from (x.op_type for x in (own, *self.trailing.get(layer.name, ())))

    def model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        """Wrap `graph` in a model for the operator sets of its nodes."""
        return helper.make_model(
            graph,
            opset_imports=self.opset_import,
            ir_version=self.ir_version,
            producer_name=PRODUCER,
        )


def layers_of(
    model: Simplified, tensors: Mapping[str, Tensor]
) -> tuple[tuple[Layer, ...], Operators]:
    """Return the layers in topological order, with unique names, and their operators."""
    inputs, outputs = ([x.name for x in values] for values in (model.inputs, model.outputs))
    parts = split_tail(model.nodes, tensors, inputs, outputs)
    found = _Layers(model, tensors, quantiser_groups(model.nodes, model.weights, set(outputs)))
    for node in parts.before:
        found.add((node,))
    if parts.results:
        found.add(parts.tail, parts.results)
    for node in parts.after:
        found.add((node,))
    return tuple(found.layers), Operators(
        found.operators, model.opset_import, model.ir_version, trailing=found.trailing
    )


class _Layers:
    """The layers so far, and the operators that prepare what later layers read."""

    def __init__(
        self, model: Simplified, tensors: Mapping[str, Tensor], groups: QuantiserGroups
    ) -> None:
        self.layers: list[Layer] = []
        self.operators: dict[str, tuple[onnx.NodeProto, ...]] = {}
        self.trailing: dict[str, tuple[onnx.NodeProto, ...]] = {}
        self._weights = model.weights
        self._tensors = tensors
        self._groups = groups
        self._preparing: dict[str, tuple[onnx.NodeProto, ...]] = {}
        self._dequantised: dict[str, str] = {}
        self._absorbed: set[str] = set()

    def add(self, nodes: Sequence[onnx.NodeProto], results: tuple[str, ...] = ()) -> None:
        """Add the layer of an operator, or the tail of these operators with its `results`.

        An operator that only prepares what others read is stored for them; one that belongs to
        another's layer is skipped.
        """
        node = nodes[-1]
        if not self._absorbed.isdisjoint(node.output):
            return
        inside = {name for each in nodes for name in each.output}
        read = [x for x in dict.fromkeys(x for n in nodes for x in reads(n)) if x not in inside]
        before = [x for name in read if name in self._preparing for x in self._preparing[name]]
        closure = tuple({node_key(x): x for x in (*before, *nodes)}.values())
        activations = [
            self._dequantised.get(name, name)
            for name in read
            if name in self._dequantised
            or (name not in self._weights and name not in self._preparing)
        ]
        made = results or tuple(name for name in node.output if name)
        if not activations or (not results and made[0] in self._groups.leading):
            self._preparing.update(dict.fromkeys(made, closure))
            if activations:
                self._dequantised[made[0]] = activations[0]
            return
        name = _unique(TAIL.lower() if results else node.name or made[0], self.operators)
        self.operators[name] = closure
        following = () if results else self._groups.trailing_nodes(node)
        if following:
            self.trailing[name] = following
            self._absorbed.update(node_key(x) for x in following)
        constants = dict.fromkeys(
            x for part in (*closure, *following) for x in reads(part) if x in self._weights
        )
        self.layers.append(
            Layer(
                name,
                TAIL if results else node.op_type,
                tuple(dict.fromkeys(activations)),
                made if results else tuple(final_names(made, following)),
                tuple(constants),
                0 if results else macs(node, self._tensors),
            )
        )


def final_names(made: Iterable[str], trailing: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names after the trailing nodes of the tensors that a layer's own node makes."""
    following = {node.input[0]: node.output[0] for node in trailing}
    for made_name in made:
        name = made_name
        while name in following:
            name = following[name]
        yield name


def value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    """Declare a tensor for a model, without a shape if that varies."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    shape = None if tensor.varies else tensor.shape
    return helper.make_tensor_value_info(tensor.name, kind, shape)


def node_key(node: onnx.NodeProto) -> str:
    """Return a key of the node: its first output, which no other node makes."""
    return next(str(name) for name in node.output if name)


def _unique(name: str, taken: Mapping[str, object]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
