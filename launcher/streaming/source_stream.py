"""Streams a source's frames through a cluster, and the results to sinks, in order.

    source ─ reader ─► queue ─ feeder ─► cluster ─ collector ─► queue ─ delivery ─► sink

Each of the four has a thread (a delivery for each sink), and passes its item on before it takes
more. A frame is in flight from when the feeder takes it off the queue until the collector has put
its result into the queues of all sinks. There are at most `in_flight` of them, and the feeder takes
a frame only when there is a place: so a sink that blocks holds up the collector, then the feeder,
and then frames wait or are dropped in the one queue where that is counted. Memory is bounded by the
queues and `in_flight`.

The thread that calls `run` waits for the others. All events arrive in one queue (`SimpleQueue`,
whose `put` a signal handler may call).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from typing import TypeAlias

from launcher.clock import StreamClock
from launcher.config.ends.sink import FrameResult
from launcher.errors import BadInputError, LauncherError, RunFailedError
from launcher.inputs.placement import ImagePlacement
from launcher.run.runtime import Array
from launcher.streaming.delivery import Delivery
from launcher.streaming.reading import NumberedFrame, Reader
from launcher.tasks.base import Task
from launcher.view.frames import FINE_BOUNDS_S, Latencies

Outputs: TypeAlias = dict[str, Array]

Submit: TypeAlias = Callable[[Mapping[str, Array]], Future[Outputs]]
"""Computes a frame's outputs; raises `LauncherError` if the inputs do not fit. Futures end when the
cluster does."""

STOPPING_S = 10.0
"""How long results in flight may take when the user stops a stream."""

CLOSING_S = 10.0
"""How long a sink may take for its next result, or any end to close, once no results come."""

JOIN_S = 5.0
"""How long threads may take to end."""

TICK_S = 0.5
"""How often progress is shown."""


@dataclass(frozen=True, slots=True, eq=False)
class _InFlight:
    frame: NumberedFrame
    image: Array | None
    placement: ImagePlacement | None
    outputs: Future[Outputs]


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
        task: Task | None = None,
        on_result: Callable[[FrameResult], None] | None = None,
        clock: StreamClock | None = None,
    ) -> None:
        """`task` fits images and decodes; `on_result` is called for each result, in a thread."""
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
        self._task = task
        self._on_result = on_result
        self._clock = clock or StreamClock()
        self._keeps_image = any(delivery.needs_image for delivery in deliveries)
        self._events: queue.SimpleQueue[_Ended | _Stop] = queue.SimpleQueue()
        self._in_flight: queue.SimpleQueue[_InFlight | None] = queue.SimpleQueue()
        self._abandoned = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def __enter__(self) -> SourceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandon()
        if not self._threads:  # nobody else closes them
            for delivery in self.deliveries:
                delivery.run()
        for thread in self._threads.values():
            thread.join(JOIN_S)

    def stop(self) -> None:
        """Read no more frames, and end once results in flight are delivered, within a bound.

        May be called from any thread and from a signal handler.
        """
        self._events.put(_Stop())

    def cluster_ended(self, ended: Future[None]) -> None:
        """End the stream if the cluster has ended (`LiveCluster.ended`) before it."""
        self._events.put(_Ended("cluster", ended.exception()))

    def run(self, submit: Submit, in_flight: int, show: Callable[[], None] | None = None) -> None:
        """Stream until the source ends, or `stop`; `show` is called from time to time.

        Raises the first error of any part: `BadInputError` only if there was no result. If the
        source ends by an error, or a frame does not fit, frames read before are delivered first.
        """
        self._places = threading.Semaphore(in_flight)
        self._start("reader", self.reader.run)
        self._start("feeder", lambda: self._feed(submit))
        self._start("collector", self._collect)
        for number, delivery in enumerate(self.deliveries):
            self._start(f"sink {number}", delivery.run)
        try:
            self._supervise(show or (lambda: None))
        finally:
            self._abandon()

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
                case _Ended(_, BaseException() as error):
                    raise self._after_results(error)
                case _Ended("collector"):
                    running.discard("collector")
                    closing = self._close(now_s)
                case _Ended(thread):
                    running.discard(thread)
                case _Stop() if not self.is_stopped:
                    self.is_stopped = True
                    stop_by_s = now_s + STOPPING_S
                    self.reader.stop()
            for name, end in closing.items():
                if name in running and end.hangs(now_s):
                    running.discard(name)
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
        self._abandoned.set()
        self.reader.stop()
        self.reader.frames.abandon()
        for delivery in self.deliveries:
            delivery.abandon()
        if self._threads:
            self._places.release()

    # ------------------------------------------------------------ the other threads

    def _start(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except BaseException as failed:  # noqa: BLE001 - a plugin's, which must reach the user
                error = self._named(name, failed)
            self._events.put(_Ended(name, error))

        thread = threading.Thread(target=run, name=f"csdf-edge {name}", daemon=True)
        self._threads[name] = thread
        thread.start()

    def _named(self, thread: str, error: BaseException) -> BaseException:
        """Return an error of a thread as one that names its origin."""
        subject = "the stream"
        if thread == "reader":
            subject = self.reader.source.description
        elif thread.startswith("sink "):
            subject = self.deliveries[int(thread.removeprefix("sink "))].description
            if isinstance(error, BrokenPipeError):  # standard output no longer has a reader
                return error
        if isinstance(error, LauncherError):
            return error
        if isinstance(error, OSError) and error.strerror:
            return _caused(f"{subject}: {error.strerror}", error)
        return _caused(f"{subject}: {type(error).__name__}: {error}", error)

    def _feed(self, submit: Submit) -> None:
        try:
            while self._has_place() and (frame := self.reader.frames.take()) is not None:
                if self.began_s is None:
                    self.began_s = frame.read_s
                self._in_flight.put(self._submitted(frame, submit))
        finally:
            self._in_flight.put(None)

    def _has_place(self) -> bool:
        self._places.acquire()
        return not self._abandoned.is_set()

    def _submitted(self, frame: NumberedFrame, submit: Submit) -> _InFlight:
        data = frame.frame.data
        if isinstance(data, Mapping):
            return _InFlight(frame, None, None, submit(data))
        if self._task is None:
            raise BadInputError(
                f"{self.reader.source.description} gives images, which only a network with one "
                "input of an image's shape takes"
            )
        inputs, placement = self._task.prepare(data)
        return _InFlight(frame, data if self._keeps_image else None, placement, submit(inputs))

    def _collect(self) -> None:
        while (each := self._in_flight.get()) is not None:
            try:
                outputs = each.outputs.result()
            except CancelledError:
                if self._abandoned.is_set():
                    return
                raise
            self.ended_s = self._clock.now_s()
            self.latencies.add(self.ended_s - each.frame.read_s)
            self.results += 1
            result = self._result(each, outputs)
            if self._on_result is not None:
                self._on_result(result)
            if not all(d.put(result, each.frame.read_s) for d in self.deliveries):
                return
            self._places.release()

    def _result(self, each: _InFlight, outputs: Outputs) -> FrameResult:
        frame = each.frame.frame
        predictions = None if self._task is None else self._task.decode(outputs, each.placement)
        return FrameResult(
            index=each.frame.index,
            taken_s=frame.taken_s,
            outputs=outputs,
            name=frame.name,
            media_s=frame.media_s,
            predictions=predictions,
            image=each.image,
        )


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
