"""Streams a source's frames through a cluster, and the results to sinks, in order.

    source ─ reader ─► queue ─ feeder ─► cluster ─ collector ─► queue ─ delivery ─► sink

Each of the four has a thread (a delivery for each sink), and passes its item on before it takes
more. Feeder and collector are the two ends of a `StreamedResults`: a frame is in flight from when
the feeder takes it off the queue until the collector has put its result into the queues of all
sinks. There are at most `in_flight()` of them, so a sink that blocks holds up the collector, then
the feeder, and then frames wait or are dropped in the one queue where that is counted. Memory is
bounded by the queues and `in_flight`.

The thread that calls `run` waits for the others. All events arrive in one queue (`SimpleQueue`,
whose `put` a signal handler may call).
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from launcher.clock import StreamClock
from launcher.config.ends.sink import FrameResult
from launcher.errors import BadInputError, LauncherError, RunFailedError, UnfitFrameError
from launcher.inputs.fitting import ImagePlacement
from launcher.results.journal.ranges import FrameSequence
from launcher.results.sample import FrameSample
from launcher.results.streamed import Streamed, latency_report
from launcher.run.feed import Outputs, Withdrawal
from launcher.run.runtime import Frame
from launcher.run.streamed_results import StreamedResults, Submit
from launcher.streaming.delivery import Delivery
from launcher.streaming.reading import NumberedFrame, Reader
from launcher.tasks.opening import Task
from launcher.threads import in_thread
from launcher.view.frames import FINE_BOUNDS_S, Latencies
from nodes.protocol.payload import Array

STOPPING_S = 10.0
"""How long results in flight may take when the user stops a stream."""

CLOSING_S = 10.0
"""How long a sink may take for its next result, or any end to close, once no results come."""

JOIN_S = 5.0
"""How long threads may take to end."""

TICK_S = 0.2
"""How often progress is shown."""


@dataclass(frozen=True, slots=True)
class NetworkEnds:
    """The names of a network's inputs, and the task that fits images to it and decodes."""

    inputs: Sequence[str] = ()
    task: Task | None = None

    @property
    def only(self) -> str | None:
        """The only input, which an array without a name is."""
        return self.inputs[0] if len(self.inputs) == 1 else None


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    frame: NumberedFrame
    task: Task | None
    image: Array | None = None
    placement: ImagePlacement | None = None
    inputs: Frame | None = None
    """The network's inputs, if the frame's result is to be compared."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A thread has ended, with an error or without."""

    thread: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Stop:
    """The user stops the stream."""


class SourceStream:
    """One stream; enter it before the cluster whose `submit` it is given, and `run` it once.

    Leaving waits for the threads, so the futures of `submit` must have ended by then.
    """

    def __init__(
        self,
        reader: Reader,
        deliveries: Sequence[Delivery],
        *,
        network: Callable[[], NetworkEnds] = NetworkEnds,
        on_result: Callable[[FrameResult], None] = lambda _: None,
        on_lost: Callable[[int], None] = lambda _: None,
        sample: FrameSample | None = None,
        clock: StreamClock | None = None,
    ) -> None:
        """`network` is called for each frame, and returns what the frame is fitted to.

        `on_result` is called for each result, and `on_lost` for each frame that was dropped or
        refused, in one thread. The inputs of frames that `sample` wants are kept for it.
        """
        self.reader = reader
        self.deliveries = tuple(deliveries)
        self.latencies = Latencies(FINE_BOUNDS_S)
        """The times from the reading of a frame until its result arrived."""
        self.results = 0
        """How many results came."""
        self.began_s: float | None = None
        """When the first frame was taken off the queue."""
        self.ended_s: float | None = None
        """When the last result came."""
        self.is_stopped = False
        """Whether the user has stopped the stream."""
        self.is_given_up = False
        """Whether results in flight were abandoned."""
        self._network = network
        self._on_result = on_result
        self._on_lost = on_lost
        self._sample = sample
        self._clock = clock or StreamClock()
        self._keeps_image = any(delivery.needs_image for delivery in deliveries)
        self._events: queue.SimpleQueue[_Ended | _Stop] = queue.SimpleQueue()
        self._in_flight: deque[_InFlight] = deque()
        self._results: StreamedResults[Frame] | None = None
        self._threads: dict[str, Future[None]] = {}

    def __enter__(self) -> SourceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandon()
        if not self._threads:  # nobody else closes them
            for delivery in self.deliveries:
                delivery.run()
        wait(self._threads.values(), JOIN_S)
        if self._results is not None:
            self._results.join(JOIN_S)

    def stop(self) -> None:
        """Read no more frames, and end once results in flight are delivered, within a bound.

        May be called from any thread and from a signal handler.
        """
        self._events.put(_Stop())

    def cluster_ended(self, ended: Future[None]) -> None:
        """End the stream if the cluster has ended (`LiveCluster.ended`) before it."""
        self._events.put(_Ended("cluster", ended.exception()))

    def run(
        self,
        submit: Submit[Frame],
        in_flight: Callable[[], int],
        show: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        """Stream until the source ends, or `stop`; `show` is called from time to time.

        `submit` raises `UnfitFrameError` for inputs that do not fit, which are left out and
        counted, and its futures end when the cluster does. `on_end` is called in a thread once no
        more frames are submitted.

        Raises the first error of any part: `BadInputError` only if there was no result. Unless a
        sink has failed, the results that came, and of a source that ends by an error those of the
        frames before, are delivered first.
        """
        frames = self._fitted(on_end)
        self._results = results = StreamedResults(self._submitting(submit), frames, in_flight)
        self._start("reader", self.reader.run)
        self._start("collector", lambda: self._collect(results))
        for number, delivery in enumerate(self.deliveries):
            self._start(f"sink {number}", delivery.run)
        try:
            self._supervise(show)
        finally:
            self._abandon()

    def counts(self, in_flight: int, signal: int | None, asked: int | None) -> Streamed:
        """Return what became of the frames, once the stream has ended."""
        queued, unread = self.reader.frames.counts, self.reader.unread
        ended_s, began_s = self.ended_s, self.began_s
        return Streamed(
            read=queued.offered + unread,
            dropped=queued.dropped,
            refused=self.reader.refused,
            results=self.results,
            seconds=0.0 if ended_s is None or began_s is None else ended_s - began_s,
            latency=latency_report(self.latencies),
            in_flight=in_flight,
            gaps=self.reader.gaps,
            sinks=tuple(delivery.report() for delivery in self.deliveries),
            signal=signal,
            asked=asked,
        )

    # ------------------------------------------------------------ the thread that calls

    def _supervise(self, show: Callable[[], None]) -> None:
        running = set(self._threads)
        stop_by_s: float | None = None
        ended_by: BaseException | None = None
        closing: dict[str, _Closing] = {}
        while running:
            try:
                event = self._events.get(timeout=TICK_S)
            except queue.Empty:
                event = None
            now_s = self._clock.now_s()
            match event:
                case _Ended("reader", _) if self.is_stopped:  # however its closing ended it
                    running.discard("reader")
                case _Ended("reader" | "feeder" as thread, BaseException() as error):
                    ended_by = ended_by or error
                    running.discard(thread)
                    self.reader.stop()
                case _Ended("cluster", BaseException() as error):  # after the results that came
                    ended_by = ended_by or error
                    self.reader.stop()
                    closing = {"collector": _Closing(lambda: self.results, self._abandon, now_s)}
                case _Ended("collector", error):  # sinks have the results that came
                    ended_by = ended_by or error
                    running.discard("collector")
                    closing = self._close(now_s)
                    if error is not None:
                        self.reader.stop()
                case _Ended(_, BaseException() as error):
                    raise self._after_results(error)
                case _Ended(thread):
                    running.discard(thread)
                case _Stop() if not self.is_stopped:
                    self.is_stopped = True
                    stop_by_s = now_s + STOPPING_S
                    self.reader.stop()
            running -= {
                name for name, end in closing.items() if name in running and end.hangs(now_s)
            }
            if stop_by_s is not None and now_s >= stop_by_s:
                self.is_given_up = True
                break
            show()
        if ended_by is not None:
            raise self._after_results(ended_by)

    def _close(self, now_s: float) -> dict[str, _Closing]:
        """Expect no further result; return the threads that still may take a bounded time."""
        closing = {"reader": _Closing(lambda: 0, self.reader.stop, now_s)}
        for number, delivery in enumerate(self.deliveries):
            delivery.finish()
            closing[f"sink {number}"] = _Closing(delivery.left, delivery.abandon, now_s)
        return closing

    def _after_results(self, error: BaseException) -> BaseException:
        """Return the error; once there is a result, it is not a mistake in the user's file."""
        return (
            _caused(str(error), error)
            if isinstance(error, BadInputError) and self.results
            else error
        )

    def _abandon(self) -> None:
        """Let every thread end as soon as it can."""
        self.reader.stop()
        self.reader.frames.abandon()
        for delivery in self.deliveries:
            delivery.abandon()
        if self._results is not None:
            self._results.close()

    # ------------------------------------------------------------ the other threads

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def ended(thread: Future[None]) -> None:
            error = thread.exception()  # a plugin's may be any, and must reach the user
            self._events.put(_Ended(name, None if error is None else self._named(name, error)))

        self._threads[name] = in_thread(work, name)
        self._threads[name].add_done_callback(ended)

    def _named(self, thread: str, error: BaseException) -> BaseException:
        """Return an error of a thread as one that names its origin."""
        subject = "the stream"
        if thread == "reader":
            subject = self.reader.source.description
        elif thread.startswith("sink "):
            subject = self.deliveries[int(thread.removeprefix("sink "))].description
            if isinstance(error, BrokenPipeError):  # standard output no longer has a reader
                return error
        if isinstance(error, LauncherError) or thread == "collector":
            return error
        if isinstance(error, OSError) and error.strerror:
            return _caused(f"{subject}: {error.strerror}", error)
        return _caused(f"{subject}: {type(error).__name__}: {error}", error)

    def _fitted(self, on_end: Callable[[], None]) -> Iterator[Frame]:
        """Take frames off the queue, and yield the network's inputs, in the feeder's thread."""
        try:
            while (frame := self.reader.frames.take()) is not None:
                if self.began_s is None:
                    self.began_s = frame.read_s
                network, late = self._network(), frame.frame.load
                data = frame.frame.data if late is None else late()
                inputs: Frame
                if isinstance(data, Mapping):
                    inputs, each = data, _InFlight(frame, network.task)
                    if network.only is not None and set(data) == {""}:
                        inputs = {network.only: data[""]}
                elif network.task is None:
                    raise BadInputError(
                        f"{self.reader.source.description} gives images, which only a network "
                        "with one input of an image's shape takes"
                    )
                else:
                    inputs, placement = network.task.prepare(data)
                    image = data if self._keeps_image else None
                    each = _InFlight(frame, network.task, image, placement)
                if self._sample is not None and self._sample.wants(frame.index):
                    each = replace(each, inputs=inputs)
                self._in_flight.append(each)
                yield inputs
        finally:
            on_end()

    def _submitting(self, submit: Submit[Frame]) -> Submit[Frame]:
        """Return `submit` for the feeder's thread, which leaves out frames that do not fit."""

        def submitted(frame: Frame, *, withdrawal: Withdrawal) -> Future[Outputs] | None:
            try:
                return submit(frame, withdrawal=withdrawal)
            except UnfitFrameError as error:
                self.reader.leave_out(self._in_flight.pop().frame, error)
                return None

        return submitted

    def _collect(self, results: StreamedResults[Frame]) -> None:
        try:
            while (outputs := results.next()) is not None:
                if not self._took(self._in_flight.popleft(), outputs):
                    return
        except BaseException as error:
            if error is not results.error:
                raise
            self._events.put(_Ended("feeder", self._named("feeder", error)))
        self._note_lost()

    def _took(self, each: _InFlight, outputs: Outputs) -> bool:
        """Hand over a result; False once a sink takes no more."""
        self.ended_s = self._clock.now_s()
        self.latencies.add(self.ended_s - each.frame.read_s)
        self.results += 1
        self._note_lost()
        result = self._result(each, outputs)
        if self._sample is not None and each.inputs is not None:
            self._sample.add(each.frame.index, each.inputs)
        self._on_result(result)
        settle = each.frame.frame.settle
        if not self.deliveries:
            settle()
            return True
        settle = _last_of(len(self.deliveries), settle)
        return all(d.put(result, each.frame.read_s, settle) for d in self.deliveries)

    def _note_lost(self) -> None:
        for number in FrameSequence(self.reader.take_lost()):
            self._on_lost(number)

    def _result(self, each: _InFlight, outputs: Outputs) -> FrameResult:
        frame = each.frame.frame
        predictions = None if each.task is None else each.task.decode(outputs, each.placement)
        return FrameResult(
            index=each.frame.index,
            taken_s=frame.taken_s,
            outputs=outputs,
            name=frame.name,
            media_s=frame.media_s,
            predictions=predictions,
            image=each.image,
        )


def _last_of(calls: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `then` the last time it is called, from any threads."""
    left = iter(range(calls - 1, -1, -1))  # a built-in iterator's step is one step for all threads
    return lambda: None if next(left) else then()


def _caused(sentence: str, error: BaseException) -> RunFailedError:
    failed = RunFailedError(sentence)
    failed.__cause__ = error
    return failed


class _Closing:
    """A thread that should end; it hangs if what is `left` stays the same for too long."""

    def __init__(self, left: Callable[[], int], give_up: Callable[[], None], now_s: float) -> None:
        self._left = left
        self._give_up = give_up
        self._last, self._since_s = left(), now_s

    def hangs(self, now_s: float) -> bool:
        if (left := self._left()) != self._last:
            self._last, self._since_s = left, now_s
        if now_s < self._since_s + CLOSING_S:
            return False
        self._give_up()
        return True
