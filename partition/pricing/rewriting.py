"""Problems whose network has been rewritten: the same devices, and the parts of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cnn.errors import ModelError
from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Rewrite
from partition.errors import PartitionError
from partition.strategies.base import Problem, Rewritable


def required_model(problem: Problem, strategy: str) -> Rewritable:
    """Return the model that a rewriting strategy needs; raises `PartitionError` if there is
    none."""
    if problem.model is None:
        raise PartitionError(
            f"strategy {strategy!r} rewrites the network and needs the model it came from; "
            "give the problem its model"
        )
    return problem.model


def apply_rewrites(problem: Problem, model: Rewritable, rewrites: Sequence[Rewrite]) -> Problem:
    """Return `problem` for the network that `rewrites` make of `model`.

    Pins stay with layers that are still there. Measured seconds of a layer are divided among its
    parts by their work. Raises `PartitionError` for a rewrite that cannot be carried out.
    """
    try:
        rewritten = model.rewritten(rewrites)
    except ModelError as error:
        raise PartitionError(str(error)) from error
    network = rewritten.network
    return replace(
        problem,
        network=network,
        model=rewritten,
        pins={layer: device for layer, device in problem.pins.items() if layer in network.layer},
        layer_s=None
        if problem.layer_s is None
        else divided_seconds(problem.network, problem.layer_s, network),
    )


def divided_seconds(
    network: Network, layer_s: NDArray[np.float64], rewritten: Network
) -> NDArray[np.float64]:
    """Divide the seconds of the layers of `network` among those of `rewritten` by their work.

    Both are [layers, devices].

    Work is multiply-accumulates, or elements made by a layer that has none. What a rewrite adds
    (joining, cutting rows out) is taken to cost nothing.
    """
    row = {layer.name: number for number, layer in enumerate(network.layers)}
    shares = np.array([_share(network, rewritten, layer) for layer in rewritten.layers])
    origins = [row[layer.part_of or layer.name] for layer in rewritten.layers]
    return np.asarray(layer_s[origins] * shares[:, None])


def _share(network: Network, rewritten: Network, layer: Layer) -> float:
    whole = network.layer[layer.part_of or layer.name]
    if layer.operator != whole.operator:
        return 0.0
    if whole.macs:
        return layer.macs / whole.macs
    made = sum(rewritten.tensors[name].elements for name in layer.outputs)
    return made / max(1, sum(network.tensors[name].elements for name in whole.outputs))
