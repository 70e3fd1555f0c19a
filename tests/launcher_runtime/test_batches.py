"""Frames grouped into batches: each is in one batch, in order, and its result comes back once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.core.intake import ENDLESS, Intake
from launcher.core.recovery import Recovery
from launcher.errors import BadInputError
from launcher.run.frame_list import listed
from launcher.run.runtime import OnUpdate, PushedNetwork, RunResult, Update
from launcher.streaming.batches import Batches, stream_in_batches

WAIT_S = 1.0


class Offered:
    """Frames that a program pushes; some are cancelled before they are sent."""

    descriptor = None
    deadline_s = None

    def __init__(self, count: int = ENDLESS) -> None:
        self.count = count
        self.pushed = 0
        self.is_ended = False
        self.cancelled: set[int] = set()
        self.claimed: list[int] = []
        self.held = 0

    def hold(self, frames: int) -> None:
        self.held = frames

    def seen(self) -> tuple[int, bool]:
        return self.pushed, self.is_ended

    def claim(self, index: int) -> bool:
        if index not in self.cancelled:
            self.claimed.append(index)
        return index not in self.cancelled

    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
        return {"x": np.full((1, 2), float(index), np.float32)}


class Streaming:
    """A host that sends batches when it may, and whose network doubles every number."""

    def __init__(self, size: int, wait_s: float | None = WAIT_S) -> None:
        self.offered = Offered()
        self.now_s = 0.0
        self.results: list[tuple[int, float]] = []
        network = PushedNetwork((), self.offered, self._on_result)
        self.batches = Batches(network, size, wait_s, lambda: self.now_s)
        self.size = size
        self.intake = Intake()
        self.sent: list[int] = []
        self.sizes: list[int] = []

    def _on_result(self, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        assert outputs["y"].shape == (1, 2)
        self.results.append((frame, float(outputs["y"][0, 0])))

    def look(self) -> None:
        frames, is_end = self.batches.seen()
        self.intake.push(frames)
        if is_end:
            self.intake.end()

    def send(self) -> bool:
        """Send the next batch, if there is one."""
        number = self.intake.waiting
        if number is None:
            return False
        before = len(self.offered.claimed)
        if not self.batches.claim(number):
            self.intake.withdraw()
            return self.send()
        self.intake.take()
        self.sent.append(number)
        self.sizes.append(len(self.offered.claimed) - before)
        return True

    def take(self) -> bool:
        """Take the result of the batch that was sent first, if there is one."""
        if not self.sent:
            return False
        number = self.sent.pop(0)
        batch, again = self.batches[number]["x"], self.batches[number]["x"]
        assert batch.shape == (self.size, 2)
        assert (batch == again).all()
        self.batches.network.on_result(number, {"y": batch * 2})
        return True


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
            host.offered.pushed += number
        elif what == "pass":
            host.now_s += number / 10
        elif what == "cancel" and number not in host.offered.claimed:
            host.offered.cancelled.add(number)
        host.look()
        if what == "send":
            host.send()
        elif what == "take":
            host.take()
    if wait_s is None and not host.offered.cancelled:
        assert set(host.sizes) <= {size}, "incomplete batches come at the end only"
    host.offered.is_ended = True
    host.look()
    while host.send() or host.take():
        pass
    wanted = [k for k in range(host.offered.pushed) if k not in host.offered.cancelled]
    assert [frame for frame, _ in host.results] == wanted
    assert all(value == 2 * frame for frame, value in host.results)
    assert host.intake.frames == len(host.sizes)
    assert all(1 <= each <= size for each in host.sizes)


def test_a_batch_waits_for_its_frames_and_is_sent_incomplete_when_the_first_has_waited() -> None:
    host = Streaming(4)
    host.offered.pushed = 2
    host.look()
    assert host.batches.deadline_s == WAIT_S
    host.now_s = 0.6
    host.offered.pushed = 3
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
    host.offered.pushed = 1
    host.look()
    host.now_s = 2 * WAIT_S
    host.look()
    host.offered.pushed = 6
    host.look()
    assert host.send()
    assert not host.send()
    assert host.sizes == [4]
    assert host.batches.deadline_s == 3 * WAIT_S


def test_a_stream_without_end_keeps_no_times() -> None:
    offered = Offered()
    network = PushedNetwork((), offered, lambda _frame, _outputs: None)
    batches = Batches(network, 2, WAIT_S, lambda: 0.0, timed=False)
    for number in range(100):
        offered.pushed += 2
        batches.seen()
        assert batches.claim(number)
        batches.network.on_result(number, {"y": np.zeros((2, 1))})
    assert not list(batches.of_frames([0.0] * 100))


def test_as_many_frames_may_be_pushed_as_the_channels_and_one_batch_hold() -> None:
    host = Streaming(8)
    host.batches.hold(3)
    assert host.offered.held == 32


def test_frames_of_another_shape_are_refused_by_their_number() -> None:
    class Uneven(Offered):
        def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
            return {"x": np.zeros((1, 2 + index % 2), np.float32)}

    offered = Uneven()
    batches = Batches(PushedNetwork((), offered, lambda _frame, _outputs: None), 2, None)
    offered.pushed = 2
    batches.seen()
    assert batches.claim(0)
    with pytest.raises(BadInputError, match="frame 1: input 'x' is float32\\[1, 3\\]"):
        batches[0]


def run_of(
    at_s: Callable[[int], float], recoveries: tuple[Recovery, ...] = ()
) -> Callable[[tuple[PushedNetwork, ...], OnUpdate], RunResult]:
    """A run that sends batch k at k seconds, and has its result `at_s(k)`."""

    def stream(networks: tuple[PushedNetwork, ...], on_update: OnUpdate) -> RunResult:
        (network,) = networks
        count, is_end = network.frames.seen()
        assert is_end
        assert network.frames.count == count
        for number in range(count):
            assert network.frames.claim(number)
            network.on_result(number, {"y": network.frames[number]["x"]})
            on_update(Update("streaming", number + 1, count))
        times = range(count)
        result = RunResult(tuple(map(float, times)), tuple(map(at_s, times)), {}, {}, {}, 0.0)
        return replace(result, recoveries=recoveries)

    return stream


class Ten:
    """Ten frames."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
        return Offered()[index]


def test_times_progress_and_recoveries_of_a_run_count_frames() -> None:
    taken: list[int] = []
    updates: list[Update] = []
    past = Recovery(("a",), ("lost",), 1.0, frame=1, replayed=2)
    result = stream_in_batches(
        run_of(lambda batch: batch + 0.5, (past,)),
        listed(Ten(), lambda frame, _: taken.append(frame)),
        updates.append,
        4,
        None,
    )
    assert taken == list(range(10))
    assert [(update.done, update.total) for update in updates] == [(4, 10), (8, 10), (10, 10)]
    assert result.received_s == (0.5,) * 4 + (1.5,) * 4 + (2.5,) * 2
    assert result.sent_s == (0.0,) * 4 + (1.0,) * 4 + (2.0,) * 2
    assert [(each.frame, each.replayed) for each in result.recoveries] == [(4, 6)]


def test_the_latency_of_a_frame_begins_when_it_waits_for_the_others_of_its_batch() -> None:
    host = Streaming(2)
    host.now_s = 10.0
    host.offered.pushed = 1
    host.look()
    host.now_s = 10.25
    host.offered.pushed = 2
    host.look()
    assert host.send()
    assert list(host.batches.of_frames([12.0], is_sent=True)) == [11.75, 12.0]
