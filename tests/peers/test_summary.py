"""Ours against the best of the others; what is told of a turn follows from its times."""

import os
from dataclasses import replace

import pytest

from benchmarks.peers.compare import figures
from benchmarks.peers.turns import Counting, Turn

TURN = Turn(
    rate=10.0,
    latency_s=0.5,
    cpu_s=0.03,
    peak_bytes=80_000_000,
    anonymous_bytes=30_000_000,
    difference=0.0,
)


def rated(*rates: float) -> tuple[Turn, ...]:
    return tuple(replace(TURN, rate=rate) for rate in rates)


def test_the_ratio_is_taken_round_by_round_against_the_best_median():
    told = figures({"ours": rated(9, 30), "slow": rated(1, 50), "fast": rated(10, 20)})
    assert told[0].what.endswith("÷ that of slow, the best")  # medians 25.5 and 15
    assert (told[0].low, told[0].high) == (30 / 50, 9 / 1)
    told = figures({"ours": rated(9, 30, 9), "slow": rated(1, 50, 1), "fast": rated(10, 20, 10)})
    assert told[0].what.endswith("÷ that of fast, the best")
    assert (told[0].low, told[0].measured, told[0].high) == (0.9, 0.9, 1.5)


@pytest.mark.parametrize(("rate", "holds"), [(9.9, False), (10.0, True), (11.0, True)])
def test_no_fewer_frames_than_the_best(rate, holds):
    assert figures({"ours": rated(rate), "other": rated(10.0)})[0].holds is holds


@pytest.mark.parametrize(("peak", "holds"), [(79, True), (80, True), (81, False)])
def test_no_more_memory_than_the_best_on_the_board_that_needs_most(peak, holds):
    ours = replace(TURN, peak_bytes=peak * 1_000_000)
    assert figures({"ours": (ours,), "other": (TURN,)})[1].holds is holds


def test_everybody_has_a_figure_and_ours_a_verdict():
    told = {one.what: one for one in figures({"ours": rated(9), "other": rated(10)})}
    assert told["other: rate"].measured == 10
    assert told["ours: rate ÷ that of other, the best"].holds is False


def test_a_turn_counts_from_when_the_pipeline_is_full():
    counting = Counting({"n0": os.getpid()})
    counting.full()
    counting.done()
    turn = counting.turn([0.0, 0.1, 1.0, 2.0, 3.0], [5.0, 5.1, 6.1, 7.1, 8.1], 1, 0.0)
    assert turn.rate == pytest.approx(1.0)
    assert turn.latency_s == pytest.approx(5.1)
    assert turn.peak_bytes > turn.anonymous_bytes > 0
