"""Copies: run the whole network several times side by side, for different frames.

Copy 2 of a layer, an activation, an input or an output `x` is named `x@2`. All copies share the
weights, under their original names.
"""

from __future__ import annotations

from dataclasses import replace

from cnn.errors import ModelError
from cnn.layers.views import Join, Region, region_name
from cnn.operators.bodies import reads, renamed
from cnn.rewrite.draft import Draft, DraftLayer
from cnn.rewrite.rewrites import Copies, copy_name


def apply_copies(draft: Draft, rewrite: Copies) -> None:
    """Copy the network of `draft`; a single copy is the network as it is."""
    if rewrite.count == 1:
        return
    for layer in draft.layers.values():
        if layer.whole is not None and layer.whole.state:
            raise ModelError(
                f"{draft.network_name} keeps state from frame to frame (layer {layer.name!r}), so "
                "its frames cannot be distributed over copies"
            )
    names = _Names(draft)
    numbers = range(1, rewrite.count + 1)
    tensors, views = draft.tensors, draft.views
    draft.tensors, draft.views = {}, {}
    for number in numbers:
        for name, tensor in tensors.items():
            copy = names.copy(name, number)
            draft.add_tensor(copy, tensor.shape, tensor.dtype, varies=tensor.varies)
        for name, view in views.items():
            if isinstance(view, Join):
                parts = tuple(names.copy(part, number) for part in view.parts)
                copied: Join | Region = Join(view.axis, parts, view.extents)
            else:
                copied = Region(names.copy(view.of, number), view.bounds)
            draft.views[names.copy(name, number)] = copied
    layers = [names.layer(layer, number) for number in numbers for layer in draft.layers.values()]
    draft.layers = {layer.name: layer for layer in layers}
    draft.inputs = tuple(names.copy(name, number) for number in numbers for name in draft.inputs)
    draft.outputs = tuple(names.copy(name, number) for number in numbers for name in draft.outputs)


class _Names:
    """The names of layers and activations in each copy; weights keep their names."""

    def __init__(self, draft: Draft) -> None:
        self._views = dict(draft.views)
        self._activations = frozenset(draft.tensors)

    def copy(self, name: str, number: int) -> str:
        if name not in self._activations:
            return name
        view = self._views.get(name)
        if isinstance(view, Region):
            return region_name(self.copy(view.of, number), view.bounds)
        return copy_name(name, number)

    def layer(self, layer: DraftLayer, number: int) -> DraftLayer:
        """Return one copy of a layer; the nodes that prepare its constants serve all copies."""
        inner: dict[str, str] = {}
        copied = []
        for node in (*layer.nodes, *layer.trailing):
            called = {name: inner.get(name, self.copy(name, number)) for name in reads(node)}
            if node is layer.node or any(name != new for name, new in called.items()):
                inner |= {made: copy_name(made, number) for made in node.output if made}
                copied.append(renamed(node, called | inner))
                copied[-1].name = node.name and copy_name(node.name, number)
            else:
                copied.append(node)
        own = len(layer.nodes)
        name = copied[own - 1].name = copy_name(layer.name, number)
        nodes, trailing = tuple(copied[:own]), tuple(copied[own:])
        whole = layer.whole
        if whole is not None:
            whole = replace(whole, outputs=tuple(self.copy(x, number) for x in whole.outputs))
        return DraftLayer(name, nodes, layer.macs, layer.origin, trailing, whole)
