"""Genes: groups of layers that stay together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from cnn.network import Network
from ga.genes import genes
from partition.devices import Device
from partition.pricing.compute_time import fused_layers
from partition.strategies.base import Problem
from tests.partition.networks import chain, device_sets, networks, residual
from tests.partition.strategy_contract import equal

MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@given(networks(), device_sets(), st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_genes_cost_what_their_layers_cost(
    network: Network, devices: tuple[Device, ...], seed: int
) -> None:
    problem = Problem(network, devices)
    grouped = genes(problem)
    drawn = np.random.default_rng(seed).integers(0, len(devices), (5, grouped.count))
    coarse = grouped.costs.evaluate(drawn)
    fine = problem.costs.evaluate(grouped.layers(drawn))
    assert coarse.compute_s == pytest.approx(fine.compute_s)
    assert (coarse.weight_bytes == fine.weight_bytes).all()
    assert (coarse.sent_bytes == fine.sent_bytes).all()
    assert (coarse.received_bytes == fine.received_bytes).all()
    assert (coarse.wire_bytes == fine.wire_bytes).all()


def test_rectifiers_and_sums_join_the_convolutions_before_them() -> None:
    network = residual(2)
    grouped = genes(Problem(network, equal(2)))
    operators = [
        [
            layer.operator
            for layer, gene in zip(network.layers, grouped.of_layer, strict=True)
            if gene == own
        ]
        for own in range(grouped.count)
    ]
    block = [["Conv", "Relu"], ["Conv", "Add", "Relu"]]
    assert operators == [*block, *block, ["Gemm"]]


def test_layers_pinned_apart_share_no_gene() -> None:
    network = residual(1)
    grouped = genes(Problem(network, equal(2), {"l0": "d0", "l1": "d1"}))
    assert grouped.of_layer[0] != grouped.of_layer[1]
    assert grouped.pinned[grouped.of_layer[:2]].tolist() == [0, 1]


def test_an_assignment_of_layers_and_of_genes_translate_into_each_other() -> None:
    grouped = genes(Problem(residual(2), equal(5)))
    drawn = np.arange(grouped.count) % 5
    assert (grouped.of(grouped.layers(drawn[None])[0]) == drawn).all()


def test_layers_with_arithmetic_are_genes_of_their_own() -> None:
    assert genes(Problem(chain(1, 1, 1), equal(2))).count == 3


@pytest.mark.parametrize("name", ["MobileNetV2", "ResNet50V2", "DenseNet121", "InceptionV3"])
def test_no_border_of_genes_breaks_a_fusion(name: str) -> None:
    """What engines compute together with a layer that it reads is in the gene of such a layer."""
    network = cnn.read(MODELS / f"{name}.onnx").network
    of_layer = dict(zip(network.layer, genes(Problem(network, equal(2))).of_layer, strict=True))
    for layer in fused_layers(network):
        read = (network.producer.get(tensor) for tensor in network.layer[layer].inputs)
        assert of_layer[layer] in {of_layer[other] for other in read if other is not None}
