"""Merge the layers on each cycle of state: an output of one frame that is an input of the next.

In dataflow terms each pair (input, output) is an edge, with one initial token, from the layer that
makes the output to those that read the input. A firing of one phase makes the token that its next
firing reads, so one frame per period is possible only if all layers of the cycle fire together.
They are therefore merged into one layer, which keeps its state between frames (`Layer.state`).

The layers to merge lie on a path between a reader of the input and the maker of the output, in
either direction. These are the strongly connected components of the layer graph with edges in both
directions between the maker and the readers of each pair. The graph of the merged layers has no
cycle.

Source: Lee and Messerschmitt, "Synchronous data flow", Proceedings of the IEEE, 1987, for initial
tokens on the edges of a cycle and the bound that the cycle sets to the period.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import onnx

from cnn.errors import ModelError
from cnn.layers.grouping import Operators, node_key
from cnn.network import MERGED, Layer, Tensor

StatePairs = Mapping[str, str]
"""Network input → the network output whose value it takes in the next frame."""


def check_names(proto: onnx.ModelProto, state: StatePairs, label: str) -> None:
    """Raise `ModelError` unless each pair names an input and an output, and an input remains."""
    inputs = [value.name for value in proto.graph.input]
    outputs = [value.name for value in proto.graph.output]
    for name, output in state.items():
        if name not in inputs:
            raise ModelError(
                f"{label}: state names the input {name!r}, but the model's inputs are "
                f"{', '.join(inputs)}"
            )
        if output not in outputs:
            raise ModelError(
                f"{label}: state takes {name!r} from the output {output!r}, but the model's "
                f"outputs are {', '.join(outputs)}"
            )
    if inputs and state.keys() >= set(inputs):
        raise ModelError(
            f"{label}: state names every input of the model, so nothing is left to stream; "
            "name only those that are fed back"
        )


def merge_state_cycles(
    layers: Sequence[Layer],
    operators: Operators,
    tensors: Mapping[str, Tensor],
    outputs: Collection[str],
    state: StatePairs,
    label: str,
) -> tuple[tuple[Layer, ...], Operators]:
    """Return the layers and operators of a network with each cycle of `state` in a single layer.

    `layers` stand in a topological order and read the inputs that `state` names. The results stand
    in such an order too, but have these inputs in `Layer.state` instead. Raises `ModelError` for an
    input that no layer reads, an output that no layer makes, and a pair whose shapes or dtypes
    differ.
    """
    if not state:
        return tuple(layers), operators
    maker = {name: number for number, layer in enumerate(layers) for name in layer.outputs}
    edges = [
        (maker[name], number)
        for number, layer in enumerate(layers)
        for name in layer.inputs
        if name in maker
    ]
    for name, output in state.items():
        readers = [number for number, layer in enumerate(layers) if name in layer.inputs]
        _check_pair(name, output, tensors, readers, maker, label)
        for reader in readers:
            edges += [(maker[output], reader), (reader, maker[output])]
    merged = _Merging(layers, operators, outputs, state)
    groups = _groups(edges, len(layers))
    found = [merged.layer([layers[number] for number in group]) for group in groups]
    nodes = dict(operators.of_layer)
    for layer, group in zip(found, groups, strict=True):
        if len(group) > 1:
            nodes[layer.name] = merged.nodes([layers[number].name for number in group])
    names = {layer.name for layer in found}
    return tuple(found), replace(
        operators,
        of_layer={name: own for name, own in nodes.items() if name in names},
        trailing={name: own for name, own in operators.trailing.items() if name in names},
    )


def _check_pair(
    name: str,
    output: str,
    tensors: Mapping[str, Tensor],
    readers: Sequence[int],
    maker: Mapping[str, int],
    label: str,
) -> None:
    if not readers:
        raise ModelError(
            f"{label}: state names the input {name!r}, which no layer reads; leave it out"
        )
    if output not in maker:
        raise ModelError(
            f"{label}: state takes {name!r} from the output {output!r}, which no layer makes"
        )
    given, made = tensors[name], tensors[output]
    if made.varies:
        raise ModelError(
            f"{label}: state takes {name!r} from the output {output!r}, whose shape depends on "
            "the data; only a tensor that has the same shape in every frame can be fed back"
        )
    if (given.shape, given.dtype) != (made.shape, made.dtype):
        raise ModelError(
            f"{label}: state takes {name!r}, which is {given.dtype}{list(given.shape)}, from the "
            f"output {output!r}, which is {made.dtype}{list(made.shape)}; both must have the same "
            "dtype and shape: correct the pair, or input_shape"
        )


class _Merging:
    """Merges several layers into one."""

    def __init__(
        self,
        layers: Sequence[Layer],
        operators: Operators,
        outputs: Collection[str],
        state: StatePairs,
    ) -> None:
        self._operators = operators
        self._outputs = frozenset(outputs)
        self._state = state
        self._readers: dict[str, set[str]] = {}
        for layer in layers:
            for name in layer.inputs:
                self._readers.setdefault(name, set()).add(layer.name)

    def layer(self, group: Sequence[Layer]) -> Layer:
        """Merge `group`, given in topological order; state is not an input of the merged layer."""
        inside = {layer.name for layer in group}
        made = [name for layer in group for name in layer.outputs]
        read = dict.fromkeys(name for layer in group for name in layer.inputs)
        state = tuple((name, self._state[name]) for name in read if name in self._state)
        inputs = tuple(name for name in read if name not in made and name not in self._state)
        first = group[0]
        if len(group) == 1:
            return replace(first, inputs=inputs, state=state)
        return Layer(
            f"{first.name}…{group[-1].name}",
            MERGED,
            inputs,
            tuple(
                name
                for name in made
                if name in self._outputs or self._readers.get(name, set()) - inside
            ),
            tuple(dict.fromkeys(name for layer in group for name in layer.weights)),
            sum(layer.macs for layer in group),
            state=state,
        )

    def nodes(self, group: Sequence[str]) -> tuple[onnx.NodeProto, ...]:
        """Return the operators of these layers, each once, in order."""
        of_layer, trailing = self._operators.of_layer, self._operators.trailing
        found = (node for name in group for node in (*of_layer[name], *trailing.get(name, ())))
        return tuple({node_key(node): node for node in found}.values())


def _groups(edges: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    """Return the strongly connected components of a graph of `count` nodes, in a topological order.

    The members of a component are in ascending order. Where several components could come next, the
    one with the lowest member does.
    """
    import networkx as nx  # noqa: PLC0415 (slow to import)

    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from(edges)
    condensed = nx.condensation(graph)
    members = {node: sorted(data["members"]) for node, data in condensed.nodes(data=True)}
    order = nx.lexicographical_topological_sort(condensed, key=lambda node: members[node][0])
    return [members[node] for node in order]
