"""Copies: the whole network several times, side by side, for frames that are dealt out to them.

Copy 2 of a layer, an activation, an input or an output `x` is called `x@2`. Weights belong to all
copies together, under the names that they had.
"""

from __future__ import annotations

import onnx

from cnn.draft import Draft, DraftLayer
from cnn.rewrites import Copies, copy_name
from cnn.views import Join, Region, region_name


def carry_out_copies(draft: Draft, rewrite: Copies) -> None:
    """Copy the network of `draft`; a single copy is the network as it is."""
    if rewrite.count == 1:
        return
    names = _Names(draft)
    numbers = range(1, rewrite.count + 1)
    tensors, views = draft.tensors, draft.views
    draft.tensors, draft.views = {}, {}
    for number in numbers:
        for name, tensor in tensors.items():
            draft.add_tensor(names.copy(name, number), tensor.shape, tensor.dtype)
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
    """What layers and activations are called in each copy; weights keep their names."""

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
        """One copy of a layer; the nodes that prepare its constants serve all copies."""
        inner: dict[str, str] = {}
        copied = []
        for node in (*layer.nodes, *layer.behind):
            read = [inner.get(name, self.copy(name, number)) for name in node.input]
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            if node is layer.node or read != list(node.input):
                copy.name = node.name and copy_name(node.name, number)
                for made in filter(None, node.output):
                    inner[made] = copy_name(made, number)
            copy.input[:] = read
            copy.output[:] = [inner.get(made, made) for made in node.output]
            copied.append(copy)
        own = len(layer.nodes)
        name = copied[own - 1].name = copy_name(layer.name, number)
        nodes, behind = tuple(copied[:own]), tuple(copied[own:])
        return DraftLayer(name, nodes, layer.macs, layer.origin, behind)
