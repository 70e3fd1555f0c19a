"""Fewer cut points for many unlike devices."""

from __future__ import annotations

import numpy as np
import pytest

from partition.devices import Device
from partition.strategies.base import Problem
from partition.strategies.contiguous import cuts as dynamic_program
from partition.strategies.contiguous.cuts import expanded, thinned
from partition.strategies.contiguous.segments import segments
from partition.strategies.contiguous.sequential import contiguous_cut
from tests.partition.networks import residual

UNLIKE = tuple(Device(f"d{i}", macs_per_s=1e10 * (1 + i)) for i in range(4))
NETWORK = residual(16)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much work as 4 unlike devices make with 30 places."""
    monkeypatch.setattr(dynamic_program, "MAX_WORK", 2**4 * 4 * (30**2 + 1.0))
    monkeypatch.setattr(dynamic_program, "TRANSITION", 0)
    monkeypatch.setattr(dynamic_program, "FEWEST", 10)


def test_what_is_affordable_is_left_alone() -> None:
    priced = segments(Problem(NETWORK, UNLIKE))
    same, places = thinned(priced)
    assert same is priced
    assert places.tolist() == list(range(len(NETWORK.layers) + 1))


@pytest.mark.usefixtures("tight")
def test_places_are_kept_where_the_fewest_bytes_cross() -> None:
    priced = segments(Problem(NETWORK, UNLIKE))
    fewer, places = thinned(priced)
    assert places[0] == 0
    assert places[-1] == len(NETWORK.layers)
    assert 15 <= len(places) <= 31
    assert fewer.weight_bytes.shape == (len(places), len(places))
    crossing = priced.received_bytes[:, -1]
    assert crossing[places[1:-1]].mean() < crossing[1:-1].mean()


@pytest.mark.usefixtures("tight")
def test_the_cut_is_nearly_as_good_and_in_any_order_of_the_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(NETWORK, UNLIKE)
    numbers, fits = contiguous_cut(problem)
    assert fits
    monkeypatch.setattr(dynamic_program, "MAX_WORK", 5e8)
    best, _ = contiguous_cut(problem)
    found, optimum = problem.costs.evaluate(np.array([numbers, best])).period_s
    assert found <= 1.1 * optimum


@pytest.mark.usefixtures("tight")
def test_places_around_pinned_layers_are_kept() -> None:
    pins = {"l10": "d0", "l11": "d1", "l12": "d2"}
    numbers, _ = contiguous_cut(Problem(NETWORK, UNLIKE, pins))
    assert numbers[10:13].tolist() == [0, 1, 2]


@pytest.mark.usefixtures("tight")
def test_with_too_few_places_left_all_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_program, "FEWEST", 40)
    _, places = thinned(segments(Problem(NETWORK, UNLIKE)))
    assert len(places) == len(NETWORK.layers) + 1


def test_segments_spread_to_their_layers() -> None:
    assert expanded(np.array([2, 0]), np.array([0, 3, 4])).tolist() == [2, 2, 2, 0]
