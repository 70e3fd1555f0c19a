"""Says where a source's image lies in the network's input."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImagePlacement:
    """Where a source's image lies in the network's input.

    The pixel (x, y) of the source is at (x · scale_x + left, y · scale_y + top).
    """

    width: int
    height: int
    """The size of the source's image in pixels."""
    scale_x: float = 1.0
    scale_y: float = 1.0
    left: float = 0.0
    top: float = 0.0
