"""A network while it is being rewritten.

Each rewrite (`cnn.rewrite.slices`, …) replaces layers of a draft by others and declares views
(`cnn.layers.views`) where tensors are computed in parts. Only at the end is it known which real
tensors each layer reads; `Draft.finish` then makes a `Network` of the layers, shapes and weights.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import onnx

from cnn.errors import ModelError
from cnn.layers.grouping import Operators, final_names
from cnn.layers.views import Bounds, Join, Region, View, Views, region_name
from cnn.network import TAIL, Array, Layer, Network, Tensor, read_by, weight_tensors
from cnn.operators.bodies import reads
from cnn.operators.standard import standard_opset


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """A layer by its nodes: preparing ones, its own one last, and `trailing` quantisers.

    Nodes may read views. `part_of` is that of `cnn.network.Layer`. `whole` is the layer itself if
    rewrites leave it alone: a tail, which has several own nodes, or a layer that keeps state.
    """

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    macs: int
    part_of: str
    trailing: tuple[onnx.NodeProto, ...] = ()
    whole: Layer | None = None

    @property
    def node(self) -> onnx.NodeProto:
        """The layer's own node; of several, the last."""
        return self.nodes[-1]

    @property
    def operator(self) -> str:
        """The operator of the layer's own node; of several, see `cnn.network.Layer`."""
        return str(self.node.op_type) if self.whole is None else self.whole.operator

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors that the layer makes for others."""
        if self.whole is not None:
            return self.whole.outputs
        return tuple(final_names((name for name in self.node.output if name), self.trailing))

    def make_parts(
        self, node: onnx.NodeProto, suffixes: Mapping[str, str]
    ) -> tuple[onnx.NodeProto, ...]:
        """Let `node`, a copy of the layer's own, make a part; return its trailing nodes.

        `suffixes` has the ending of each name, by the layer's output.
        """
        found = tuple(map(deepcopy, self.trailing))
        for copy, original in zip(found, self.trailing, strict=True):
            (end,) = final_names(original.output, self.trailing)
            copy.input[0] += suffixes[end]
            copy.output[0] += suffixes[end]
            copy.name = original.name and original.name + suffixes[end]
        node.output[:] = [
            name + suffixes[end] if name else ""
            for name, end in zip(
                self.node.output, final_names(self.node.output, self.trailing), strict=True
            )
        ]
        return found

    @property
    def origin(self) -> str:
        """The layer of the network as it was read that this one is, or is a part of."""
        return self.part_of or self.name


class Draft:
    """A network that rewrites change: topologically ordered `layers`, `tensors` and `weights`.

    `tensors` describes views as well as real tensors. Rewrites change all of them in place, by the
    methods below.
    """

    def __init__(
        self, network: Network, operators: Operators, weights: Mapping[str, Array]
    ) -> None:
        self.network_name = network.name
        self.batch = network.batch
        self.layers = {
            layer.name: DraftLayer(
                layer.name,
                operators.of_layer[layer.name],
                layer.macs,
                layer.part_of,
                operators.trailing.get(layer.name, ()),
                layer if layer.state or layer.operator == TAIL else None,
            )
            for layer in network.layers
        }
        self.tensors = {**network.tensors, **operators.described}
        self.weights = dict(weights)
        self.views: dict[str, View] = dict(operators.views.by_name)
        self.inputs = network.inputs
        self.outputs = network.outputs
        self.opset = standard_opset(operators.opset_import)
        self._operators = operators

    def layer(self, name: str) -> DraftLayer:
        """Return the layer called `name`; raise `ModelError` if there is none."""
        if name not in self.layers:
            raise ModelError(f"{self.network_name} has no layer {name!r} to rewrite")
        return self.layers[name]

    def is_joining(self, layer: DraftLayer) -> bool:
        """Whether a layer only joins the parts of an output of the network (see `join`)."""
        return any(isinstance(self.views.get(name), Join) for name in layer.outputs)

    def reads(self, layer: DraftLayer) -> tuple[str, ...]:
        """Return the activations, views included, that the layer's nodes read, each once."""
        nodes = (*layer.nodes, *layer.trailing)
        made = {name for node in nodes for name in node.output}
        if layer.whole is not None:
            made.update(name for name, _ in layer.whole.state)
        names = dict.fromkeys(name for node in nodes for name in reads(node))
        return tuple(name for name in names if name not in made and name not in self.weights)

    def replace(self, old: Iterable[str], new: Sequence[DraftLayer]) -> None:
        """Replace the layers called `old` by the layers `new`, at the place of the last of them.

        The outputs of the new layers must be described in `tensors`.
        """
        gone = set(old)
        last = max((index for index, name in enumerate(self.layers) if name in gone), default=-1)
        others = self.layers.keys() - gone
        for part in new:
            self._check_free(part.name, others, "layer")
        layers: dict[str, DraftLayer] = {}
        for index, (name, layer) in enumerate(self.layers.items()):
            if name not in gone:
                layers[name] = layer
            elif index == last:
                layers.update((part.name, part) for part in new)
        self.layers = layers

    def insert(self, new: Sequence[DraftLayer], after: str) -> None:
        """Insert layers after the one that makes tensor `after`, or first for a network input."""
        for layer in new:
            self._check_free(layer.name, self.layers, "layer")
        added = {layer.name: layer for layer in new}
        layers = dict(added) if after in self.inputs else {}
        for name, layer in self.layers.items():
            layers[name] = layer
            if after in layer.outputs:
                layers.update(added)
        self.layers = layers

    def add_tensor(
        self, name: str, shape: Sequence[int], dtype: str, *, varies: bool = False
    ) -> str:
        """Describe a new tensor; return its name."""
        self._check_free(name, self.tensors, "tensor")
        self._check_free(name, self.weights, "weight")
        self.tensors[name] = Tensor(name, tuple(shape), dtype, varies)
        return name

    def region(self, of: str, bounds: Bounds) -> str:
        """Return a view of the tensor `of` within `bounds`; `of` itself if that is all of it."""
        view = self.views.get(of)
        within = {axis: (start, stop) for axis, start, stop in bounds}
        shape = self.tensors[of].shape
        for axis, (start, stop) in list(within.items()):
            if (start, stop) == (0, shape[axis]):
                del within[axis]
        if not within:
            return of
        if isinstance(view, Region):
            outer = {axis: (start, stop) for axis, start, stop in view.bounds}
            for axis, (start, stop) in within.items():
                first = outer.get(axis, (0, 0))[0]
                outer[axis] = (first + start, first + stop)
            of, within, shape = view.of, outer, self.tensors[view.of].shape
        ordered = tuple((axis, start, stop) for axis, (start, stop) in sorted(within.items()))
        name = region_name(of, ordered)
        if name not in self.views:
            sizes = [
                within[axis][1] - within[axis][0] if axis in within else size
                for axis, size in enumerate(shape)
            ]
            self.add_tensor(name, sizes, self.tensors[of].dtype)
            self.views[name] = Region(of, ordered)
        return name

    def join(self, tensor: str, axis: int, parts: Sequence[str]) -> None:
        """Declare that `tensor`, which layers no longer make, consists of `parts` along `axis`.

        A layer must make each output of the network: if `tensor` is one, a layer that joins the
        parts is inserted after the one that makes the last of them.
        """
        extents = tuple(self.tensors[part].shape[axis] for part in parts)
        join = self.views[tensor] = Join(axis, tuple(parts), extents)
        if tensor in self.outputs:
            layers: dict[str, DraftLayer] = {}
            for name, layer in self.layers.items():
                layers[name] = layer
                if parts[-1] in layer.outputs:
                    joining = _joining_layer(tensor, join, layer.origin)
                    self._check_free(joining.name, self.layers, "layer")
                    layers[joining.name] = joining
            self.layers = layers

    def weight_part(self, name: str, axis: int, start: int, stop: int) -> str:
        """Add a part of a weight as a weight that shares its memory; return its name."""
        array = self.weights[name]
        if (start, stop) == (0, array.shape[axis]):
            return name
        part = region_name(name, ((axis, start, stop),))
        if part not in self.weights:
            self._check_free(part, self.tensors, "tensor")
            before: tuple[slice, ...] = (slice(None),) * axis
            self.weights[part] = array[(*before, slice(start, stop))]
        return part

    def finish(self) -> tuple[Network, Operators, dict[str, Array]]:
        """Return the rewritten network, its operators and its weights."""
        views = Views(self.views, self.opset)
        operators = replace(
            self._operators,
            of_layer={layer.name: layer.nodes for layer in self.layers.values()},
            views=views,
            described={name: self.tensors[name] for name in self.views},
            trailing={
                layer.name: layer.trailing for layer in self.layers.values() if layer.trailing
            },
        )
        layers = self._finished_layers(views)
        made = {name for layer in layers for name in (*layer.inputs, *layer.outputs)}
        made.update(name for layer in layers for name, _ in layer.state)
        weights = read_by(layers, self.weights)
        network = Network(
            self.network_name,
            layers,
            {name: tensor for name, tensor in self.tensors.items() if name in made},
            weight_tensors(weights),
            self.inputs,
            self.outputs,
            self.batch,
        )
        return network, operators, weights

    def _finished_layers(self, views: Views) -> tuple[Layer, ...]:
        """Return all layers except parts that nobody reads, as where a stride skips their rows."""
        needed = set(self.outputs)
        found: list[Layer] = []
        for layer in reversed(self.layers.values()):
            finished = self._finished(layer, views)
            if not layer.part_of or not needed.isdisjoint(finished.outputs):
                needed.update(finished.inputs)
                found.append(finished)
        return tuple(reversed(found))

    def _finished(self, layer: DraftLayer, views: Views) -> Layer:
        read = [x for name in self.reads(layer) for x in views.assembly(name).tensors]
        nodes = (*layer.nodes, *layer.trailing)
        constants = (x for node in nodes for x in reads(node) if x in self.weights)
        return Layer(
            layer.name,
            layer.operator,
            tuple(dict.fromkeys(read)),
            layer.outputs,
            tuple(dict.fromkeys(constants)),
            layer.macs,
            layer.part_of,
            () if layer.whole is None else layer.whole.state,
        )

    def _check_free(self, name: str, taken: Container[str], what: str) -> None:
        if name in taken:
            raise ModelError(
                f"{self.network_name} has a {what} {name!r} already; a rewrite would make another"
            )


def _joining_layer(tensor: str, join: Join, origin: str) -> DraftLayer:
    """Return a layer that makes a joined tensor, by the node that readers of the view contain."""
    node = onnx.helper.make_node("Concat", join.parts, [tensor], tensor, axis=join.axis)
    return DraftLayer(f"{origin}[join {tensor}]", (node,), 0, origin)
