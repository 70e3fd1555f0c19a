"""Which part of which tensor of the whole network a tensor of the rewritten one is.

Rewrites compute tensors in parts and declare the whole as a view of them (`cnn.rewrite.views`).
Read the other way round, a view says where each part lies in the tensor that it is a part of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cnn.rewrite.views import Bounds, Join, View
from launcher.run.runtime import Array


@dataclass(frozen=True, slots=True)
class Place:
    """What lies in the whole network's tensor `of` within `bounds`; none if it is all of it."""

    of: str
    bounds: Bounds = ()

    def cut(self, array: Array) -> Array:
        """That part of the tensor's values."""
        within = {axis: slice(start, stop) for axis, start, stop in self.bounds}
        return array[tuple(within.get(axis, slice(None)) for axis in range(array.ndim))]


def places(tensors: Mapping[str, str], views: Mapping[str, View]) -> dict[str, Place]:
    """Tensor or part of one → its place, as far as views determine it.

    `tensors` maps those of the rewritten network that the whole one has too, real or views, to
    their names there. What only a band has of a tensor, halo included, has no place.
    """
    found = {name: Place(of) for name, of in tensors.items()}
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        view = views.get(name)
        if not isinstance(view, Join):
            continue
        whole = found[name]
        outer = {axis: (start, stop) for axis, start, stop in whole.bounds}
        start = outer.get(view.axis, (0, 0))[0]
        for part, extent in zip(view.parts, view.extents, strict=True):
            stop = start + extent
            if part not in found:
                within = {**outer, view.axis: (start, stop)}
                bounds = tuple((axis, *ends) for axis, ends in sorted(within.items()))
                found[part] = Place(whole.of, bounds)
                waiting.append(part)
            start = stop
    return found
