"""Bands: connected layers computed in bands of rows (Zhao, Barijough and Gerstlauer, "DeepThings",
2018; the data partitioning of Tang & Stefanov 2021, §1).

Band 2 of 3 of a layer `conv` is a layer `conv[2/3]` that makes rows of `conv`'s tensor; all bands
share the layer's weights. Which rows is in `cnn.rewrite.band_rows`. Between the layers of one band
nothing is cut out but where two layers need different rows of the same tensor.

What a band receives from outside are layers of their own, `t[rows 0:10]`, that cut its rows, halo
included, out of a tensor `t`. They cost next to nothing and can run where `t` is made; then only
these rows travel. If instead such a layer runs with its band, all of `t` travels to it, which may
suit a network's input: it comes as a whole to whoever reads it. A tensor that itself comes in
bands is not joined: only the rows of the neighbours that are needed are cut out and sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from cnn.operators.receptive_field import Rows
from cnn.operators.row_taking import ROWS_AXIS, TakenRows
from cnn.rewrite.band_rows import Band, BandSet, Box, FusedLayers, beneath
from cnn.rewrite.draft import Draft, DraftLayer
from cnn.rewrite.prepared import activation_of, closure, operands, part, prepared_from, shape_of
from cnn.rewrite.rewrites import Bands, part_name
from cnn.rewrite.views import Bounds, Join, constant_node, region_name, slice_nodes


def carry_out_bands(draft: Draft, rewrite: Bands) -> None:
    """Compute layers of `draft` in bands; raises `ModelError` if that cannot be done."""
    wanted = FusedLayers(draft, rewrite.layers).bands(rewrite.rows)
    count = len(wanted.bands)
    if count == 1:
        return
    cuts: dict[str, list[DraftLayer]] = {}
    writers = [
        _BandWriter(draft, wanted, band, part_name("", number, count), cuts)
        for number, band in enumerate(wanted.bands, start=1)
    ]
    written = [layer for writer in writers for layer in writer.layers()]
    for tensor, layers in cuts.items():
        draft.insert(layers, tensor)
    draft.replace([layer.name for layer in wanted.layers], written)
    draft.join(wanted.output, ROWS_AXIS, [writer.output for writer in writers])


class _BandWriter:
    """Writes the layers of one band.

    `suffix` tells its layers and tensors apart. Layers that cut rows out of tensors from outside
    are added to `cuts`, by tensor; bands that receive the same rows share one.
    """

    def __init__(
        self,
        draft: Draft,
        wanted: BandSet,
        band: Band,
        suffix: str,
        cuts: dict[str, list[DraftLayer]],
    ) -> None:
        self._draft = draft
        self._wanted = wanted
        self._band = band
        self._suffix = suffix
        self._cuts = cuts
        self._made = {
            name: band.layers[layer.name].made
            for layer in wanted.layers
            if layer.name in band.layers
            for name in layer.outputs
        }
        self.output = wanted.output + suffix

    def layers(self) -> list[DraftLayer]:
        """The layers of this band, in topological order; their tensors are put into the draft."""
        written = [
            self._layer(layer, self._band.layers[layer.name])
            for layer in self._wanted.layers
            if layer.name in self._band.layers
        ]
        made = self._made[self._wanted.output]
        if made != self._band.rows:
            rows = self._band.rows.moved(-made.start)
            origin = written[-1].origin
            whole = self._name(self._wanted.output)
            name = f"{whole}[rows {rows}]"  # a layer without a name has that of its tensor
            written.append(_cut(self._draft, whole, rows, name, origin, self.output))
        return written

    def _layer(self, layer: DraftLayer, taken: TakenRows) -> DraftLayer:
        draft = self._draft
        node = onnx.NodeProto()
        node.CopyFrom(layer.node)
        node.name = layer.name + self._suffix
        _change_attributes(node, taken.attributes)
        preparing: dict[str, onnx.NodeProto] = {}
        activations = operands(draft, layer)
        for index, name in enumerate(layer.node.input):
            nodes: tuple[onnx.NodeProto, ...] = ()
            if index in taken.constants:
                node.input[index] = f"{node.name}.{name}"
                nodes = (constant_node(node.input[index], taken.constants[index]),)
            elif name in activations:
                rows = taken.inputs[index]
                box = {ROWS_AXIS: (rows.start, rows.stop)}
                source = self._come_by(activation_of(draft, layer, name), box, layer.origin)
                node.input[index], nodes = prepared_from(draft, layer, name, source)
            elif index in taken.inputs:
                node.input[index], nodes = self._constant_rows(layer, name, taken.inputs[index])
            elif name:
                nodes = closure(layer, name)
            preparing.update((x.output[0], x) for x in nodes)
        for name in layer.outputs:
            whole = draft.tensors[name]
            shape = list(whole.shape)
            shape[ROWS_AXIS] = taken.made.count
            draft.add_tensor(self._name(name), shape, whole.dtype)
        suffixes = {name: self._name(name).removeprefix(name) for name in layer.outputs}
        behind = layer.make_parts(node, suffixes)
        macs = self._band.macs[layer.name]
        return DraftLayer(node.name, (*preparing.values(), node), macs, layer.origin, behind)

    def _constant_rows(
        self, layer: DraftLayer, name: str, rows: Rows
    ) -> tuple[str, tuple[onnx.NodeProto, ...]]:
        """Rows of a constant that is broadcast to the layer's output, aligned at the last axis."""
        rank = len(self._draft.tensors[layer.outputs[0]].shape)
        axis = ROWS_AXIS - rank + len(shape_of(self._draft, layer, name))
        return part(self._draft, layer, name, axis, rows.start, rows.stop)

    def _name(self, tensor: str) -> str:
        """What this band makes of a tensor; of the output that may be too much."""
        has_more = tensor == self._wanted.output and self._made[tensor] != self._band.rows
        return tensor + self._suffix + ("+" if has_more else "")

    def _come_by(self, name: str, box: Box, reader: str) -> str:
        """A box of a tensor or view as this band's layers come by it."""
        draft = self._draft
        view = draft.views.get(name)
        if view is None:
            return self._cut_further(name, box, reader)
        pieces = [self._come_by(part, own, reader) for part, own in beneath(view, box)]
        if len(pieces) == 1 or not isinstance(view, Join):
            return pieces[0]
        joined = region_name(name, _bounds(box)) + self._suffix
        if joined not in draft.views:
            shape = list(draft.tensors[name].shape)
            for axis, (start, stop) in box.items():
                shape[axis] = stop - start
            draft.add_tensor(joined, shape, draft.tensors[name].dtype)
            extents = tuple(draft.tensors[piece].shape[view.axis] for piece in pieces)
            draft.views[joined] = Join(view.axis, tuple(pieces), extents)
        return joined

    def _cut_further(self, tensor: str, box: Box, reader: str) -> str:
        """A box of a real tensor, as a region of those rows of it that this band has."""
        if tensor in self._made:
            whole, first = self._name(tensor), self._made[tensor].start
        else:
            whole, first = self._received(tensor, reader), self._band.received[tensor].start
        start, stop = box[ROWS_AXIS]
        return self._draft.region(whole, _bounds({**box, ROWS_AXIS: (start - first, stop - first)}))

    def _received(self, tensor: str, reader: str) -> str:
        """Rows of a tensor from outside, cut out by a layer of their own unless they are all."""
        draft, rows = self._draft, self._band.received[tensor]
        if rows == Rows(0, draft.tensors[tensor].shape[ROWS_AXIS]):
            return tensor
        name = f"{tensor}[rows {rows}]"
        if name not in draft.tensors:
            cut = _cut(draft, tensor, rows, name, reader)
            self._cuts.setdefault(tensor, []).append(cut)
        return name


def _bounds(box: Box) -> Bounds:
    return tuple((axis, start, stop) for axis, (start, stop) in sorted(box.items()))


def _cut(
    draft: Draft, tensor: str, rows: Rows, name: str, origin: str, made: str = ""
) -> DraftLayer:
    """A layer called `name` that makes `rows` of `tensor`, called `made`, by default as well."""
    made = made or name
    shape = list(draft.tensors[tensor].shape)
    shape[ROWS_AXIS] = rows.count
    draft.add_tensor(made, shape, draft.tensors[tensor].dtype)
    nodes = slice_nodes(tensor, made, ((ROWS_AXIS, rows.start, rows.stop),), draft.opset)
    nodes[-1].name = name
    return DraftLayer(name, tuple(nodes), 0, origin)


def _change_attributes(
    node: onnx.NodeProto, changes: Mapping[str, int | Sequence[int] | None]
) -> None:
    kept = [entry for entry in node.attribute if entry.name not in changes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(
        helper.make_attribute(name, value) for name, value in changes.items() if value is not None
    )
