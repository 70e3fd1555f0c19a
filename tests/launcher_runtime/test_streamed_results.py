"""A stream's results: in order, bounded, with the reader's error behind them, and nothing left."""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from cnn.model import Model
from cnn.network import Tensor
from launcher.core.blueprint import Dealing
from launcher.errors import BadInputError, FullError, RunFailedError
from launcher.run.feed import AHEAD, Feed, Outputs, Withdrawal
from launcher.run.parts import Part
from launcher.run.streamed_results import StreamedResults
from tests.launcher_runtime.clusters import WAIT_S
from tests.launcher_runtime.plans import in_a_row
from tests.launcher_runtime.simulation import blueprint_of

Frame = dict[str, np.ndarray]

ECHO = Part(
    cast(
        Model,
        SimpleNamespace(
            network=SimpleNamespace(
                name="echo", inputs=("x",), outputs=("x",), tensors={"x": Tensor("x", (), "int64")}
            ),
            constant_outputs={},
        ),
    ),
    is_alone=True,
)
"""A network whose output is its input, a number."""


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
    feed = Feed(ECHO, 5)
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
    feed = Feed(ECHO, 8)
    stream = iter(StreamedResults(feed.submit, map(frame, range(10**9)), lambda: 8))
    with ThreadPoolExecutor() as threads:
        first = threads.submit(next, stream)
        while feed.seen()[0] < 8:
            select.select([feed.descriptor], [], [], WAIT_S)
        feed.claim(0)
        feed.took(0, frame(0))
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
    feed = Feed(ECHO)
    feed.hold(6)
    for number in range(6 + AHEAD):
        feed.submit(frame(number), block=False)
    with pytest.raises(FullError, match="try again later"):
        feed.submit(frame(99), block=False)
    with pytest.raises(FullError):
        feed.submit(frame(99), timeout_s=0.05)
    feed.hold(3)
    feed.claim(0)
    feed.took(0, frame(0))
    feed.submit(frame(10), block=False)
    feed.finish(RunFailedError("over"))
    feed.close()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"x": np.array(1.0)}, r"input 'x' is float64\[\], but the network takes int64\[\]"),
        ({"x": np.zeros(2, np.int64)}, r"input 'x' is int64\[2\]"),
        ({}, "input 'x' is missing"),
        ({"x": np.array(1), "y": np.array(1)}, "no input 'y'; its inputs are x"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_when_it_is_pushed(
    wrong: Frame, sentence: str
) -> None:
    feed = Feed(ECHO, 9)
    with pytest.raises(BadInputError, match=sentence):
        feed.submit(wrong)
    assert feed.seen() == (0, False)
    feed.finish(RunFailedError("over"))
    feed.close()


def test_an_array_of_another_layout_is_sent_as_the_network_takes_it() -> None:
    feed = Feed(ECHO, 9)
    feed.submit({"x": np.array(7, ">i8")})
    assert feed[0]["x"].dtype.isnative
    assert feed[0]["x"] == 7
    feed.finish(RunFailedError("over"))
    feed.close()


def test_frames_that_wait_to_be_sent_can_be_bounded_by_themselves() -> None:
    feed = Feed(ECHO, 9, most_unsent=1)
    for number in range(3):
        feed.submit(frame(number), block=False)
        with pytest.raises(FullError):
            feed.submit(frame(99), block=False)
        feed.claim(number)
    feed.finish(RunFailedError("over"))
    feed.close()


def test_the_run_is_woken_once_for_what_is_pushed_before_it_looks() -> None:
    feed = Feed(ECHO, 9)
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
            feed, begun = Feed(ECHO, 400), threading.Barrier(3)
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

    feed = Feed(ECHO, 8)
    futures = [feed.submit(frame(number)) for number in range(8)]
    for future in futures:
        future.add_done_callback(fail)
    assert feed.claim(0)
    feed.took(0, frame(0))
    feed.finish(RunFailedError("over"))
    assert number_of(futures[0].result(0)) == 0
    assert {str(future.exception(0)) for future in (*futures[1:], feed.ended)} == {"over"}
    assert len(caplog.records) == 8
    feed.close()


def test_a_caller_that_waits_for_room_can_leave_and_wakes_another() -> None:
    feed = Feed(ECHO, 1)
    feed.submit(frame(0))
    withdrawals = [Withdrawal() for _ in range(4)]
    with ThreadPoolExecutor(5) as threads:
        leaving = [threads.submit(feed.submit, frame(9), withdrawal=each) for each in withdrawals]
        staying = threads.submit(feed.submit, frame(1))
        feed.claim(0)
        for withdrawal in withdrawals[:2]:
            withdrawal.withdraw()
        feed.took(0, frame(0))
        for withdrawal in withdrawals[2:]:
            withdrawal.withdraw()
        left = [each.exception(WAIT_S) for each in leaving]
        taken = [each.result() for each in leaving if each.exception() is None]
        assert all(error is None or isinstance(error, CancelledError) for error in left)
        if taken:  # room came before it was withdrawn
            feed.claim(1)
            feed.took(1, frame(1))
        assert not staying.result(WAIT_S).done()
    feed.finish(RunFailedError("over"))
    feed.close()


def test_a_stream_can_be_closed_while_another_thread_waits_for_its_next_result() -> None:
    feed = Feed(ECHO, 8)
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
    feed = Feed(ECHO, most)
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


# ---------------------------------------------------------------- how many frames are held


def test_a_chain_holds_the_places_of_all_its_channels() -> None:
    assert blueprint_of(in_a_row(3, capacity_frames=2)).frames_held == 8


def test_copies_hold_as_many_frames_as_the_slower_of_them_admits() -> None:
    blueprint = blueprint_of(in_a_row(1, capacity_frames=2))
    channels = {channel.number: 1 for channel in (*blueprint.from_host, *blueprint.to_host)}
    alone = replace(blueprint, dealing=Dealing((1,), channels))
    assert alone.frames_held == 4
    thirds = replace(blueprint, dealing=Dealing((1, 1, 1), channels))
    assert 4 <= thirds.frames_held <= 4 + 2
