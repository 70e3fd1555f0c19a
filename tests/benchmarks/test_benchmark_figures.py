"""What benchmarks tell of their readings: medians, spread, and whether what was asked is held."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.adaptation import Course
from benchmarks.adaptation import figures as of_courses
from benchmarks.fifo import Bursts
from benchmarks.fifo import figures as of_bursts
from benchmarks.memory_limit import figures as of_limits
from benchmarks.report import Figure


def by_name(told: list[Figure]) -> Mapping[str, Figure]:
    return {one.what: one for one in told}


def test_of_a_fifo_rounds_are_compared_and_not_medians() -> None:
    large = Bursts(
        "tcp", 1_000_000, {"bare": (1e-3, 4e-3), "fifo": (2e-3, 4e-3), "curve": (4e-3, 8e-3)}
    )
    small = Bursts("tcp", 1024, {"fifo": (160e-6, 161e-6), "curve": (170e-6, 170e-6)})
    told = by_name(of_bursts([large], [small]))
    ratio = told["tcp, 1 MB: FIFO ÷ bare pyzmq"]
    assert (ratio.measured, ratio.low, ratio.high) == (0.75, 0.5, 1.0)
    assert ratio.holds is False
    assert told["tcp, 1 MB: encrypted ÷ plain FIFO"].measured == 0.5
    assert told["tcp, token of 1 KB: FIFO"].holds is False
    assert told["tcp, token of 1 KB: encrypted FIFO"].holds is None


def course(*, adapt: bool, after: float | None) -> Course:
    return Course(adapt, 6.0, 3.0, after, 5.0, 60.0, 0, 0, 0, ())


def test_an_adaptation_that_did_not_come_does_not_count_as_a_gain() -> None:
    left = course(adapt=False, after=None)
    both = [course(adapt=True, after=6.0), left, left, course(adapt=True, after=None)]
    told = by_name(of_courses(both))
    assert told["after ÷ without adapting"].measured == 2.0
    changed = told["runs that changed their plan"]
    assert (changed.measured, changed.holds) == (1, False)
    assert "after ÷ without adapting" not in by_name(of_courses([left, both[3]]))


@pytest.mark.parametrize(("codes", "holds"), [((-9, -9), True), ((-9, 0), False)])
def test_of_memory_limits_the_worst_board_of_any_run_counts(
    codes: tuple[int, int], holds: bool
) -> None:
    boards = {
        name: {
            "held_peak_bytes": held,
            "agent_peak_bytes": 90,
            "predicted_bytes": 100,
            "failcnt": 1,
        }
        for name, held in (("node1", 50), ("node2", 80))
    }
    found = {
        "limit_bytes": 100,
        "whole_bytes": 250,
        "refusal": "needs more",
        "worst_difference": 0.0,
        "rounds": [
            {"boards": boards, "oom_kills": 0, "lightly_optimised": 0, "forced_exit_code": code}
            for code in codes
        ],
    }
    told = by_name(of_limits(found))
    held = told["most that a board held and no file backs ÷ its limit"]
    assert (held.measured, held.low, held.holds) == (0.8, 0.5, True)
    assert told["ONNX Runtime, made to load the whole on one board: killed"].holds is holds
