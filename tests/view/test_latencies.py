"""Latencies in bounded memory."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.view.frames import FINE_BOUNDS_S, Latencies
from launcher.view.history import quantile_s


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_one_of_the_latencies_to_one_per_cent(
    latencies: list[float], fraction: float
) -> None:
    counted = Latencies(FINE_BOUNDS_S)
    for latency_s in latencies:
        counted.add(latency_s)
    found = quantile_s(counted.view(), fraction)
    assert found is not None
    within = [each for each in latencies if each <= found * 1.0101]
    assert len(within) >= fraction * len(latencies)
    assert any(each == pytest.approx(found, rel=0.0101) for each in latencies)


def test_the_median_is_the_median() -> None:
    counted = Latencies(FINE_BOUNDS_S)
    latencies = [0.001 * number for number in range(1, 1000)]
    for latency_s in latencies:
        counted.add(latency_s)
    assert quantile_s(counted.view(), 0.5) == pytest.approx(statistics.median(latencies), rel=0.011)
    assert quantile_s(counted.view(), 0.99) == pytest.approx(0.99, rel=0.011)


def test_without_latencies_there_is_no_quantile_and_strange_ones_count_as_the_bounds() -> None:
    counted = Latencies(FINE_BOUNDS_S)
    assert quantile_s(counted.view(), 0.5) is None
    counted.add(-1.0)
    counted.add(1e12)
    assert counted.view().counts[-1] == 2
    assert quantile_s(counted.view(), 1.0) == pytest.approx(1e6, rel=0.02)
