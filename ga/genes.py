"""Genes: groups of layers that the genetic search keeps on one device.

A layer without multiply-accumulates and with hardly any weights (activation, addition, pooling,
concatenation, flattening) joins the last of the layers that feed it. It costs next to nothing
itself, engines fuse it with the layer before it, and cutting before it seldom sends fewer bytes. So
ResNet50 has 54 genes instead of 123. Layers pinned to different devices never share a gene.

Every tensor leads from a gene to the same or a higher-numbered one, so the genes form a network
themselves, which `CostModel` prices like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from csdf.conversion.from_network import Phase
from partition.prediction.memory import live_bytes
from partition.pricing.cost import CostModel
from partition.strategies.base import Problem

LIGHT_WEIGHT_BYTES = 65536
"""A layer with more bytes of weights than this is a separate gene."""


@dataclass(frozen=True)
class Genes:
    """The genes of a problem.

    `of_layer` [layers] is the gene of each layer, `pinned` [genes] a device number or −1 for free.
    `network` is the network that the genes form, and `costs` prices assignments of genes.
    """

    network: Network
    of_layer: NDArray[np.intp]
    pinned: NDArray[np.intp]
    costs: CostModel

    @property
    def count(self) -> int:
        """The number of genes."""
        return len(self.pinned)

    @property
    def weight_bytes(self) -> NDArray[np.float64]:
        """Each gene's bytes of weights [genes]."""
        return np.array(self.network.layer_weight_bytes, dtype=np.float64)

    def layers(self, population: NDArray[np.integer]) -> NDArray[np.intp]:
        """Return assignments of genes [individuals, genes] as assignments of layers."""
        return np.asarray(population[:, self.of_layer], dtype=np.intp)

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum `values` [layers] over each gene's layers: [genes]."""
        sums = np.bincount(self.of_layer, values, minlength=self.count)
        return np.asarray(sums, dtype=np.float64)

    def of(self, assignment: NDArray[np.integer]) -> NDArray[np.int16]:
        """Return an assignment of layers [layers] as one of genes, each on the device of its first
        layer."""
        _, first = np.unique(self.of_layer, return_index=True)
        return np.asarray(assignment[first], dtype=np.int16)


def genes(problem: Problem) -> Genes:
    """Group the layers of a problem into genes."""
    network, pins = problem.network, problem.pinned
    number = network.place
    of_layer: list[int] = []
    pinned: list[int] = []
    for index, layer in enumerate(network.layers):
        feeding = max(
            (of_layer[number[network.producer[t]]] for t in layer.inputs if t in network.producer),
            default=-1,
        )
        if feeding >= 0 and _is_light(network, layer) and pinned[feeding] == pins[index]:
            of_layer.append(feeding)
        else:
            of_layer.append(len(pinned))
            pinned.append(int(pins[index]))
    grouped = np.array(of_layer, dtype=np.intp)
    seconds = np.zeros((len(pinned), len(problem.devices)))
    np.add.at(seconds, grouped, problem.costs.layer_s)
    coarse = _network_of_genes(network, of_layer, len(pinned))
    return Genes(
        coarse,
        grouped,
        np.array(pinned, dtype=np.intp),
        CostModel(
            coarse,
            problem.devices,
            seconds,
            problem.slack_frames,
            _live_bytes(network, of_layer, coarse),
            problem.wire_bytes,
        ),
    )


def _is_light(network: Network, layer: Layer) -> bool:
    return layer.macs == 0 and network.weight_bytes((layer.name,)) <= LIGHT_WEIGHT_BYTES


def _live_bytes(network: Network, of_layer: list[int], coarse: Network) -> NDArray[np.float64]:
    """Return the most bytes of tensors alive at once while each gene runs: [genes]."""
    members: list[list[str]] = [[] for _ in coarse.layers]
    for layer, gene in zip(network.layers, of_layer, strict=True):
        members[gene].append(layer.name)
    phases = (
        Phase(gene.name, "", 0, tuple(names), gene.inputs, gene.outputs)
        for gene, names in zip(coarse.layers, members, strict=True)
    )
    return np.array([live_bytes(network, phase) for phase in phases], dtype=np.float64)


def _network_of_genes(network: Network, of_layer: list[int], count: int) -> Network:
    members: list[list[Layer]] = [[] for _ in range(count)]
    for layer, gene in zip(network.layers, of_layer, strict=True):
        members[gene].append(layer)
    gene_of = {layer.name: gene for layer, gene in zip(network.layers, of_layer, strict=True)}
    grouped = [_as_one_layer(network, gene_of, gene, own) for gene, own in enumerate(members)]
    used = {name for layer in grouped for name in (*layer.inputs, *layer.outputs)}
    used.update(network.inputs, network.outputs)
    return Network(
        network.name,
        tuple(grouped),
        {name: network.tensors[name] for name in network.tensors if name in used},
        network.weights,
        network.inputs,
        network.outputs,
        network.batch,
    )


def _as_one_layer(
    network: Network, gene_of: dict[str, int], gene: int, members: list[Layer]
) -> Layer:
    made = {name for layer in members for name in layer.outputs}
    read = dict.fromkeys(name for layer in members for name in layer.inputs if name not in made)
    leaving = [
        name
        for layer in members
        for name in layer.outputs
        if name in network.outputs
        or any(gene_of[reader] != gene for reader in network.consumers[name])
    ]
    weights = dict.fromkeys(name for layer in members for name in layer.weights)
    macs = sum(layer.macs for layer in members)
    return Layer(f"gene {gene}", "Gene", tuple(read), tuple(leaving), tuple(weights), macs)
