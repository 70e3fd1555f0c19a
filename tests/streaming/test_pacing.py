"""Frames offered at fixed times: when they are due, which are dropped, and that all are counted."""

from __future__ import annotations

import threading

import pytest

from launcher.config.pace import Pace
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.pacing import PacedNumbers, offer
from tests.streaming.parts import SimulatedClock


class FullQueue(OverloadQueue[int]):
    """Has no place until so many seconds of `clock` have passed; `offered_s` are the times."""

    def __init__(self, clock: SimulatedClock, full_s: float) -> None:
        super().__init__(9, "block")
        self.clock, self.full_s = clock, full_s
        self.offered_s: list[float] = []

    def put(self, item: int, *, timeout_s: float | None = None) -> bool:
        if self.full_s and item:
            if timeout_s is not None:
                return False
            self.clock.wait(threading.Event(), self.full_s)
            self.full_s = 0.0
        self.offered_s.append(self.clock.now_s())
        return super().put(item, timeout_s=timeout_s)


def test_a_frame_is_offered_at_once_and_one_each_period_after_it() -> None:
    clock = SimulatedClock()
    began_s = clock.now_s()
    numbers = FullQueue(clock, 0.0)
    offer(numbers, 4, 0.5, threading.Event(), clock)
    assert [at_s - began_s for at_s in numbers.offered_s] == [0.0, 0.5, 1.0, 1.5]
    assert [numbers.take() for _ in range(5)] == [0, 1, 2, 3, None]


def test_a_source_that_is_held_up_goes_on_at_its_pace_from_there() -> None:
    clock = SimulatedClock()
    began_s = clock.now_s()
    numbers = FullQueue(clock, 10.0)
    offer(numbers, 4, 0.5, threading.Event(), clock)
    assert [at_s - began_s for at_s in numbers.offered_s] == [0.0, 10.5, 11.0, 11.5]


@pytest.mark.parametrize(
    ("policy", "kept"), [("drop-oldest", [5, 6]), ("drop-newest", [0, 1]), ("block", None)]
)
def test_what_finds_no_place_is_dropped_as_the_user_chose(
    policy: str, kept: list[int] | None
) -> None:
    dropped: list[int] = []
    numbers: OverloadQueue[int] = OverloadQueue(2, policy, dropped.append)
    if kept is None:  # somebody has to take them
        with PacedNumbers(7, Pace(1e6, policy, 2)) as paced:
            assert list(paced) == list(range(7))
            assert not paced.dropped
        return
    offer(numbers, 7, 0.5, threading.Event(), SimulatedClock())
    assert [numbers.take() for _ in range(3)] == [*kept, None]
    assert dropped == [number for number in range(7) if number not in kept]


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_every_number_is_taken_or_dropped_in_order(policy: str) -> None:
    with PacedNumbers(2000, Pace(1e6, policy, 3)) as paced:
        taken = list(paced)
        assert sorted([*taken, *paced.dropped]) == list(range(2000))
        assert taken == sorted(taken)
        assert list(paced.dropped) == sorted(paced.dropped)


def test_a_stream_that_ends_early_leaves_no_thread() -> None:
    with PacedNumbers(10**9, Pace(0.001)) as paced:
        assert next(iter(paced)) == 0
    assert "csdf-edge pace" not in [thread.name for thread in threading.enumerate()]


def test_an_error_of_the_thread_that_offers_comes_behind_the_frames_before() -> None:
    def fail(_: int) -> None:
        raise ValueError("no memory")

    paced = PacedNumbers(9, Pace(1e6, "drop-newest", 1))
    paced._queue._on_drop = fail
    taken = []
    with paced, pytest.raises(ValueError, match="no memory"):  # noqa: PT012 - one of them
        paced._thread.join()
        for number in paced:
            taken.append(number)  # noqa: PERF402 - until it raises
    assert taken == [0]
