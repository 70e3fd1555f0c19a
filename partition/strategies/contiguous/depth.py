"""Cuts by depth, as Villarrubia et al. (2025, §6.1.1) make them: all paths at the same depth.

A layer's depth is its largest distance from the network's inputs, counted in layers. Every tensor
leads to a greater depth, so the layers sorted by depth are in a topological order, and a cut
between two depths is a contiguous cut of that order. Branches are cut at one depth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.strategies.base import Problem


@dataclass(frozen=True)
class DepthOrder:
    """`problem` with its layers sorted by depth, what was layer `order[i]` in place i; depth d has
    the layers from `positions[d]` up to `positions[d + 1]`.
    """

    problem: Problem
    order: NDArray[np.intp]
    positions: tuple[int, ...]

    @property
    def levels(self) -> int:
        """How many different depths there are."""
        return len(self.positions) - 1

    def numbers(self, of_level: NDArray[np.integer]) -> NDArray[np.intp]:
        """Return a device number per layer of the original problem, from one per level."""
        found = np.empty(len(self.order), dtype=np.intp)
        found[self.order] = np.repeat(of_level, np.diff(self.positions))
        return found


def layer_depths(network: Network) -> NDArray[np.intp]:
    """Return the depth of each layer, its largest distance from the network's inputs: [layers]."""
    depth = dict.fromkeys(network.inputs, 0)
    depths = []
    for layer in network.layers:
        depths.append(max((depth[tensor] for tensor in layer.inputs), default=0))
        depth |= dict.fromkeys(layer.outputs, depths[-1] + 1)
    return np.array(depths, dtype=np.intp)


def by_depth(problem: Problem) -> DepthOrder:
    """Return the problem with its layers in the order of depth."""
    network = problem.network
    depths = layer_depths(network)
    order = np.argsort(depths, kind="stable")
    layers = tuple(network.layers[number] for number in order)
    counts = np.bincount(depths)
    return DepthOrder(
        replace(
            problem,
            network=replace(network, layers=layers),
            layer_s=None if problem.layer_s is None else problem.layer_s[order],
        ),
        order,
        tuple(np.concatenate([[0], np.cumsum(counts)]).tolist()),
    )
