"""Offers frames at fixed times, as a camera does, and drops some if they are not taken in time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from functools import partial
from types import TracebackType

from launcher.clock import StreamClock
from launcher.config.pace import Pace
from launcher.streaming.overload import OverloadQueue


class PacedNumbers:
    """The numbers 0, 1, … below `count`, offered at a `pace`; iterate to take those not dropped.

    A thread offers them, the first one at once, from the moment at which the context is entered.
    """

    def __init__(self, count: int, pace: Pace) -> None:
        self.dropped: deque[int] = deque()
        """The numbers that were dropped, in order; the caller that notes one removes it."""
        self._queue: OverloadQueue[int] = OverloadQueue(
            pace.queue_frames, pace.on_overload, self.dropped.append
        )
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._offer = partial(offer, self._queue, count, 1 / pace.rate, self._is_over)
        self._thread = threading.Thread(target=self._run, name="csdf-edge pace", daemon=True)

    def __enter__(self) -> PacedNumbers:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._queue.abandon()
        self._thread.join()

    def __iter__(self) -> Iterator[int]:
        while (number := self._queue.take()) is not None:
            yield number
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._offer()
        except BaseException as error:  # noqa: BLE001 - raised behind the numbers before
            self._error = error
            self._queue.close()


def offer(
    numbers: OverloadQueue[int],
    count: int,
    period_s: float,
    is_over: threading.Event,
    clock: StreamClock | None = None,
) -> None:
    """Put 0, 1, … below `count` into a queue, one each `period_s`, and close it.

    If this has to wait for a place in the queue, the source's clock stands still meanwhile. Returns
    early once `is_over` is set or the queue is closed.
    """
    clock = clock or StreamClock()
    due_s = clock.now_s()
    for number in range(count):
        early_s = due_s - clock.now_s()
        if early_s > 0 and clock.wait(is_over, early_s):
            return
        if not numbers.put(number, timeout_s=0):
            if not numbers.put(number):
                return
            due_s = clock.now_s()
        due_s += period_s
    numbers.close()
