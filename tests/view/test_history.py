"""Figures over time in a bounded number of samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.view.history import History, Sample, between, intervals, quantile_s, sample_of
from tests.view.views import latency, node, run


def sample(at_s: float, frames: int, rss_bytes: int = 0) -> Sample:
    return Sample(at_s, frames, 0, latency(frames), {}, {"a": rss_bytes})


def test_a_rate_is_frames_over_the_time_between_two_samples() -> None:
    (interval,) = intervals([sample(10, 100), sample(12, 130)])
    assert (interval.from_s, interval.until_s, interval.rate) == (10, 12, 15.0)


def test_a_latency_is_that_of_the_frames_between_two_samples() -> None:
    first = replace(sample(0, 0), latency=latency(0, 0, 0, 0, 0, 0, 100))
    second = replace(sample(1, 100), latency=latency(100, 0, 0, 0, 0, 0, 100))
    assert between(first, second).median_s == pytest.approx(0.005)


def test_no_frames_have_no_latency() -> None:
    assert between(sample(0, 5), sample(1, 5)).median_s is None
    assert quantile_s(latency(), 0.5) is None


def test_a_view_becomes_a_sample_of_its_counters() -> None:
    made = sample_of(run(nodes=(node("a"), node("b", rss_bytes=None))))
    assert (made.frames, made.dropped) == (40_000, 7)
    assert dict(made.rss_bytes) == {"a": 90_000_000}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.sampled_from([2, 4, 8, 20]))
def test_however_long_a_run_is_its_history_is_bounded_and_begins_with_it(
    peaks: list[int], most: int
) -> None:
    history = History(most)
    for second, peak in enumerate(peaks):
        history.add(sample(second, 10 * second, peak))
        assert len(history.samples) <= most
    assert history.samples[0].at_s == 0
    assert all(each.rate == 10 for each in intervals(history.samples))


@given(st.lists(st.integers(0, 100), min_size=3, max_size=200))
def test_a_peak_of_memory_outlives_the_sample_that_showed_it(peaks: list[int]) -> None:
    history = History(4)
    for second, peak in enumerate(peaks):
        history.add(sample(second, second, peak))
    until = int(history.samples[-1].at_s)
    kept = max(each.rss_bytes["a"] for each in history.samples[1:])
    assert kept == max(peaks[1 : until + 1])


def test_the_steps_of_a_long_history_are_even() -> None:
    history = History(10)
    for second in range(1000):
        history.add(sample(second, second))
    steps = {each.until_s - each.from_s for each in intervals(history.samples)}
    assert len(steps) == 1
