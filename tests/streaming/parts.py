"""Sources, sinks and clocks that do what a test has written down for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np

from launcher.clock import StreamClock
from launcher.config.ends.sink import FrameResult, ResultRefusedError, SinkLostError
from launcher.config.ends.source import FrameRefusedError, SourceFrame, SourceLostError
from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import BadInputError
from launcher.sinks.filtering import ResultFilter
from launcher.streaming.delivery import Delivery
from launcher.streaming.reading import Reader

WAIT_S = 20.0

Step = Literal["frame", "lost", "refused", "broken"]
Answer = Literal["taken", "lost", "refused"]
Array = np.ndarray[Any, Any]


class SimulatedClock(StreamClock):
    """Goes on only while somebody waits, which takes no time."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.on_wait: Callable[[], None] = lambda: None
        self._now_s = 0.0
        self._lock = threading.Lock()

    def now_s(self) -> float:
        with self._lock:
            return self._now_s

    def pass_s(self, seconds: float) -> None:
        with self._lock:
            self._now_s += seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        with self._lock:
            self._now_s += seconds
            self.waits_s.append(seconds)
        self.on_wait()
        return event.is_set()


def image(number: int) -> Array:
    """An image that shows its number."""
    return np.full((2, 3, 3), number % 256, np.uint8)


class ScriptedSource:
    """Gives `x`, the number of each frame, by a script that continues after a loss."""

    description = "the test's source"

    def __init__(self, steps: Sequence[Step], *, is_live: bool = False) -> None:
        self.is_live = is_live
        self.closed = threading.Event()
        self._steps = iter(steps)
        self._given = 0

    def frames(self) -> Iterator[SourceFrame]:
        for step in self._steps:
            if self.closed.is_set():
                return
            if step == "lost":
                raise SourceLostError("the test's source: unplugged")
            if step == "refused":
                self._given += 1
                raise FrameRefusedError("the test's source: not an image")
            if step == "broken":
                raise BadInputError("the test's source: broken behind this place")
            yield SourceFrame({"x": np.array([self._given])}, float(self._given))
            self._given += 1

    def close(self) -> None:
        self.closed.set()


class EndlessSource(ScriptedSource):
    """Gives a frame whenever `next` is released, until it is closed.

    `asked` is released when a frame is wanted: those before have been put into the queue.
    """

    def __init__(self, *, is_live: bool = True) -> None:
        super().__init__((), is_live=is_live)
        self.next = threading.Semaphore(0)
        self.asked = threading.Semaphore(0)

    def wait_until_put(self, frames: int) -> None:
        """Wait until that many frames, none before, have been put into the queue."""
        for _ in range(frames + 1):
            assert self.asked.acquire(timeout=WAIT_S)

    def frames(self) -> Iterator[SourceFrame]:
        self.asked.release()
        while self.next.acquire() and not self.closed.is_set():
            yield SourceFrame({"x": np.array([self._given])}, float(self._given))
            self._given += 1
            self.asked.release()

    def close(self) -> None:
        super().close()
        self.next.release()


class ScriptedSink:
    """Answers by a script, and takes everything after its end; keeps what it has taken."""

    description = "the test's sink"
    needs_image = False

    def __init__(self, answers: Sequence[Answer] = ()) -> None:
        self.taken: list[FrameResult] = []
        self.refused: list[int] = []
        self.closed = 0
        self.threads: set[int] = set()
        self._answers = iter(answers)

    @property
    def indices(self) -> list[int]:
        return [result.index for result in self.taken]

    def write(self, result: FrameResult) -> None:
        self.threads.add(threading.get_ident())
        answer = next(self._answers, "taken")
        if answer == "lost":
            raise SinkLostError("the test's sink: no connection")
        if answer == "refused":
            self.refused.append(result.index)
            raise ResultRefusedError("the test's sink: too large")
        self.taken.append(result)

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed += 1


class GatedSink(ScriptedSink):
    """Takes a result only once `gate` is released for it; `began` counts those it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)

    def write(self, result: FrameResult) -> None:
        self.began.release()
        assert self.gate.acquire(timeout=WAIT_S)
        super().write(result)


def result(index: int) -> FrameResult:
    return FrameResult(index, float(index), {})


def doubled(inputs: Mapping[str, Array], **_: object) -> Future[dict[str, Array]]:
    """A cluster that answers at once."""
    done: Future[dict[str, Array]] = Future()
    done.set_result({"y": 2 * inputs["x"]})
    return done


def reader(
    source: ScriptedSource,
    overload: Overload = "block",
    places: int = 1000,
    *,
    reconnect: ReconnectConfig | None = None,
    most: int | None = None,
    clock: StreamClock | None = None,
    say: Callable[[str], None] = lambda _: None,
    period_s: float = 0.0,
) -> Reader:
    return Reader(
        source,
        reconnect or ReconnectConfig(),
        say,
        on_overload=overload,
        places=places,
        most=most,
        period_s=period_s,
        clock=clock or SimulatedClock(),
    )


def delivery(
    sink: ScriptedSink,
    overload: Overload = "block",
    places: int = 1000,
    *,
    reconnect: ReconnectConfig | None = None,
    clock: StreamClock | None = None,
    say: Callable[[str], None] = lambda _: None,
    wanted: ResultFilter | None = None,
) -> Delivery:
    policy = reconnect or ReconnectConfig()
    clock = clock or SimulatedClock()
    return Delivery(
        sink, policy, say, wanted=wanted, on_overload=overload, places=places, clock=clock
    )
