"""Equations 1–4 of Tang & Stefanov (2021)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from partition.pricing.paper_equations import (
    beta_bytes,
    device_beta_bytes,
    layer_beta_bytes,
    phi,
    phi_lower_bound,
)
from tests.partition.networks import networks


def l2_of_the_paper() -> Network:
    """Layer l2 of the paper's Figure 2: weights [110, 3, 3, 3], X [32, 32, 3], Y [32, 32, 110]."""
    return Network(
        "l2",
        (Layer("l2", "Conv", ("x",), ("y",), ("w",)),),
        {"x": Tensor("x", (32, 32, 3), "float32"), "y": Tensor("y", (32, 32, 110), "float32")},
        {"w": Tensor("w", (110, 3, 3, 3), "float32")},
        ("x",),
        ("y",),
    )


def test_a_layer_needs_its_weights_its_input_and_its_output() -> None:
    expected = 4 * (110 * 3 * 3 * 3 + 32 * 32 * 3 + 32 * 32 * 110)
    assert layer_beta_bytes(l2_of_the_paper()).tolist() == [expected]


def test_phi_adds_the_differences_of_all_ordered_pairs() -> None:
    assert phi(np.array([[10.0, 4.0, 7.0], [5.0, 5.0, 5.0]])).tolist() == [24.0, 0.0]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8))
def test_phi_is_what_its_definition_says(beta: list[int]) -> None:
    defined = sum(abs(a - b) for a, b in itertools.product(beta, repeat=2))
    assert phi(np.array([beta], dtype=float))[0] == defined


@settings(max_examples=30)
@given(networks(), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_the_population_and_the_single_assignment_agree(
    network: Network, devices: int, seed: int
) -> None:
    layers = len(network.layers)
    population = np.random.default_rng(seed).integers(0, devices, (4, layers))
    beta = beta_bytes(layer_beta_bytes(network), population, devices)
    names = [f"d{i}" for i in range(devices)]
    for row, sums in zip(population, beta, strict=True):
        assignment = {
            layer.name: names[number] for layer, number in zip(network.layers, row, strict=True)
        }
        assert list(device_beta_bytes(network, assignment, names).values()) == sums.tolist()


@given(st.lists(st.integers(0, 60), min_size=1, max_size=6), st.integers(1, 3))
def test_no_assignment_has_a_phi_below_the_bound(sizes: list[int], devices: int) -> None:
    layer_beta = np.array(sizes, dtype=float)
    everything = np.array(list(itertools.product(range(devices), repeat=len(sizes))))
    least = phi(beta_bytes(layer_beta, everything, devices)).min()
    assert phi_lower_bound(layer_beta, devices) <= least


@pytest.mark.parametrize(("sizes", "devices", "bound"), [((4, 4), 2, 0), ((4, 4, 4), 2, 8)])
def test_the_bound_knows_that_equal_layers_cannot_be_split(
    sizes: tuple[int, ...], devices: int, bound: int
) -> None:
    assert phi_lower_bound(np.array(sizes, dtype=float), devices) == bound
