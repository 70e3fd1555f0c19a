"""Offset and drift of clocks are estimated from simulated round trips, also unequal ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.core.clocks import MOST_DRIFT, Clock, RoundTrip, estimate

WAYS = st.tuples(st.floats(0, 0.2), st.floats(0, 0.2))


def trip(at_s: float, there_s: float, back_s: float, ahead_s: float, drift: float) -> RoundTrip:
    """Asked at `at_s`; the ways take so long; the other clock is ahead, and drifts from 0 on."""
    read_s = at_s + there_s
    return RoundTrip(at_s, read_s * (1 + drift) + ahead_s, read_s + back_s)


@given(st.floats(-1e6, 1e6), st.lists(WAYS, min_size=1, max_size=40))
def test_without_drift_it_is_wrong_by_at_most_half_the_quickest_trip(
    ahead_s: float, ways: list[tuple[float, float]]
) -> None:
    trips = [trip(0.1 * n, there, back, ahead_s, 0.0) for n, (there, back) in enumerate(ways)]
    clock = estimate(trips)
    assert clock.drift == 0
    assert clock.error_s == min(one.took_s for one in trips) / 2
    assert abs(clock.ahead_s - ahead_s) <= clock.error_s + 1e-9
    assert clock.ours(7.0 + ahead_s) == pytest.approx(7.0, abs=clock.error_s + 1e-9)


def test_one_slow_way_does_not_matter_where_some_trips_are_quick() -> None:
    chance = random.Random(1)
    trips = [
        trip(0.25 * n, 1e-4 + chance.expovariate(50), 1e-4, ahead_s=5.0, drift=0.0)
        for n in range(400)
    ]
    assert estimate(trips).ahead_s == pytest.approx(5.0, abs=2e-4)


@pytest.mark.parametrize("drift", [-80e-6, 0.0, 40e-6, 300e-6])
def test_over_a_long_run_drift_is_reported(drift: float) -> None:
    chance = random.Random(2)
    trips = [
        trip(0.25 * n, 2e-4 + chance.expovariate(200), 2e-4 + chance.expovariate(200), -3.0, drift)
        for n in range(480)
    ]
    clock = estimate(trips)
    assert clock.drift == pytest.approx(drift, abs=5e-6)
    for at_s in (0.0, 60.0, 120.0):
        assert clock.ours(at_s * (1 + drift) - 3.0) == pytest.approx(at_s, abs=5e-4)


def test_a_drift_that_no_quartz_has_is_not_believed() -> None:
    trips = [trip(float(n), 1e-4, 1e-4, 0.0, drift=0.01) for n in range(60)]
    assert estimate(trips).drift == MOST_DRIFT


def test_the_same_clock_is_the_same() -> None:
    assert Clock().ours(12.5) == 12.5


def test_a_clock_that_stopped_has_no_drift() -> None:
    clock = estimate([RoundTrip(float(n), 5.0, n + 0.001) for n in range(20)])
    assert clock.drift == 0.0
