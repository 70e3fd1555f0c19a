"""Every assignment of a small problem, to hold searches to."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.pricing.cost import Costs
from partition.strategies.base import Problem


def every_assignment(
    problem: Problem, *, contiguous: bool = False, siblings: bool = False
) -> NDArray[np.intp]:
    """All that respect the pins (and run along the edges, and keep siblings together)."""
    devices = range(len(problem.devices))
    options = [devices if pin < 0 else (pin,) for pin in problem.pinned.tolist()]
    rows = [
        row
        for row in itertools.product(*options)
        if not (contiguous and not runs_along_the_edges(problem.network, row))
        and not (siblings and not keeps_siblings(problem.network, row))
    ]
    return np.array(rows, dtype=np.intp).reshape(len(rows), len(options))


def runs_along_the_edges(network: Network, row: tuple[int, ...]) -> bool:
    """Whether the devices can be ordered such that no tensor goes back."""
    device = dict(zip((layer.name for layer in network.layers), row, strict=True))
    ways = {(device[a], device[b]) for a, b, _ in network.edges if device[a] != device[b]}
    return bool(nx.is_directed_acyclic_graph(nx.DiGraph(list(ways))))


def keeps_siblings(network: Network, row: tuple[int, ...]) -> bool:
    """Whether all layers that read what one layer made are on one device."""
    device = dict(zip((layer.name for layer in network.layers), row, strict=True))
    readers: dict[str, set[int]] = {}
    for maker, reader, _ in network.edges:
        readers.setdefault(maker, set()).add(device[reader])
    return all(len(devices) == 1 for devices in readers.values())


def enlarged(network: Network, factor: int) -> Network:
    """The same network with every tensor and weight `factor` times as large."""
    return replace(
        network,
        tensors={n: replace(t, shape=(*t.shape, factor)) for n, t in network.tensors.items()},
        weights={n: replace(t, shape=(*t.shape, factor)) for n, t in network.weights.items()},
    )


def lexicographic(costs: Costs) -> list[tuple[float, float, float]]:
    """What objective memory goes by if devices have equal room: the largest weights, the weights
    beyond the caches, the bytes."""
    return list(
        zip(
            costs.weight_bytes.max(axis=1).tolist(),
            costs.cache_overrun_bytes.sum(axis=1).tolist(),
            costs.wire_bytes.tolist(),
            strict=True,
        )
    )
