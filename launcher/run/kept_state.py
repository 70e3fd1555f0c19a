"""Takes the state that a network keeps from frame to frame from its results.

The output that is fed back is a result like any other, so whoever has the results of all frames
before one knows the state with which that frame was computed: the next epoch can begin with it, a
run that is resumed too, and the whole model can be asked what it computes from the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from launcher.run.runtime import Array

if TYPE_CHECKING:
    from cnn.network import Network


class KeptState:
    """The state of `network` after the results that it has seen, in frame order: at first zeros.

    It is false for a network that keeps none.
    """

    def __init__(self, network: Network) -> None:
        self._made = dict(network.state)
        described = (network.tensors[name] for name in network.state)
        self.now: dict[str, Array] = {t.name: np.zeros(t.shape, t.dtype) for t in described}
        """What the next frame reads, by tensor name."""

    def __bool__(self) -> bool:
        return bool(self._made)

    def see(self, outputs: Mapping[str, Array]) -> None:
        """Take in the next frame's outputs."""
        self.now = {name: outputs[made] for name, made in self._made.items()}
