"""From operators to layers.

A layer is one operator that reads an activation, its own, together with the operators that prepare
its constants and that folding has left alone on purpose (`DequantizeLinear` of an 8-bit weight).
Those go wherever the layer goes; if two layers share one, each carries it. In quantised networks
the operators that dequantise what it reads and quantise what it makes belong to it too
(`cnn.groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx
from onnx import helper

from cnn.groups import groups_of
from cnn.macs import macs
from cnn.network import Layer, Tensor
from cnn.simplify import Simplified
from cnn.views import Views

PRODUCER = "csdf-edge"


@dataclass(frozen=True)
class Operators:
    """The ONNX nodes of each layer: those that prepare what it reads first, the layer's own last;
    and those `behind` it that quantise what it makes, of layers that have such.

    They may read `views`, which `described` describes; the network as it was read has none.
    """

    of_layer: Mapping[str, tuple[onnx.NodeProto, ...]]
    opset_import: tuple[onnx.OperatorSetIdProto, ...]
    ir_version: int
    views: Views = field(default_factory=lambda: Views({}, 0))
    described: Mapping[str, Tensor] = field(default_factory=dict)
    behind: Mapping[str, tuple[onnx.NodeProto, ...]] = field(default_factory=dict)

    def nodes(self, layers: Iterable[str]) -> list[onnx.NodeProto]:
        """The nodes of these layers and of the views that they read, each once, in order."""
        found: dict[str, onnx.NodeProto] = {}
        for layer in layers:
            for node in self._with_views(layer):
                found.setdefault(_identity(node), node)
        return list(found.values())

    def _with_views(self, layer: str) -> Iterator[onnx.NodeProto]:
        for node in self.of_layer[layer]:
            read = [self.views.assembly(name) for name in node.input]
            for assembly in read:
                yield from assembly.nodes
            names = [assembly.name for assembly in read]
            if names == list(node.input):
                yield node
            else:
                renamed = onnx.NodeProto()
                renamed.CopyFrom(node)
                renamed.input[:] = names
                yield renamed
        yield from self.behind.get(layer, ())

    def on_activations(self, layers: Iterable[Layer]) -> Iterator[str]:
        """The operators of these layers that work on activations: their own, and the quantisers
        around these."""
        for layer in layers:
            *before, own = self.of_layer[layer.name]
            yield from (x.op_type for x in before if not set(layer.inputs).isdisjoint(x.input))
            yield from (x.op_type for x in (own, *self.behind.get(layer.name, ())))

    def model(self, graph: onnx.GraphProto) -> onnx.ModelProto:
        """A model around `graph`, for the operator sets that its nodes were written for."""
        return helper.make_model(
            graph,
            opset_imports=self.opset_import,
            ir_version=self.ir_version,
            producer_name=PRODUCER,
        )


def layers_of(
    model: Simplified, tensors: Mapping[str, Tensor]
) -> tuple[tuple[Layer, ...], Operators]:
    """Layers in topological order, with unique names, and the operators behind them."""
    groups = groups_of(model.nodes, model.weights, {value.name for value in model.outputs})
    preparing: dict[str, tuple[onnx.NodeProto, ...]] = {}
    dequantised: dict[str, str] = {}
    absorbed: set[str] = set()
    layers: list[Layer] = []
    operators: dict[str, tuple[onnx.NodeProto, ...]] = {}
    behind: dict[str, tuple[onnx.NodeProto, ...]] = {}
    for node in model.nodes:
        if not absorbed.isdisjoint(node.output):
            continue
        read = [name for name in dict.fromkeys(node.input) if name]
        before = [x for name in read if name in preparing for x in preparing[name]]
        closure = tuple({_identity(x): x for x in (*before, node)}.values())
        activations = [
            dequantised.get(name, name)
            for name in read
            if name in dequantised or (name not in model.weights and name not in preparing)
        ]
        made = tuple(name for name in node.output if name)
        if not activations or made[0] in groups.in_front:
            preparing.update(dict.fromkeys(made, closure))
            if activations:
                dequantised[made[0]] = activations[0]
            continue
        name = _unique(node.name or made[0], operators)
        operators[name] = closure
        following = groups.nodes_behind(node)
        if following:
            behind[name] = following
            absorbed.update(_identity(x) for x in following)
        constants = dict.fromkeys(
            x for part in (*closure, *following) for x in part.input if x in model.weights
        )
        layers.append(
            Layer(
                name,
                node.op_type,
                tuple(dict.fromkeys(activations)),
                tuple(ends(made, following)),
                tuple(constants),
                macs(node, tensors),
            )
        )
    return tuple(layers), Operators(operators, model.opset_import, model.ir_version, behind=behind)


def ends(made: Iterable[str], behind: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """What becomes of the tensors that a layer's own node makes in the nodes behind it."""
    following = {node.input[0]: node.output[0] for node in behind}
    for made_name in made:
        name = made_name
        while name in following:
            name = following[name]
        yield name


def _identity(node: onnx.NodeProto) -> str:
    """Every node makes at least one tensor, and no other node makes it."""
    return next(str(name) for name in node.output if name)


def _unique(name: str, taken: Mapping[str, object]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}#{number}" in taken:
        number += 1
    return f"{name}#{number}"
