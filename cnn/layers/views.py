"""Views: tensors that no layer makes, assembled from tensors that layers do make.

If a rewrite computes a tensor in parts, the tensor's readers still need the whole, and a part may
need only a region of it. Neither justifies a separate layer, which would be a stop on the way
between devices. So each layer that reads a view contains the ONNX nodes that assemble it: `Concat`
for a `Join`, `Slice` for a `Region`, none if the view is exactly one part. Each node is named after
the tensor that it makes, so two layers in one subnet share it.

Views are resolved only when nodes are written. A region of a tensor that a later rewrite computes
in parts is then found in these parts, so the order of rewrites does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from cnn.operators.standard import SLICE_AS_INPUT_SINCE

Bounds: TypeAlias = tuple[tuple[int, int, int], ...]
"""(axis, start, stop) by ascending axis; axes that are not named are complete."""


@dataclass(frozen=True, slots=True)
class Join:
    """A tensor that consists of `parts` along `axis`, with `extents` elements of that axis each."""

    axis: int
    parts: tuple[str, ...]
    extents: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Region:
    """The part of the tensor `of` within `bounds`, a proper part along each named axis."""

    of: str
    bounds: Bounds


View: TypeAlias = Join | Region


@dataclass(frozen=True, slots=True)
class Assembly:
    """The `nodes` that make `name` from the real `tensors`."""

    name: str
    nodes: tuple[onnx.NodeProto, ...]
    tensors: tuple[str, ...]


class Views:
    """The views of a rewritten network, by name; `opset` is ONNX's own operator set."""

    def __init__(self, views: Mapping[str, View], opset: int) -> None:
        self.by_name = views
        self._opset = opset
        self._found: dict[str, Assembly] = {}

    def assembly(self, name: str) -> Assembly:
        """Return how to assemble `name`; a real tensor or a constant is itself."""
        view = self.by_name.get(name)
        if view is None:
            return Assembly(name, (), (name,))
        if name not in self._found:
            if isinstance(view, Join):
                parts = [self.assembly(part) for part in view.parts]
                self._found[name] = _joined(name, view.axis, parts)
            else:
                self._found[name] = self._region(view)
        return self._found[name]

    def _region(self, region: Region) -> Assembly:
        join = self.by_name.get(region.of)
        if isinstance(join, Join):
            return self._region_of_parts(region, join)
        whole = self.assembly(region.of)
        name = region_name(region.of, region.bounds)
        nodes = slice_nodes(whole.name, name, region.bounds, self._opset)
        return Assembly(name, (*whole.nodes, *nodes), whole.tensors)

    def _region_of_parts(self, region: Region, join: Join) -> Assembly:
        other = tuple(bound for bound in region.bounds if bound[0] != join.axis)
        wanted = next(
            ((start, stop) for axis, start, stop in region.bounds if axis == join.axis),
            (0, sum(join.extents)),
        )
        found: list[Assembly] = []
        offset = 0
        for part, extent in zip(join.parts, join.extents, strict=True):
            start, stop = max(wanted[0] - offset, 0), min(wanted[1] - offset, extent)
            offset += extent
            if start >= stop:
                continue
            along = () if (start, stop) == (0, extent) else ((join.axis, start, stop),)
            bounds = tuple(sorted((*other, *along)))
            found.append(self._region(Region(part, bounds)) if bounds else self.assembly(part))
        return _joined(region_name(region.of, region.bounds), join.axis, found)


def region_name(of: str, bounds: Bounds) -> str:
    """Return the name of a region, as NumPy would write it.

    >>> region_name("t", ((1, 0, 4),))
    't[:,0:4]'
    """
    named = {axis: f"{start}:{stop}" for axis, start, stop in bounds}
    return f"{of}[{','.join(named.get(axis, ':') for axis in range(max(named) + 1))}]"


def _joined(name: str, axis: int, parts: list[Assembly]) -> Assembly:
    if len(parts) == 1:
        return parts[0]
    before = [node for part in parts for node in part.nodes]
    join = helper.make_node("Concat", [part.name for part in parts], [name], name, axis=axis)
    tensors = dict.fromkeys(tensor for part in parts for tensor in part.tensors)
    return Assembly(name, (*before, join), tuple(tensors))


def slice_nodes(source: str, name: str, bounds: Bounds, opset: int) -> list[onnx.NodeProto]:
    """Return the nodes that cut `bounds` out of `source`; the result is called `name`."""
    axes, starts, stops = (list(values) for values in zip(*bounds, strict=True))
    if opset < SLICE_AS_INPUT_SINCE:
        return [
            helper.make_node("Slice", [source], [name], name, axes=axes, starts=starts, ends=stops)
        ]
    given = {"starts": starts, "stops": stops, "axes": axes}
    constants = [constant_node(f"{name}.{key}", np.array(values)) for key, values in given.items()]
    return [
        *constants,
        helper.make_node("Slice", [source, *(f"{name}.{k}" for k in given)], [name], name),
    ]


def constant_node(name: str, values: NDArray[np.integer]) -> onnx.NodeProto:
    """Return a node that makes int64 numbers: positions or shapes for other operators."""
    value = numpy_helper.from_array(values.astype(np.int64), name)
    return helper.make_node("Constant", [], [name], name, value=value)
