"""Frames offered at fixed times: when they are due, which are dropped, and that all are counted."""

from __future__ import annotations

import pytest

from launcher.config.run import Overload
from launcher.results.journal.ranges import FrameSequence
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.reading import NumberedFrame
from tests.streaming.parts import ScriptedSource, SimulatedClock, reader


class FullQueue(OverloadQueue[NumberedFrame]):
    """Has no place until so many seconds of `clock` have passed; `offered_s` are the times."""

    def __init__(self, clock: SimulatedClock, full_s: float) -> None:
        super().__init__(9, "block")
        self.clock, self.full_s = clock, full_s
        self.offered_s: list[float] = []

    def put(self, item: NumberedFrame, *, timeout_s: float | None = None) -> bool:
        if self.full_s and item.index:
            if timeout_s is not None:
                return False
            self.clock.pass_s(self.full_s)
            self.full_s = 0.0
        self.offered_s.append(self.clock.now_s())
        return super().put(item, timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("full_s", "offered_s"), [(0.0, [0.0, 0.5, 1.0, 1.5]), (10.0, [0.0, 10.5, 11.0, 11.5])]
)
def test_a_frame_is_offered_each_period_and_a_source_that_is_held_up_continues_from_there(
    full_s: float, offered_s: list[float]
) -> None:
    clock = SimulatedClock()
    reading = reader(ScriptedSource(["frame"] * 4), clock=clock, period_s=0.5)
    reading.frames = queue = FullQueue(clock, full_s)
    reading.run()
    assert queue.offered_s == offered_s
    taken = [queue.take() for _ in range(5)]
    assert [frame and frame.index for frame in taken] == [0, 1, 2, 3, None]


@pytest.mark.parametrize(("policy", "kept"), [("drop-oldest", [5, 6]), ("drop-newest", [0, 1])])
def test_what_finds_no_place_is_dropped_as_the_user_chose(
    policy: Overload, kept: list[int]
) -> None:
    reading = reader(ScriptedSource(["frame"] * 7), policy, 2, period_s=0.5)
    reading.run()
    taken = [reading.frames.take() for _ in range(3)]
    assert [frame and frame.index for frame in taken] == [*kept, None]
    lost = [*FrameSequence(reading.take_lost())]
    assert lost == [number for number in range(7) if number not in kept]
    assert reading.frames.counts.dropped == 5


class Camera(ScriptedSource):
    """Makes a frame every 0.1 s, whoever takes it."""

    def __init__(self, clock: SimulatedClock, frames: int) -> None:
        super().__init__(["frame"] * frames, is_live=True)
        self.clock = clock

    def frames(self):  # type: ignore[no-untyped-def]
        for frame in super().frames():
            yield frame
            self.clock.pass_s(0.1)


def test_a_live_source_is_not_slowed_down_and_frames_that_come_too_early_are_dropped() -> None:
    clock = SimulatedClock()
    reading = reader(Camera(clock, 10), "drop-oldest", 9, clock=clock, period_s=0.25)
    reading.run()
    assert clock.waits_s == []
    taken = []
    while (frame := reading.frames.take()) is not None:
        taken.append(frame.index)
    assert taken == [0, 3, 5, 8]
    assert reading.frames.counts.dropped == 6
    assert [*FrameSequence(reading.take_lost())] == [1, 2, 4, 6, 7, 9]


def test_a_source_that_is_stopped_while_its_next_frame_is_not_due_offers_it_no_more() -> None:
    clock = SimulatedClock()
    reading = reader(ScriptedSource(["frame"] * 9), clock=clock, period_s=1000.0)
    clock.on_wait = reading.stop
    reading.run()
    assert reading.frames.counts.offered == 1
