"""Frames grouped into batches: each is in one batch, in order, and its result comes back once."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cnn.model import Model
from cnn.network import Tensor
from launcher.core.recovery import Recovery
from launcher.core.stream import ENDLESS, Intake
from launcher.run.batches import Batches
from launcher.run.feed import AHEAD, Feed
from launcher.run.parts import Part
from launcher.run.runtime import RunResult

WAIT_S = 1.0


class Streaming:
    """A host that sends batches when it may, and whose network doubles every number.

    Frames are pushed; some are cancelled before they are sent.
    """

    def __init__(self, size: int, wait_s: float | None = WAIT_S) -> None:
        self.pushed = 0
        self.is_ended = False
        self.cancelled: set[int] = set()
        self.claimed: list[int] = []
        self.now_s = 0.0
        self.results: list[tuple[int, float]] = []
        self.batches = Batches(size, wait_s)
        self.size = size
        self.intake = Intake()
        self.sent: list[int] = []
        self.sizes: list[int] = []

    def claim(self, number: int) -> bool:
        if number not in self.cancelled:
            self.claimed.append(number)
        return number not in self.cancelled

    def look(self) -> None:
        self.intake.push(self.batches.seen(self.pushed, self.now_s, is_ended=self.is_ended))
        if self.is_ended:
            self.intake.end()

    def send(self) -> bool:
        """Send the next batch, if there is one."""
        number = self.intake.waiting
        if number is None:
            return False
        before = len(self.claimed)
        if not self.batches.claim(number, self.claim):
            self.intake.withdraw()
            return self.send()
        self.intake.take()
        self.sent.append(number)
        self.sizes.append(len(self.claimed) - before)
        return True

    def take(self) -> bool:
        """Take the result of the batch that was sent first, if there is one."""
        if not self.sent:
            return False
        number = self.sent.pop(0)
        frames = [frame(each) for each in self.batches.frames(number)]
        batch = self.batches.stacked(frames)["x"]
        assert batch.shape == (self.size, 2)
        for each, outputs in self.batches.apart(number, {"y": batch * 2}):
            assert outputs["y"].shape == (1, 2)
            self.results.append((each, float(outputs["y"][0, 0])))
        return True


def frame(number: int) -> Mapping[str, np.ndarray]:
    return {"x": np.full((1, 2), float(number), np.float32)}


events = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 5)),
        st.tuples(st.just("pass"), st.integers(1, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 40)),
        st.tuples(st.sampled_from(("send", "take")), st.just(0)),
    ),
    max_size=40,
)


@given(events=events, size=st.integers(2, 6), wait_s=st.sampled_from((None, WAIT_S)))
def test_every_frame_that_is_not_cancelled_has_one_result_in_order(
    events: list[tuple[str, int]], size: int, wait_s: float | None
) -> None:
    host = Streaming(size, wait_s)
    for what, number in events:
        if what == "push":
            host.pushed += number
        elif what == "pass":
            host.now_s += number / 10
        elif what == "cancel" and number not in host.claimed:
            host.cancelled.add(number)
        host.look()
        if what == "send":
            host.send()
        elif what == "take":
            host.take()
    if wait_s is None and not host.cancelled:
        assert set(host.sizes) <= {size}, "incomplete batches come at the end only"
    host.is_ended = True
    host.look()
    while host.send() or host.take():
        pass
    wanted = [k for k in range(host.pushed) if k not in host.cancelled]
    assert [frame for frame, _ in host.results] == wanted
    assert all(value == 2 * frame for frame, value in host.results)
    assert host.intake.frames == len(host.sizes)
    assert all(1 <= each <= size for each in host.sizes)


def test_a_batch_waits_for_its_frames_and_is_sent_incomplete_when_the_first_has_waited() -> None:
    host = Streaming(4)
    host.pushed = 2
    host.look()
    assert host.batches.deadline_s == WAIT_S
    host.now_s = 0.6
    host.pushed = 3
    host.look()
    assert host.intake.waiting is None
    assert host.batches.deadline_s == WAIT_S, "that of the frame that has waited longest"
    host.now_s = WAIT_S
    host.look()
    assert host.batches.deadline_s is None, "nothing more happens by itself"
    assert host.send()
    assert host.sizes == [3]


def test_frames_that_come_while_a_due_batch_finds_no_room_are_in_it() -> None:
    host = Streaming(4)
    host.pushed = 1
    host.look()
    host.now_s = 2 * WAIT_S
    host.look()
    host.pushed = 6
    host.look()
    assert host.send()
    assert not host.send()
    assert host.sizes == [4]
    assert host.batches.deadline_s == 3 * WAIT_S


def test_a_stream_without_end_keeps_no_times() -> None:
    batches = Batches(2, WAIT_S, timed=False)
    for number in range(100):
        batches.seen(2 * number + 2, 0.0, is_ended=False)
        assert batches.claim(number, lambda _: True)
        assert len(list(batches.apart(number, {"y": np.zeros((2, 1))}))) == 2
    assert not list(batches.of_frames([0.0] * 100))


def test_as_many_frames_may_be_pushed_as_the_channels_and_one_batch_hold() -> None:
    feed = Feed(of_numbers(), batch=8)
    feed.hold(3)
    assert feed.most == 32 + AHEAD
    feed.close()


def test_the_number_of_batches_is_known_before_they_come_unless_one_may_be_incomplete() -> None:
    assert Batches(4, None).most(10) == 3
    assert Batches(4, WAIT_S).most(10) == 10
    assert Batches(4, None).most(ENDLESS) == ENDLESS


def test_a_feed_gives_batches_to_the_run_and_results_of_frames_to_the_program() -> None:
    feed = Feed(of_numbers(), 10, count=10, batch=4, timed=True)
    futures = [feed.submit(frame(number)) for number in range(10)]
    futures[5].cancel()
    feed.end()
    assert feed.seen() == (3, True)
    for batch, numbers in enumerate([(0, 1, 2, 3), (4, 6, 7, 8), (9, 9, 9, 9)]):
        assert feed.claim(batch)
        assert feed[batch]["x"][:, 0].tolist() == list(numbers)
        feed.took(batch, {"x": feed[batch]["x"]})
    assert not any(feed.claim(batch) for batch in range(3, feed.count))
    kept = [number for number in range(10) if number != 5]
    assert [futures[number].result(0)["x"].tolist() for number in kept] == [
        frame(number)["x"].tolist() for number in kept
    ]
    feed.close()


def of_numbers() -> Part:
    """A network whose input and output are two numbers."""
    tensors = {"x": Tensor("x", (1, 2), "float32")}
    network = SimpleNamespace(name="numbers", inputs=("x",), outputs=("x",), tensors=tensors)
    model = SimpleNamespace(network=network, constant_outputs={})
    return Part(cast(Model, model), is_alone=True)


def test_times_and_recoveries_of_a_run_count_frames() -> None:
    batches = Batches(4, None)
    batches.seen(10, 0.0, is_ended=True)
    assert all(batches.claim(number, lambda _: True) for number in range(3))
    past = Recovery(("a",), ("lost",), 1.0, frame=1, replayed=2)
    sent_s, received_s = (0.0, 1.0, 2.0), (0.5, 1.5, 2.5)
    run = RunResult(sent_s, received_s, {}, {}, {}, 0.0, recoveries=(past,))
    result = batches.in_frames(run)
    assert result.received_s == (0.5,) * 4 + (1.5,) * 4 + (2.5,) * 2
    assert result.sent_s == (0.0,) * 4 + (1.0,) * 4 + (2.0,) * 2
    assert [(each.frame, each.replayed) for each in result.recoveries] == [(4, 6)]


def test_the_latency_of_a_frame_begins_when_it_waits_for_the_others_of_its_batch() -> None:
    host = Streaming(2)
    host.now_s = 10.0
    host.pushed = 1
    host.look()
    host.now_s = 10.25
    host.pushed = 2
    host.look()
    assert host.send()
    assert list(host.batches.of_frames([12.0], is_sent=True)) == [11.75, 12.0]
