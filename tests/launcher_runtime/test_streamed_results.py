"""A stream's results: in order, bounded, with the reader's error behind them, and nothing left."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from launcher.config.pace import Pace
from launcher.core.blueprint import Dealing
from launcher.errors import BadInputError, FullError, RunFailedError
from launcher.run.feed import AHEAD, Feed, Outputs, Withdrawal
from launcher.run.streamed_results import StreamedResults
from launcher.streaming.streamed_files import StreamedFiles
from launcher.streaming.submitting import joined
from tests.launcher_runtime.clusters import WAIT_S
from tests.launcher_runtime.plans import in_a_row
from tests.launcher_runtime.simulation import blueprint_of

Frame = dict[str, np.ndarray]


def frame(number: int) -> Frame:
    return {"x": np.array(number)}


def number_of(outputs: Outputs) -> int:
    return int(outputs["x"])


@dataclass
class Worker:
    """The thread of a run: it answers what is pushed."""

    feed: Feed
    most: int = 0

    def run(self) -> None:
        done, (pushed, is_end) = 0, self.feed.seen()
        while not is_end or done < pushed:
            if done == pushed:
                select.select([self.feed.descriptor], [], [], WAIT_S)
                pushed, is_end = self.feed.seen()
                continue
            self.most = max(self.most, pushed - done)
            if self.feed.claim(done):
                self.feed.took(done, self.feed[done])
            done += 1
        self.feed.finish(RunFailedError("over"))


def test_results_come_in_order_and_all_of_them() -> None:
    feed = Feed(5)
    worker = Worker(feed)
    with ThreadPoolExecutor() as threads:
        running = threads.submit(worker.run)
        stream = StreamedResults(feed.submit, map(frame, range(500)), lambda: 5)
        assert [number_of(outputs) for outputs in stream] == list(range(500))
        feed.end()
        running.result(WAIT_S)
    assert worker.most <= 5
    feed.close()


def test_no_more_frames_are_read_than_are_allowed_ahead_of_the_results_taken() -> None:
    read: list[int] = []
    done: Future[Outputs] = Future()
    done.set_result({})

    def frames() -> Iterator[int]:
        for number in range(50):
            read.append(number)
            yield number

    for taken, _ in enumerate(
        StreamedResults(lambda _, withdrawal: done, frames(), lambda: 3), start=1
    ):
        assert len(read) <= taken + 2


def test_what_reading_raises_comes_after_the_results_of_the_frames_before() -> None:
    done: Future[Outputs] = Future()
    done.set_result({})

    def frames() -> Iterator[int]:
        yield from range(4)
        raise BadInputError("the fifth is broken")

    results = iter(StreamedResults(lambda _, withdrawal: done, frames(), lambda: 2))
    for _ in range(4):
        next(results)
    with pytest.raises(BadInputError, match="the fifth is broken"):
        next(results)


def test_a_consumer_that_leaves_cancels_what_was_not_sent_and_ends_the_reader() -> None:
    feed = Feed(8)
    stream = iter(StreamedResults(feed.submit, map(frame, range(10**9)), lambda: 8))
    with ThreadPoolExecutor() as threads:
        first = threads.submit(next, stream)
        while feed.seen()[0] < 8:
            select.select([feed.descriptor], [], [], WAIT_S)
        feed.claim(0)
        feed.took(0, {"x": np.array(0)})
        assert number_of(first.result(WAIT_S)) == 0
    stream.close()
    assert [feed.claim(number) for number in range(1, 8)] == [False] * 7
    for thread in threading.enumerate():
        if thread.name == "csdf-edge frames":
            thread.join(WAIT_S)
            assert not thread.is_alive()
    feed.end()
    feed.finish(RunFailedError("over"))
    feed.close()


def test_as_many_frames_as_the_channels_hold_are_taken_and_a_few_more() -> None:
    feed = Feed()
    feed.hold(6)
    for number in range(6 + AHEAD):
        feed.submit(frame(number), block=False)
    with pytest.raises(FullError):
        feed.submit(frame(99), block=False)
    feed.hold(3)
    feed.claim(0)
    feed.took(0, {})
    feed.submit(frame(10), block=False)
    feed.finish(RunFailedError("over"))
    feed.close()


def test_frames_that_wait_to_be_sent_can_be_bounded_by_themselves() -> None:
    feed = Feed(9, most_unsent=1)
    for number in range(3):
        feed.submit(frame(number), block=False)
        with pytest.raises(FullError):
            feed.submit(frame(99), block=False)
        feed.claim(number)
    feed.finish(RunFailedError("over"))
    feed.close()


def test_the_run_is_woken_once_for_what_is_pushed_before_it_looks() -> None:
    feed = Feed(9)
    for number in range(5):
        feed.submit(frame(number))
    assert feed.seen() == (5, False)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(feed.descriptor)
    feed.finish(RunFailedError("over"))
    feed.close()


# ---------------------------------------------------------------- ends of futures


def test_futures_that_are_cancelled_while_the_run_ends_keep_no_other_from_its_end() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(150):
            feed, begun = Feed(400), threading.Barrier(3)
            futures = [feed.submit(frame(number)) for number in range(400)]

            def cancel(futures: list[Future[Outputs]], begun: threading.Barrier) -> None:
                begun.wait(WAIT_S)
                for future in futures:
                    future.cancel()

            with ThreadPoolExecutor(2) as threads:
                cancelling = [threads.submit(cancel, futures, begun) for _ in range(2)]
                begun.wait(WAIT_S)
                feed.finish(RunFailedError("over"))
                for each in cancelling:
                    each.result(WAIT_S)
            assert wait(futures, WAIT_S).not_done == set()
            assert all(each.cancelled() or each.exception() for each in futures)
            assert str(feed.ended.exception(0)) == "over"
            feed.close()
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_a_callback_raises_keeps_no_other_future_from_its_end(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise raised

    feed = Feed(8)
    futures = [feed.submit(frame(number)) for number in range(8)]
    for future in futures:
        future.add_done_callback(fail)
    assert feed.claim(0)
    feed.took(0, {})
    feed.finish(RunFailedError("over"))
    assert futures[0].result(0) == {}
    assert {str(future.exception(0)) for future in (*futures[1:], feed.ended)} == {"over"}
    assert len(caplog.records) == 8
    feed.close()


def test_whoever_waits_for_room_can_go_away_and_wakes_another_in_its_place() -> None:
    feed = Feed(1)
    feed.submit(frame(0))
    withdrawals = [Withdrawal() for _ in range(4)]
    with ThreadPoolExecutor(5) as threads:
        leaving = [threads.submit(feed.submit, frame(9), withdrawal=each) for each in withdrawals]
        staying = threads.submit(feed.submit, frame(1))
        feed.claim(0)
        for withdrawal in withdrawals[:2]:
            withdrawal.withdraw()
        feed.took(0, {})
        for withdrawal in withdrawals[2:]:
            withdrawal.withdraw()
        left = [each.exception(WAIT_S) for each in leaving]
        taken = [each.result() for each in leaving if each.exception() is None]
        assert all(error is None or isinstance(error, CancelledError) for error in left)
        if taken:  # room came before it was withdrawn
            feed.claim(1)
            feed.took(1, {})
        assert not staying.result(WAIT_S).done()
    feed.finish(RunFailedError("over"))
    feed.close()


def test_a_stream_can_be_closed_while_another_thread_waits_for_its_next_result() -> None:
    feed = Feed(8)
    stream = StreamedResults(feed.submit, map(frame, range(10**9)), lambda: 8)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(stream.next)
        while feed.seen()[0] < 8:
            select.select([feed.descriptor], [], [], WAIT_S)
        stream.close()
        assert waiting.result(WAIT_S) is None
    assert stream.next() is None
    assert [feed.claim(number) for number in range(8)] == [False] * 8
    feed.finish(RunFailedError("over"))
    feed.close()


@pytest.mark.parametrize("most", [1, 4])
def test_a_stream_that_is_closed_while_its_frame_waits_for_room_submits_it_no_more(
    most: int,
) -> None:
    feed = Feed(most)
    for number in range(most):
        feed.submit(frame(number))
    stream = StreamedResults(feed.submit, map(frame, range(10)), lambda: 8)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(stream.next)
        stream.close()
        assert waiting.result(WAIT_S) is None
    for thread in threading.enumerate():
        if thread.name == "csdf-edge frames":
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert feed.seen()[0] == most
    feed.finish(RunFailedError("over"))
    feed.close()


# ---------------------------------------------------------------- frames of several networks


def parts() -> dict[str, Future[Outputs]]:
    return {"left": Future(), "right": Future()}


def test_a_frame_of_several_networks_has_the_outputs_of_all() -> None:
    futures = parts()
    whole = joined(futures)
    futures["right"].set_result(frame(2))
    assert not whole.done()
    futures["left"].set_result(frame(1))
    assert {name: int(array) for name, array in whole.result(0).items()} == {
        "left/x": 1,
        "right/x": 2,
    }


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_frame_of_several_networks_ends_as_the_first_that_has_no_result(
    is_cancelled: bool,
) -> None:
    futures = parts()
    whole = joined(futures)
    if is_cancelled:
        futures["left"].cancel()
    else:
        futures["left"].set_exception(RunFailedError("over"))
    with pytest.raises(CancelledError if is_cancelled else RunFailedError):
        whole.result(0)
    assert futures["right"].cancelled()


def test_cancelling_a_frame_of_several_networks_cancels_it_at_each() -> None:
    futures = parts()
    whole = joined(futures)
    assert futures["left"].set_running_or_notify_cancel()
    assert whole.cancel()
    assert wait([whole], WAIT_S).not_done == set()
    assert futures["right"].cancelled()
    futures["left"].set_result(frame(1))
    assert whole.cancelled()


# ---------------------------------------------------------------- how many frames are held


def test_a_chain_holds_the_places_of_all_its_channels() -> None:
    assert blueprint_of(in_a_row(3, capacity_frames=2)).frames_held == 8


def test_copies_hold_as_many_frames_as_the_slower_of_them_admits() -> None:
    share = blueprint_of(in_a_row(1, capacity_frames=2))
    channels = {channel.number: 1 for channel in (*share.from_host, *share.to_host)}
    alone = replace(share, dealing=Dealing((1,), channels))
    assert alone.frames_held == 4
    thirds = replace(share, dealing=Dealing((1, 1, 1), channels))
    assert 4 <= thirds.frames_held <= 4 + 2


# ---------------------------------------------------------------- files


class Network:
    """Answers at once, and is its own feed (`launcher.run.live.LiveNetwork`)."""

    is_ended = False

    @property
    def feed(self) -> Network:
        return self

    def end(self) -> None:
        self.is_ended = True

    def stream(self, frames: Iterator[Frame]) -> Iterator[Outputs]:
        for given_frame in frames:
            yield dict(given_frame)


@dataclass
class Kept:
    """Takes the results of frames of which one cannot be read."""

    frames: list[Frame]
    results: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    def on_result(self, number: int, outputs: Outputs) -> None:
        self.results.append((number, number_of(outputs)))

    def on_drop(self, number: int) -> None:
        self.dropped.append(number)


class Broken(list):
    """Cannot read the frame at `at`."""

    def __init__(self, frames: list[Frame], at: int) -> None:
        super().__init__(frames)
        self.at = at

    def __getitem__(self, index):
        if index == self.at:
            raise BadInputError("cat.png: it is shorter than it was")
        return super().__getitem__(index)


def test_every_result_has_the_number_of_its_frame() -> None:
    kept = Kept([frame(number) for number in range(20)])
    StreamedFiles(kept, None).through(Network())
    assert kept.results == [(number, number) for number in range(20)]


@pytest.mark.parametrize("policy", ["block", "drop-oldest", "drop-newest"])
def test_with_a_pace_every_frame_has_a_result_or_was_dropped(policy: str) -> None:
    kept = Kept([frame(number) for number in range(300)])
    network = Network()
    StreamedFiles(kept, Pace(1e5, policy, 2)).through(network)
    assert network.is_ended, "a batch waits for no more frames"
    taken = [number for number, _ in kept.results]
    assert kept.results == [(number, number) for number in taken]
    assert sorted([*taken, *kept.dropped]) == list(range(300))
    assert kept.dropped == sorted(kept.dropped)


@pytest.mark.parametrize(("at", "error"), [(0, BadInputError), (7, RunFailedError)])
def test_a_frame_that_cannot_be_read_ends_the_run_behind_those_before_it(
    at: int, error: type[Exception]
) -> None:
    kept = Kept(Broken([frame(number) for number in range(9)], at))
    with pytest.raises(error, match="shorter than it was"):
        StreamedFiles(kept, None).through(Network())
    assert len(kept.results) == at
