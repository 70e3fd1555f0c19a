"""Bands: compute connected layers in bands of rows.

Source: Zhao, Barijough and Gerstlauer, "DeepThings", 2018; the data partitioning of Tang & Stefanov
2021, §1.

Band 2 of 3 of a layer `conv` is a layer `conv[2/3]` that makes rows of `conv`'s tensor; all bands
share the layer's weights. `FusedLayers` calculates, without rewriting anything, which rows each
layer makes for each band. It walks from the last layer to the first: a layer makes, in one piece,
the rows that the later layers of the band need, and its row rule (`cnn.operators.row_rules`) gives
the rows that this requires of its inputs. Rows that two bands need are computed in both. Rows from
outside are received and not computed. So a band of one layer costs no more arithmetic than its
share, and its halo only costs traffic; each further layer adds the halo of the later ones to its
work.

`apply_bands` writes the layers. Between the layers of one band nothing is cut, unless two layers
need different rows of the same tensor. A separate layer, `t[rows 0:10]`, cuts the rows, halo
included, that a band receives from a tensor `t` outside. It costs almost nothing and can run where
`t` is made; then only these rows travel. If it runs with its band instead, all of `t` travels,
which may suit a network's input, because that is sent complete to every reader. A tensor that is
computed in bands itself is not joined: only the rows of neighbours that are needed are cut out and
sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from cnn.errors import ModelError
from cnn.layers.views import (
    Bounds,
    Join,
    Region,
    View,
    Views,
    constant_node,
    region_name,
    slice_nodes,
)
from cnn.network import TAIL
from cnn.operators.attributes import change_attributes
from cnn.operators.operands import NoRuleError
from cnn.operators.receptive_field import Rows, bands_of
from cnn.operators.row_rules import ROWS_AXIS, OperatorBand, RowRule, row_rule
from cnn.operators.supported import describe
from cnn.rewrite.draft import Draft, DraftLayer
from cnn.rewrite.prepared import (
    activation_of,
    operands,
    operands_of,
    prepared_from,
    preparing_nodes,
    shape_of,
    sliced,
)
from cnn.rewrite.rewrites import Bands, part_name


@dataclass(frozen=True)
class Band:
    """One band: `rows` of the output tensor, and what each layer computes for them.

    `layers` has, for each layer that is needed, the rows that it reads and makes; `received` has
    the rows of each tensor from outside; `macs` has each layer's multiply-accumulates.
    """

    rows: Rows
    layers: Mapping[str, OperatorBand]
    received: Mapping[str, Rows]
    macs: Mapping[str, int]


@dataclass(frozen=True)
class BandSet:
    """Layers in bands; other layers need only the tensor `output` of those that they make."""

    layers: tuple[DraftLayer, ...]
    output: str
    bands: tuple[Band, ...]

    @property
    def macs(self) -> int:
        """The multiply-accumulates of all bands together."""
        return sum(sum(band.macs.values()) for band in self.bands)

    @property
    def halo_macs(self) -> int:
        """The multiply-accumulates beyond those of the whole layers.

        This is negative if strides skip rows, so that the bands need not make them.
        """
        return self.macs - sum(layer.macs for layer in self.layers)

    @property
    def halo_share(self) -> float:
        """`halo_macs` relative to the whole layers' multiply-accumulates; 0 if there are none."""
        return self.halo_macs / max(1, self.macs - self.halo_macs)


def bandable(draft: Draft) -> tuple[str, ...]:
    """Return the layers that can be computed in bands of rows, in topological order."""
    return tuple(name for name, layer in draft.layers.items() if _has_bands(draft, layer))


class FusedLayers:
    """Layers that can be computed together in any bands of rows of the tensor `output`.

    Raises `ModelError` if they cannot. Bands that were calculated are cached.
    """

    def __init__(self, draft: Draft, names: Sequence[str]) -> None:
        wanted = dict.fromkeys(draft.layer(name).name for name in names)
        if len(wanted) < len(names) or not wanted:
            raise ModelError("bands need layers, and each layer once")
        self.layers = tuple(layer for name, layer in draft.layers.items() if name in wanted)
        self._draft = draft
        self._steps = tuple(_Step(draft, layer) for layer in reversed(self.layers))
        self._made = frozenset(name for layer in self.layers for name in layer.outputs)
        self.output = _output(draft, self.layers)
        self._found: dict[Rows, Band] = {}

    @property
    def height(self) -> int:
        """The number of rows of the output."""
        return self._draft.tensors[self.output].shape[ROWS_AXIS]

    def bands(self, counts: Sequence[int]) -> BandSet:
        """Return bands of `counts` rows each, from top to bottom.

        Raises `ModelError` if their sum is not the number of rows of the output, or a band has no
        row.
        """
        if sum(counts) != self.height or min(counts) < 1:
            raise ModelError(
                f"tensor {self.output!r} has {self.height} rows, and its bands have "
                f"{' + '.join(map(str, counts))} = {sum(counts)}; each needs at least one, and all "
                "together as many as the tensor"
            )
        return BandSet(self.layers, self.output, tuple(map(self.band, bands_of(counts))))

    def band(self, rows: Rows) -> Band:
        """Return the band that makes `rows` of the output."""
        if rows not in self._found:
            self._found[rows] = self._band(rows)
        return self._found[rows]

    def _band(self, rows: Rows) -> Band:
        needed: dict[str, Rows] = {self.output: rows}
        computed: dict[str, OperatorBand] = {}
        macs: dict[str, int] = {}
        for step in self._steps:
            requested: Rows | None = None
            for name in step.outputs:
                if name in needed:
                    requested = needed[name].hull(requested)
            if requested is None:
                continue
            own = computed[step.layer.name] = step.rule(requested)
            macs[step.layer.name] = int(step.layer.macs and step.layer.macs * own.work)
            for index, source in step.sources:
                seen = own.inputs[index]
                box = {ROWS_AXIS: (seen.start, seen.stop)}
                for name, part in _real_rows(self._draft, source, box):
                    needed[name] = part.hull(needed.get(name))
        received = {name: part for name, part in needed.items() if name not in self._made}
        return Band(rows, computed, received, macs)


class _Step:
    """One layer on the walk from the output to the inputs, with its rule.

    `sources` are (index, name) of those inputs.
    """

    def __init__(self, draft: Draft, layer: DraftLayer) -> None:
        self.layer = layer
        self.outputs = layer.outputs
        self.rule = _rule(draft, layer)
        read = ((i, activation_of(draft, layer, x)) for i, x in enumerate(layer.node.input))
        self.sources = [(index, name) for index, name in read if name]


Box: TypeAlias = Mapping[int, tuple[int, int]]
"""Axis → (start, stop) of a part of a tensor; axes that are not named are complete."""


def pieces_of(view: View, box: Box) -> list[tuple[str, Box]]:
    """Return what a box of a view consists of, one level down: boxes of tensors or of other views.

    A box of a region is one box; a box of a join is one box of each part that it overlaps, in
    order.
    """
    if isinstance(view, Region):
        shifted = dict(box)
        for axis, start, stop in view.bounds:
            first, last = box.get(axis, (0, stop - start))
            shifted[axis] = (start + first, start + last)
        return [(view.of, shifted)]
    first, last = box.get(view.axis, (0, sum(view.extents)))
    found: list[tuple[str, Box]] = []
    for part, whole in zip(view.parts, bands_of(view.extents), strict=True):
        intersection = whole.intersection(Rows(first, last))
        if intersection:
            own = intersection.shifted(-whole.start)
            found.append((part, {**box, view.axis: (own.start, own.stop)}))
    return found


def _real_rows(draft: Draft, name: str, box: Box) -> Iterator[tuple[str, Rows]]:
    """Yield the real tensors, and the rows of each, that a box consists of."""
    view = draft.views.get(name)
    if view is None:
        yield name, Rows(*box[ROWS_AXIS])
        return
    for part, own in pieces_of(view, box):
        yield from _real_rows(draft, part, own)


def _output(draft: Draft, layers: tuple[DraftLayer, ...]) -> str:
    """Return the one tensor of these layers that others need."""
    views = Views(draft.views, draft.opset)
    own = {layer.name for layer in layers}
    made = dict.fromkeys(name for layer in layers for name in layer.outputs)
    needed = set(draft.outputs)
    inside: set[str] = set()
    for layer in draft.layers.values():
        read = (real for name in draft.reads(layer) for real in views.assembly(name).tensors)
        (inside if layer.name in own else needed).update(read)
    for layer in layers:
        if (inside | needed).isdisjoint(layer.outputs):
            raise ModelError(
                f"nothing reads the output of layer {layer.name!r}, so it has no bands"
            )
    outputs = [name for name in made if name in needed]
    if len(outputs) != 1:
        raise ModelError(
            f"the layers {layers[0].name!r} … {layers[-1].name!r} make {len(outputs)} tensors that "
            f"others need ({', '.join(map(repr, outputs[:3]))}, …); bands need connected layers "
            "of which only one tensor is needed"
        )
    return outputs[0]


def _has_bands(draft: Draft, layer: DraftLayer) -> bool:
    try:
        _rule(draft, layer)
    except ModelError:
        return False
    return len(layer.outputs) == 1 and draft.tensors[layer.outputs[0]].shape[ROWS_AXIS] > 1


def _rule(draft: Draft, layer: DraftLayer) -> RowRule:
    """Return the row rule of a layer; raise `ModelError` if it has none."""
    if layer.operator == TAIL:
        raise ModelError(f"layer {layer.name!r} is a tail, which runs as a whole")
    if layer.whole is not None:
        raise ModelError(
            f"layer {layer.name!r} keeps state from frame to frame and runs as a whole"
        )
    known = operands_of(draft, layer)
    try:
        if draft.is_joining(layer):
            raise NoRuleError("it joins parts of a layer")
        rule = row_rule(known)
        by_rows = rule(Rows(0, 1)).inputs
        for index, name in enumerate(layer.node.input):
            if name in known.activations and index not in by_rows:
                raise NoRuleError(f"its input {name!r} is neither a constant nor read by rows")
    except NoRuleError as error:
        raise ModelError(
            f"{describe(layer.node)} cannot be computed in bands of rows: {error}"
        ) from error
    return rule


def apply_bands(draft: Draft, rewrite: Bands) -> None:
    """Compute layers of `draft` in bands; raise `ModelError` if that is impossible."""
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

    `suffix` distinguishes its layers and tensors. Layers that cut rows out of tensors from outside
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
        """Return this band's layers, in topological order; add their tensors to the draft."""
        written = [
            self._layer(layer, self._band.layers[layer.name])
            for layer in self._wanted.layers
            if layer.name in self._band.layers
        ]
        made = self._made[self._wanted.output]
        if made != self._band.rows:
            rows = self._band.rows.shifted(-made.start)
            origin = written[-1].origin
            whole = self._name(self._wanted.output)
            name = f"{whole}[rows {rows}]"  # a layer without a name is named after its tensor
            written.append(_cut(self._draft, whole, rows, name, origin, self.output))
        return written

    def _layer(self, layer: DraftLayer, computed: OperatorBand) -> DraftLayer:
        draft = self._draft
        node = deepcopy(layer.node)
        node.name = layer.name + self._suffix
        change_attributes(node, computed.attributes)
        preparing: dict[str, onnx.NodeProto] = {}
        activations = operands(draft, layer)
        for index, name in enumerate(layer.node.input):
            nodes: tuple[onnx.NodeProto, ...] = ()
            if index in computed.constants:
                node.input[index] = f"{node.name}.{name}"
                nodes = (constant_node(node.input[index], computed.constants[index]),)
            elif name in activations:
                rows = computed.inputs[index]
                box = {ROWS_AXIS: (rows.start, rows.stop)}
                source = self._source_of(activation_of(draft, layer, name), box, layer.origin)
                node.input[index], nodes = prepared_from(draft, layer, name, source)
            elif index in computed.inputs:
                node.input[index], nodes = self._constant_rows(layer, name, computed.inputs[index])
            elif name:
                nodes = preparing_nodes(layer, name)
            preparing.update((x.output[0], x) for x in nodes)
        for name in layer.outputs:
            whole = draft.tensors[name]
            shape = list(whole.shape)
            shape[ROWS_AXIS] = computed.made.count
            draft.add_tensor(self._name(name), shape, whole.dtype)
        suffixes = {name: self._name(name).removeprefix(name) for name in layer.outputs}
        trailing = layer.make_parts(node, suffixes)
        macs = self._band.macs[layer.name]
        return DraftLayer(node.name, (*preparing.values(), node), macs, layer.origin, trailing)

    def _constant_rows(
        self, layer: DraftLayer, name: str, rows: Rows
    ) -> tuple[str, tuple[onnx.NodeProto, ...]]:
        """Take rows of a constant that broadcasts to the layer's output from the last axis."""
        rank = len(self._draft.tensors[layer.outputs[0]].shape)
        axis = ROWS_AXIS - rank + len(shape_of(self._draft, layer, name))
        return sliced(self._draft, layer, name, axis, rows.start, rows.stop)

    def _name(self, tensor: str) -> str:
        """Return the name of this band's part of a tensor; "+" marks more rows than requested."""
        has_more = tensor == self._wanted.output and self._made[tensor] != self._band.rows
        return tensor + self._suffix + ("+" if has_more else "")

    def _source_of(self, name: str, box: Box, reader: str) -> str:
        """Return the name under which this band's layers read a box of a tensor or view."""
        draft = self._draft
        view = draft.views.get(name)
        if view is None:
            return self._cut_further(name, box, reader)
        pieces = [self._source_of(part, own, reader) for part, own in pieces_of(view, box)]
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
        """Return a box of a real tensor, as a region of the rows that this band has of it."""
        if tensor in self._made:
            whole, first = self._name(tensor), self._made[tensor].start
        else:
            whole, first = self._received(tensor, reader), self._band.received[tensor].start
        start, stop = box[ROWS_AXIS]
        return self._draft.region(whole, _bounds({**box, ROWS_AXIS: (start - first, stop - first)}))

    def _received(self, tensor: str, reader: str) -> str:
        """Return the rows of a tensor from outside, cut out by a layer unless they are all."""
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
    """Return a layer called `name` that makes `rows` of `tensor`, called `made` or `name`."""
    made = made or name
    shape = list(draft.tensors[tensor].shape)
    shape[ROWS_AXIS] = rows.count
    draft.add_tensor(made, shape, draft.tensors[tensor].dtype)
    nodes = slice_nodes(tensor, made, ((ROWS_AXIS, rows.start, rows.stop),), draft.opset)
    nodes[-1].name = name
    return DraftLayer(name, tuple(nodes), 0, origin)
