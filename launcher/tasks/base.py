"""Defines what a task does before and after the network.

A task fits an image to the network's input and remembers how (`ImagePlacement`), so that what the
network finds can be given in pixels of the source's image. All boxes and points are in such pixels:
x to the right, y down, from the outer corner of the top left pixel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from numpy.typing import NDArray

from launcher.config.ends.sink import Predictions
from launcher.inputs.placement import ImagePlacement

Array: TypeAlias = NDArray[Any]


class Task(Protocol):
    """Fits images to a network, and decodes its outputs."""

    def prepare(self, image: Array) -> tuple[Mapping[str, Array], ImagePlacement]:
        """Return the network's inputs for an image, uint8 [height, width, 3] in RGB."""
        ...

    def decode(
        self, outputs: Mapping[str, Array], placement: ImagePlacement | None
    ) -> Predictions | None:
        """Return the predictions, None if the network has no known meaning.

        Without a `placement`, the network's inputs were given as arrays; boxes and points are then
        in pixels of the network's input.

        Raises `RunFailedError` for outputs of another form.
        """
        ...
