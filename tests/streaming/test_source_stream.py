"""The whole stream, from a source to sinks: nothing doubled, nothing out of order, all counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.config.ends.sink import FrameResult, Predictions
from launcher.config.ends.source import SourceFrame
from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import BadInputError, LauncherError, RunFailedError, UnfitFrameError
from launcher.inputs.fitting import ImagePlacement
from launcher.run.streamed_results import Submit
from launcher.streaming.source_stream import CLOSING_S, STOPPING_S, NetworkEnds, SourceStream
from launcher.tasks.opening import Task
from tests.streaming.parts import (
    WAIT_S,
    Answer,
    Array,
    EndlessSource,
    GatedSink,
    ScriptedSink,
    ScriptedSource,
    SimulatedClock,
    Step,
    delivery,
    doubled,
    reader,
)

POLICIES: tuple[Overload, ...] = ("block", "drop-oldest", "drop-newest")

policies = st.sampled_from(POLICIES)
answers = st.lists(st.sampled_from(["taken", "lost", "refused"]), max_size=20)


@dataclass(frozen=True)
class SinkScript:
    answers: list[Answer]
    overload: Overload
    places: int


def threads_of_streams() -> list[str]:
    """The threads that do not end, although what they were started for has."""
    started = [t for t in threading.enumerate() if t.name.startswith("csdf-edge ")]
    for thread in started:
        thread.join(WAIT_S)
    return [thread.name for thread in started if thread.is_alive()]


def in_background(stream: SourceStream, submit: Submit = doubled, in_flight: int = 3) -> Background:
    return Background(lambda: run(stream, submit, in_flight))


def run(stream: SourceStream, submit: Submit = doubled, in_flight: int = 3) -> None:
    with stream:
        stream.run(submit, lambda: in_flight)


class Background:
    """Runs something in a thread, and gives its error."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the test's to see
            self._error = error

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["frame", "frame", "lost"]), max_size=30),
    policies,
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.builds(SinkScript, answers, policies, st.integers(1, 4)), max_size=3),
    st.booleans(),
)
def test_whatever_is_lost_dropped_or_refused_counts_add_up_in_order(
    steps: list[Step],
    overload: Overload,
    places: int,
    in_flight: int,
    scripts: list[SinkScript],
    ends_broken: bool,
) -> None:
    """However the source ends: by an error, too, all that it gave before is delivered."""
    steps = [*steps, "broken"] if ends_broken else steps
    reading = reader(ScriptedSource(steps), overload, places)
    sinks = [ScriptedSink(script.answers) for script in scripts]
    deliveries = [
        delivery(sink, script.overload, script.places)
        for sink, script in zip(sinks, scripts, strict=True)
    ]
    seen: list[FrameResult] = []
    stream = SourceStream(reading, deliveries, on_result=seen.append)
    with ThreadPoolExecutor(3) as pool:

        def submit(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
            return pool.submit(lambda: {"y": 2 * inputs["x"]})

        with pytest.raises(LauncherError, match="broken") if ends_broken else nullcontext():
            run(stream, submit, in_flight)
    counts = reading.frames.counts
    assert counts.offered == steps.count("frame") == stream.results + counts.dropped
    indices = [result.index for result in seen]
    assert indices == sorted(set(indices))
    assert len(indices) == stream.results
    assert all(result.outputs["y"] == [2 * result.index] for result in seen)
    assert all(result.taken_s == result.index for result in seen)
    if overload == "block":
        assert indices == list(range(counts.offered))
    for sink, delivering in zip(sinks, deliveries, strict=True):
        became = delivering.counts
        assert became.given == stream.results
        assert (became.delivered, became.refused) == (len(sink.taken), len(sink.refused))
        assert became.waiting == 0
        assert sink.indices == sorted(set(sink.indices))
        assert set(sink.indices).isdisjoint(sink.refused)
        assert {*sink.indices, *sink.refused} <= set(indices)
        assert sink.closed == 1
        assert len(sink.threads) == 1
    assert threads_of_streams() == []


def test_a_sink_that_stops_reading_holds_up_the_stream_up_to_the_source() -> None:
    source, sink = EndlessSource(), GatedSink()
    reading = reader(source, "block", 2)
    stream = SourceStream(reading, [delivery(sink, places=3)])
    running = in_background(stream, in_flight=4)
    for _ in range(30):
        source.next.release()
    # One is being written, 3 wait for the sink, 4 are in flight, 2 wait in the queue, and the
    # reader has one more in its hand.
    assert sink.began.acquire(timeout=WAIT_S)
    source.wait_until_put(10)
    assert reading.frames.counts.offered == 10
    assert reading.frames.counts.dropped == 0
    for _ in range(30):
        sink.gate.release()
    for _ in range(29):
        assert sink.began.acquire(timeout=WAIT_S)
    stream.stop()
    running.join()
    assert sink.indices == list(range(30))
    assert threads_of_streams() == []


def test_a_live_source_drops_old_frames_while_a_sink_stops_reading() -> None:
    source, sink = EndlessSource(), GatedSink()
    reading = reader(source, "drop-oldest", 1)
    stream = SourceStream(reading, [delivery(sink, places=1)])
    running = in_background(stream, in_flight=2)
    for _ in range(30):
        source.next.release()
    assert sink.began.acquire(timeout=WAIT_S)
    source.wait_until_put(30)
    for _ in range(30):
        sink.gate.release()
    stream.stop()
    running.join()
    counts = reading.frames.counts
    assert counts.dropped == 30 - len(sink.taken)
    assert sink.indices == sorted(sink.indices)
    assert sink.indices[-1] == 29
    assert len(sink.taken) <= 6


def test_a_stream_that_is_stopped_delivers_what_is_under_way() -> None:
    source, sink = EndlessSource(), GatedSink()
    stream = SourceStream(reader(source), [delivery(sink)])
    running = in_background(stream)
    for _ in range(7):
        source.next.release()
        assert sink.began.acquire(timeout=WAIT_S)
        sink.gate.release()
    stream.stop()
    running.join()
    assert stream.is_stopped
    assert not stream.is_given_up
    assert sink.indices == list(range(7))
    assert sink.closed == 1
    assert threads_of_streams() == []


class NoisySource(EndlessSource):
    """Fails when it is closed."""

    def frames(self) -> Iterator[SourceFrame]:
        yield from super().frames()
        raise OSError("closed while it was read")


def test_however_a_source_ends_when_it_is_closed_the_stream_is_fine() -> None:
    source, sink = NoisySource(), GatedSink()
    stream = SourceStream(reader(source), [delivery(sink)])
    running = in_background(stream)
    source.next.release()
    assert sink.began.acquire(timeout=WAIT_S)
    sink.gate.release()
    stream.stop()
    running.join()
    assert sink.indices == [0]
    broken = NoisySource()
    broken.next.release()
    broken.close()
    with pytest.raises(RunFailedError, match="the test's source: OSError: closed while"):
        run(SourceStream(reader(broken), []))


class PassingClock(SimulatedClock):
    """Five seconds pass whenever somebody looks."""

    def now_s(self) -> float:
        self.wait(threading.Event(), 5.0)
        return super().now_s()


def test_a_cluster_that_does_not_answer_is_given_up_when_the_stream_is_stopped() -> None:
    source, given = EndlessSource(), list[Future[dict[str, Array]]]()
    submitted = threading.Semaphore(0)

    def never(_: Mapping[str, Array], **__: object) -> Future[dict[str, Array]]:
        given.append(Future())
        submitted.release()
        return given[-1]

    clock = PassingClock()
    stream = SourceStream(reader(source), [delivery(ScriptedSink())], clock=clock)

    def give_up() -> None:
        with stream:
            stream.run(never, lambda: 2)
            assert given[0].cancelled()

    running = Background(give_up)
    source.next.release()
    assert submitted.acquire(timeout=WAIT_S)
    stream.stop()
    running.join()
    assert stream.is_given_up
    assert clock.now_s() > STOPPING_S
    assert threads_of_streams() == []


def test_a_sink_that_hangs_at_the_end_is_left_behind_and_its_results_are_counted() -> None:
    sink, quick = GatedSink(), ScriptedSink()
    hanging = delivery(sink)
    clock = PassingClock()
    stream = SourceStream(
        reader(ScriptedSource(["frame"] * 5)), [hanging, delivery(quick)], clock=clock
    )
    stream.run(doubled, lambda: 2)
    assert clock.now_s() > CLOSING_S
    assert quick.indices == list(range(5))
    assert hanging.counts.waiting == 5
    sink.gate.release()
    with stream:
        pass
    assert threads_of_streams() == []


def test_a_sink_that_is_slow_but_continues_has_all_the_time_it_needs() -> None:
    sink = ScriptedSink()
    stream = SourceStream(reader(ScriptedSource(["frame"] * 50)), [delivery(sink)])
    run(stream)
    assert sink.indices == list(range(50))


class FailingSink(ScriptedSink):
    def write(self, result: FrameResult) -> None:
        if result.index == 3:
            raise RunFailedError("the disk is full")
        super().write(result)


class StrangeSink(ScriptedSink):
    def write(self, result: FrameResult) -> None:
        raise KeyError("boxes")


def fails(_: Mapping[str, Array], **__: object) -> Future[dict[str, Array]]:
    failed: Future[dict[str, Array]] = Future()
    failed.set_exception(RunFailedError("node 'a' was lost"))
    return failed


def refuses(_: Mapping[str, Array], **__: object) -> Future[dict[str, Array]]:
    raise BadInputError("the network has no input 'x'")


@pytest.mark.parametrize(
    ("sink", "submit", "error"),
    [
        (FailingSink(), doubled, "the disk is full"),
        (StrangeSink(), doubled, "the test's sink: KeyError: 'boxes'"),
        (ScriptedSink(), fails, "node 'a' was lost"),
    ],
)
def test_an_error_of_any_part_ends_the_stream_once(
    sink: ScriptedSink, submit: Submit, error: str
) -> None:
    source = EndlessSource()
    other = ScriptedSink()
    stream = SourceStream(reader(source), [delivery(sink), delivery(other)])
    for _ in range(10):
        source.next.release()
    with pytest.raises(RunFailedError, match=error):
        run(stream, submit)
    assert source.closed.is_set()
    assert (sink.closed, other.closed) == (1, 1)
    assert threads_of_streams() == []


def test_what_does_not_fit_is_the_user_s_mistake_only_before_the_first_result() -> None:
    stream = SourceStream(reader(ScriptedSource(["frame"] * 3)), [])
    with pytest.raises(BadInputError, match="no input 'x'"):
        run(stream, refuses)

    def refuses_the_third(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
        if inputs["x"] == 2:
            raise BadInputError("too large")
        return doubled(inputs)

    sink = ScriptedSink()
    late = SourceStream(reader(ScriptedSource(["frame"] * 9)), [delivery(sink)])
    with pytest.raises(RunFailedError, match="too large"):
        run(late, refuses_the_third)
    assert sink.indices == [0, 1], "what was read before is delivered"


def test_a_source_that_never_comes_ends_the_stream_before_the_first_frame() -> None:
    reading = reader(ScriptedSource(["lost"] * 3), reconnect=ReconnectConfig(tries=2))
    with pytest.raises(BadInputError, match="unplugged"):
        run(SourceStream(reading, [delivery(ScriptedSink())]))
    assert threads_of_streams() == []


def test_a_cluster_that_ends_while_no_frame_is_under_way_ends_the_stream() -> None:
    ended: Future[None] = Future()
    stream = SourceStream(reader(EndlessSource()), [delivery(ScriptedSink())])
    ended.add_done_callback(stream.cluster_ended)
    running = in_background(stream)
    ended.set_exception(RunFailedError("no node is left"))
    with pytest.raises(RunFailedError, match="no node is left"):
        running.join()


def test_a_cluster_that_ends_while_a_sink_takes_nothing_ends_the_stream_as_well() -> None:
    ended: Future[None] = Future()
    sink = GatedSink()
    stream = SourceStream(
        reader(ScriptedSource(["frame"] * 20)), [delivery(sink, places=1)], clock=PassingClock()
    )
    ended.add_done_callback(stream.cluster_ended)

    def submit(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
        if inputs["x"] == 4:
            ended.set_exception(RunFailedError("no node is left"))
        return doubled(inputs)

    with pytest.raises(RunFailedError, match="no node is left"):
        stream.run(submit, lambda: 8)
    sink.gate.release(20)
    with stream:
        pass
    assert threads_of_streams() == []


def test_never_more_frames_are_in_flight_than_agreed() -> None:
    under_way: list[int] = []
    most: list[int] = []
    gate = threading.Semaphore(0)

    def submit(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
        under_way.append(1)
        most.append(len(under_way))
        future = doubled(inputs)
        if len(most) == 3:
            gate.release()
        return future

    class Counting(ScriptedSink):
        def write(self, result: FrameResult) -> None:
            if not result.index:
                assert gate.acquire(timeout=WAIT_S)
            super().write(result)

    def took(_: FrameResult) -> None:
        under_way.pop()

    sink = Counting()
    stream = SourceStream(
        reader(ScriptedSource(["frame"] * 40)), [delivery(sink, places=1)], on_result=took
    )
    run(stream, submit, in_flight=3)
    assert max(most) <= 3
    assert sink.indices == list(range(40))


@pytest.mark.parametrize("in_flight", [1, 8])
def test_frames_that_do_not_fit_are_left_out_and_counted(in_flight: int) -> None:
    said: list[str] = []
    reading = reader(ScriptedSource(["frame", "refused", *["frame"] * 18]), say=said.append)
    sink, lost = ScriptedSink(), list[int]()
    stream = SourceStream(reading, [delivery(sink)], on_lost=lost.append)
    with ThreadPoolExecutor(3) as pool:

        def submit(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
            if inputs["x"] % 3 == 0:
                raise UnfitFrameError("input 'x' is int64[1], but the network takes int64[2]")
            return pool.submit(lambda: {"y": inputs["x"]})

        run(stream, submit, in_flight)
    unfit = list(range(0, 20, 3))
    assert sorted(lost) == sorted({*unfit, 1})
    assert sink.indices == [number for number in range(20) if number not in lost]
    counted = stream.counts(in_flight, None, None)
    assert (counted.read, counted.refused, counted.results) == (20, len(lost), len(sink.indices))
    assert counted.lost == 0
    assert "frame 0 is left out: input 'x' is int64[1], but the network takes int64[2]" in said


@dataclass(frozen=True)
class Found(Predictions):
    """What the test's task has found."""

    placement: ImagePlacement
    mean: float

    def as_json(self) -> dict[str, Any]:
        return {"mean": self.mean}


class MeanTask:
    """Fits images by halving them, and finds their mean."""

    def prepare(self, image: Array) -> tuple[Mapping[str, Array], ImagePlacement]:
        height, width, _ = image.shape
        return {"x": image[::2, ::2]}, ImagePlacement(width, height, 0.5, 0.5)

    def decode(self, outputs: Mapping[str, Array], placement: ImagePlacement) -> Found:
        return Found(placement, float(outputs["y"].mean()))


class ImageSource(ScriptedSource):
    def frames(self) -> Iterator[SourceFrame]:
        for frame in super().frames():
            picture = np.full((4, 6, 3), int(frame.taken_s), np.uint8)
            yield SourceFrame(picture, frame.taken_s, f"{frame.taken_s:.0f}.png", 0.5)


class PictureSink(ScriptedSink):
    needs_image = True


@pytest.mark.parametrize("sink", [ScriptedSink(), PictureSink()])
def test_images_are_fitted_decoded_and_kept_only_for_a_sink_that_needs_them(
    sink: ScriptedSink,
) -> None:
    source = ImageSource(["frame"] * 4)
    network = NetworkEnds(task=cast(Task, MeanTask()))
    run(SourceStream(reader(source), [delivery(sink)], network=lambda: network))
    assert sink.indices == [0, 1, 2, 3]
    for result in sink.taken:
        assert result.predictions == Found(ImagePlacement(6, 4, 0.5, 0.5), 2 * result.index)
        assert (result.name, result.media_s) == (f"{result.index}.png", 0.5)
        if sink.needs_image:
            assert result.image is not None
            assert result.image.shape == (4, 6, 3)
        else:
            assert result.image is None


def test_a_network_that_takes_no_images_cannot_stream_them() -> None:
    with pytest.raises(BadInputError, match="the test's source gives images"):
        run(SourceStream(reader(ImageSource(["frame"])), []))
