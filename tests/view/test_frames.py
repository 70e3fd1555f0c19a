"""Counters of frames, whose memory does not grow with the frames."""

from __future__ import annotations

from launcher.view.frames import BOUNDS_S, RATE_S, FrameCounts, total


def steady(rate: int, seconds: int, began_s: float = 100.0) -> FrameCounts:
    counts = FrameCounts()
    counts.sent(began_s)
    for frame in range(rate * seconds):
        at_s = began_s + frame / rate
        counts.took(at_s - 0.02, at_s)
    return counts


def test_the_rate_is_that_of_the_last_ten_seconds() -> None:
    counts = steady(rate=50, seconds=30)
    assert abs(counts.figures(0, 130.0).rate - 50) <= 1
    for _ in range(200):  # a second as fast as four
        counts.took(130.4, 130.5)
    assert abs(counts.figures(0, 131.0).rate - (9 * 50 + 200) / 10) <= 5
    assert counts.figures(0, 130.0 + 2 * RATE_S).rate == 0


def test_the_rate_of_a_run_that_began_a_moment_ago_is_not_divided_by_ten_seconds() -> None:
    assert abs(steady(rate=40, seconds=2).figures(0, 102.0).rate - 40) <= 1


def test_latencies_are_counted_up_to_each_bound_and_in_all() -> None:
    counts = FrameCounts()
    for latency_s in (0.0005, 0.001, 0.02, 3.0, 1000.0):
        counts.took(0.0, latency_s)
    latency = counts.figures(2, 1000.0).latency
    assert dict(zip((*BOUNDS_S, None), latency.counts, strict=True)) == {
        **{bound: 2 for bound in BOUNDS_S if bound < 0.025},
        **{bound: 3 for bound in BOUNDS_S if 0.025 <= bound < 5},
        **{bound: 4 for bound in BOUNDS_S if bound >= 5},
        None: 5,
    }
    assert latency.sum_s == 1003.0215


def test_several_streams_are_added() -> None:
    first, second = steady(10, 3), steady(20, 3)
    both = total([first.figures(1, 103.0), second.figures(2, 103.0)])
    assert (both.results, both.in_flight) == (90, 3)
    assert both.latency.counts[-1] == 90
    assert abs(both.rate - 30) <= 1


def test_without_a_stream_all_counts_are_zero() -> None:
    none = total([])
    assert (none.results, none.rate, none.latency.counts[-1]) == (0, 0, 0)
