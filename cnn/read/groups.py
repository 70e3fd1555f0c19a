"""Which operators of a quantised network stay together: those that engines compute at once.

A quantised network in QDQ form says `QuantizeLinear` behind every operator and `DequantizeLinear`
in front of every reader; engines replace the operator and those around it by one that computes in
integers. Cut between them, the network loses these operators, rounds otherwise, and sends four
bytes for each number instead of one. So a layer has, around its own operator,

- in front, the `DequantizeLinear` of each activation that it reads. Several readers carry one each;
- behind, the `QuantizeLinear` of what it makes, if nothing else reads that, and before it
  activation functions such as `Relu` that stand between the two.

Then only 8-bit tensors lie between layers. All these work element by element with the same
constants for every element, so a part of the layer has the same around it. Quantisation by a
scale per channel, or by one that is computed, stays a layer of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import onnx

from cnn.read.weights import Array, names_read

_ELEMENTWISE = frozenset({"Relu", "Clip", "LeakyRelu"})
"""Activation functions, whose further inputs are constants, between an operator and its quantiser.
"""


@dataclass(frozen=True)
class Groups:
    """`in_front` are the names of dequantised activations that their readers make themselves;
    `behind` has, by the name of an operator's output, the nodes from there to its quantised form.
    """

    in_front: frozenset[str]
    behind: Mapping[str, tuple[onnx.NodeProto, ...]]

    def nodes_behind(self, node: onnx.NodeProto) -> tuple[onnx.NodeProto, ...]:
        """What stands behind an operator, for all of its outputs."""
        return tuple(x for name in node.output for x in self.behind.get(name, ()))


def groups_of(
    nodes: Iterable[onnx.NodeProto], weights: Mapping[str, Array], outputs: Collection[str]
) -> Groups:
    """The groups of a network with these operators, constants and outputs."""
    found = list(nodes)
    readers: dict[str, list[onnx.NodeProto]] = {}
    constant = {"", *weights}
    kept = set(outputs)
    """What is wanted as it is: by those who use the network, and by the bodies of control flow."""
    for node in found:
        if constant.issuperset(node.input):
            constant.update(node.output)
        for name in node.input:
            readers.setdefault(name, []).append(node)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                kept.update(names_read(attribute.g))
    varying = [node for node in found if not constant.issuperset(node.output)]
    in_front = frozenset(
        node.output[0]
        for node in varying
        if node.op_type == "DequantizeLinear"
        and _is_by_one_scale(node, weights)
        and node.output[0] not in kept
    )
    behind: dict[str, tuple[onnx.NodeProto, ...]] = {}
    taken: set[str] = set()
    for node in varying:
        if in_front.isdisjoint(node.output) and taken.isdisjoint(node.output):
            for name in filter(None, node.output):
                chain = _to_quantiser(name, readers, weights, kept)
                behind[name] = chain
                taken.update(made for each in chain for made in each.output)
    return Groups(in_front, {name: chain for name, chain in behind.items() if chain})


def _to_quantiser(
    name: str,
    readers: Mapping[str, list[onnx.NodeProto]],
    weights: Mapping[str, Array],
    kept: Collection[str],
) -> tuple[onnx.NodeProto, ...]:
    """The nodes from a tensor to its only quantised form, if nothing else becomes of it."""
    chain: list[onnx.NodeProto] = []
    while name not in kept and len(readers.get(name, [])) == 1:
        (reader,) = readers[name]
        if reader.input[0] != name:
            break
        if reader.op_type == "QuantizeLinear" and _is_by_one_scale(reader, weights):
            return (*chain, reader)
        further = (x for x in reader.input[1:] if x)
        if reader.op_type not in _ELEMENTWISE or not all(x in weights for x in further):
            break
        chain.append(reader)
        name = reader.output[0]
    return ()


def _is_by_one_scale(node: onnx.NodeProto, weights: Mapping[str, Array]) -> bool:
    parameters = [name for name in node.input[1:] if name]
    return all(name in weights and weights[name].size == 1 for name in parameters)
