"""A source's frames are numbered and queued; after a loss it is connected again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.results.gaps import KEPT
from launcher.results.journal.ranges import FrameSequence
from tests.streaming.parts import ScriptedSource, SimulatedClock, Step, reader


@given(
    st.lists(st.sampled_from(["frame", "lost", "refused"]), max_size=40),
    st.sampled_from(["drop-oldest", "drop-newest"]),
    st.integers(1, 4),
)
def test_every_frame_has_the_next_number_whatever_was_lost_or_dropped(
    steps: list[Step], overload: Overload, places: int
) -> None:
    reading = reader(ScriptedSource(steps), overload, places)
    reading.run()
    lost = [*FrameSequence(reading.take_lost())]
    queued = []
    while (frame := reading.frames.take()) is not None:
        assert frame.frame.taken_s == frame.index
        queued.append(frame.index)
    numbered = [step for step in steps if step != "lost"]
    given = [number for number, step in enumerate(numbered) if step == "frame"]
    refused = [number for number in range(len(numbered)) if number not in given]
    assert sorted(queued + lost) == sorted(given + refused)
    assert set(refused) <= set(lost)
    assert reading.frames.counts.dropped == len(lost) - len(refused)
    assert reading.refused == steps.count("refused")
    assert not reading.take_lost()


def test_waits_are_doubled_up_to_a_bound_and_begin_again_after_a_frame() -> None:
    clock = SimulatedClock()
    steps: list[Step] = ["frame", *["lost"] * 5, "frame", "lost", "frame"]
    said: list[str] = []
    policy = ReconnectConfig(first_s=0.5, most_s=3.0)
    reading = reader(ScriptedSource(steps), clock=clock, reconnect=policy, say=said.append)
    reading.run()
    assert clock.waits_s == [0.5, 1.0, 2.0, 3.0, 3.0, 0.5]
    gaps = reading.gaps
    assert (gaps.number, gaps.total_s, gaps.longest_s) == (2, 10.0, 9.5)
    assert [(gap.after_frame, gap.seconds) for gap in gaps.last] == [(0, 9.5), (1, 0.5)]
    again = "attempts in a row failed, and the next is in"
    assert said == [
        "the test's source: unplugged; connecting again",
        f"the test's source: unplugged; 2 {again} 1 s",
        f"the test's source: unplugged; 4 {again} 3 s",
        "the test's source: frames arrive again, after 9.5 s",
        "the test's source: unplugged; connecting again",
        "the test's source: frames arrive again, after 0.5 s",
    ]


def test_a_source_that_never_came_is_reported_again_and_ever_more_rarely() -> None:
    said: list[str] = []
    reading = reader(ScriptedSource(["lost"] * 100), say=said.append)
    reading.run()
    assert [sentence.split("; ")[0] for sentence in said] == ["the test's source: unplugged"] * 7
    assert [sentence.split("; ")[1] for sentence in said[1:]] == ["no frame has arrived yet"] * 6
    assert said[-1].endswith("64 attempts in a row failed, and the next is in 30 s")


@given(st.lists(st.sampled_from(["frame", "lost"]), max_size=40))
def test_a_gap_lasts_from_a_loss_to_the_next_frame(steps: list[Step]) -> None:
    reading = reader(ScriptedSource(steps))
    reading.run()
    letters = "".join(step[0] for step in steps).lstrip("l")
    assert reading.gaps.number == len(letters.replace("f", " ").split())


def test_a_broken_frame_is_left_out_and_reported() -> None:
    said: list[str] = []
    reading = reader(ScriptedSource(["frame", "refused", "frame"]), say=said.append)
    reading.run()
    assert said == ["frame 1 is left out: the test's source: not an image"]
    reading = reader(ScriptedSource(["frame", "refused", "frame"]), most=2)
    reading.run()
    assert (reading.frames.counts.offered, reading.refused) == (1, 1)


def test_of_many_gaps_the_last_are_kept_and_all_are_counted() -> None:
    steps: list[Step] = ["frame", "lost"] * (3 * KEPT)
    reading = reader(ScriptedSource(steps))
    reading.run()
    assert reading.gaps.number == 3 * KEPT
    assert len(reading.gaps.last) == KEPT
    assert reading.gaps.total_s == pytest.approx(3 * KEPT * 0.5)


def test_a_source_that_never_came_is_the_user_s_mistake_and_one_that_was_lost_is_not() -> None:
    policy = ReconnectConfig(tries=3)
    never = reader(ScriptedSource(["lost"] * 5), reconnect=policy)
    with pytest.raises(BadInputError, match=r"unplugged \(3 attempts in a row failed"):
        never.run()
    lost = reader(ScriptedSource(["frame", *["lost"] * 5]), reconnect=policy)
    with pytest.raises(RunFailedError, match="3 attempts in a row"):
        lost.run()
    assert lost.gaps.number == 1


def test_a_number_of_frames_is_read_and_no_more() -> None:
    source = ScriptedSource(["frame"] * 10)
    reading = reader(source, most=4)
    reading.run()
    assert reading.frames.counts.offered == 4
    assert source.closed.is_set()


def test_a_reader_that_is_stopped_keeps_what_is_queued_and_closes_the_source() -> None:
    source = ScriptedSource(["frame"] * 10)
    reading = reader(source)
    reading.stop()
    reading.run()
    assert source.closed.is_set()
    assert reading.frames.take() is None
