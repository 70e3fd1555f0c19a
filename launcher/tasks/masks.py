"""Maps masks and classes of pixels from the network's grid to the source's pixels.

A grid covers the network's input. The centre of a source's pixel lies somewhere in the grid; a mask
takes the value there between the four nearest cells (bilinear, as ultralytics enlarges masks), a
class that of the nearest cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from launcher.inputs.fitting import ImagePlacement
from launcher.tasks.predictions import NO_CLASS, ObjectMask
from nodes.protocol.payload import Array

_BLOCK_PIXELS = 1 << 16
"""Pixels of a mask that are computed at a time, so that they stay in the processor's cache."""

_ROUNDING = 1e-3
"""The rounding error of 32 bits at the edge of a box that lies between two pixels."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where the source's pixels lie along one axis of a grid of `cells`."""

    scale: float
    offset: float
    cells: int

    def centres(self, begin: int, end: int) -> Array:
        """Return where the centres of the pixels from `begin` to `end` lie, in cells."""
        return (np.arange(begin, end) + 0.5) * self.scale + self.offset

    def between(self, begin: int, end: int) -> tuple[Array, Array, Array]:
        """Return the two nearest cells of each pixel, and the second's weight."""
        place = np.clip(self.centres(begin, end) - 0.5, 0, self.cells - 1)
        first = place.astype(np.intp)
        second = np.minimum(first + 1, self.cells - 1)
        return first, second, (place - first).astype(np.float32)

    def nearest(self, count: int) -> tuple[Array, Array]:
        """Return the cell of each pixel, and whether it lies in the grid."""
        place = np.floor(self.centres(0, count)).astype(np.intp)
        return np.clip(place, 0, self.cells - 1), (place >= 0) & (place < self.cells)


def _axes(
    placement: ImagePlacement, size: tuple[int, int], grid: tuple[int, ...]
) -> tuple[_Axis, _Axis]:
    """Return the axes x and y; `size` is the input's (width, height), `grid` (rows, columns)."""
    in_x, in_y = grid[1] / size[0], grid[0] / size[1]
    return (
        _Axis(placement.scale_x * in_x, placement.left * in_x, grid[1]),
        _Axis(placement.scale_y * in_y, placement.top * in_y, grid[0]),
    )


def mask_in(
    box: tuple[float, float, float, float],
    values: Array,
    placement: ImagePlacement,
    size: tuple[int, int],
) -> ObjectMask:
    """Return the pixels in `box` whose value is above 0.

    A pixel is in the box if its top left corner is, which is where ultralytics cuts masks off.
    `values` is float32 [rows, columns] over the network's input of `size` (width, height); `box` is
    in the source's pixels.
    """
    left, top, right, bottom = (math.ceil(edge - _ROUNDING) for edge in box)
    axis_x, axis_y = _axes(placement, size, values.shape)
    above, below, weight_y = axis_y.between(top, bottom)
    before, behind, weight_x = axis_x.between(left, right)
    first = values[above]
    rows = first + (values[below] - first) * weight_y[:, None]
    pixels = np.empty((len(above), len(before)), np.bool_)
    step = max(1, _BLOCK_PIXELS // max(1, len(before)))
    for begin in range(0, len(rows), step):
        block = rows[begin : begin + step]
        first = block[:, before]
        np.greater(first + (block[:, behind] - first) * weight_x, 0, out=pixels[begin:][:step])
    return ObjectMask(left, top, pixels)


def classes_in_source(classes: Array, placement: ImagePlacement, size: tuple[int, int]) -> Array:
    """Return the class of each of the source's pixels, `NO_CLASS` where it was cut off.

    `classes` is uint16 [rows, columns] over the network's input of `size` (width, height).
    """
    axis_x, axis_y = _axes(placement, size, classes.shape)
    columns, seen_x = axis_x.nearest(placement.width)
    rows, seen_y = axis_y.nearest(placement.height)
    found: Array = classes[rows][:, columns]
    found[~seen_y] = NO_CLASS
    found[:, ~seen_x] = NO_CLASS
    return found
