"""Layers by depth."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from cnn.network import Network
from partition.devices import Device
from partition.strategies.base import Problem
from partition.strategies.contiguous.segm import by_depth, layer_depths
from tests.partition.networks import chain, networks, residual


def test_in_a_chain_every_layer_is_a_level() -> None:
    assert layer_depths(chain(1, 1, 1)).tolist() == [0, 1, 2]


def test_a_sum_is_as_deep_as_the_longer_branch() -> None:
    # conv, rectifier, conv, sum with the input of the block, rectifier; then the classifier.
    assert layer_depths(residual(2)).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


@given(networks())
@settings(max_examples=20)
def test_every_tensor_leads_deeper_and_the_order_keeps_every_layer(network: Network) -> None:
    depths = layer_depths(network)
    depth = {layer.name: int(depths[n]) for n, layer in enumerate(network.layers)}
    assert all(depth[source] < depth[target] for source, target, _ in network.edges)
    deep = by_depth(Problem(network, (Device("a"), Device("b"))))
    assert sorted(deep.order.tolist()) == list(range(len(network.layers)))
    assert deep.levels == depths.max() + 1
    of_level = np.arange(deep.levels)
    assert (deep.numbers(of_level) == depths).all()


def test_measured_seconds_follow_their_layers() -> None:
    network = residual(1)
    measured = np.arange(len(network.layers), dtype=float)[:, None]
    deep = by_depth(Problem(network, (Device("a"),), layer_s=measured))
    assert deep.problem.layer_s is not None
    assert deep.problem.layer_s[:, 0].tolist() == deep.order.tolist()
