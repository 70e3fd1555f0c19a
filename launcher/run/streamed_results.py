"""The results of any iterable of frames, in its order: a stream in front of `Feed.submit`."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Generic, Protocol, TypeVar

from launcher.run.feed import Outputs, Withdrawal
from launcher.threads import in_thread

Given = TypeVar("Given")
Given_contra = TypeVar("Given_contra", contravariant=True)


class Submit(Protocol[Given_contra]):
    """Submits a frame, as `Feed.submit` does."""

    def __call__(self, frame: Given_contra, /, *, withdrawal: Withdrawal) -> Future[Outputs] | None:
        """Return the future of its result, None if the frame is left out.

        Raises `CancelledError` after the `withdrawal`.
        """
        ...


class StreamedResults(Generic[Given]):
    """Iterates `frames` in its own thread, from the first `next` on, and submits them.

    At most `most()` frames have been read whose results the consumer still uses. One thread takes
    results; any thread may `close`, also while another one waits for a result.
    """

    def __init__(
        self, submit: Submit[Given], frames: Iterable[Given], most: Callable[[], int]
    ) -> None:
        self._submit = submit
        self._frames = frames
        self._most = most
        self._room = threading.Condition()
        self._ahead = 0
        self._withdrawal = Withdrawal()
        self._waiting: deque[Future[Outputs]] = deque()
        self._done: queue.SimpleQueue[Future[Outputs] | None] = queue.SimpleQueue()
        self._submitted = self._taken = 0
        self._is_read = False
        self._reader: Future[None] | None = None
        """The thread that reads and submits; `next` raises its error after the last result."""

    def __iter__(self) -> Iterator[Outputs]:
        """Yield the results, each as soon as it has arrived, until the frames end.

        Errors of reading or submitting are raised after the results of the frames before. A
        consumer that stops iterating closes the stream.
        """
        try:
            while (outputs := self.next()) is not None:
                yield outputs
        finally:
            self.close()

    def next(self) -> Outputs | None:
        """Return the next result once it has arrived; None after the last, and once closed.

        Raises as iterating does.
        """
        if self._reader is None:
            self._reader = in_thread(self._read, "frames")
        else:
            with self._room:  # the consumer no longer uses the result before
                self._ahead -= 1
                self._room.notify()
        while not self._is_read or self._taken < self._submitted:
            future = self._done.get()
            with self._room:
                if self._withdrawal.is_withdrawn:
                    return None
                if future is None:
                    self._is_read = True
                    continue
                self._waiting.popleft()
            self._taken += 1
            return future.result()
        return self._reader.result()

    @property
    def error(self) -> BaseException | None:
        """The error of reading or submitting, once it has ended that."""
        reader = self._reader
        return reader.exception() if reader is not None and reader.done() else None

    def close(self) -> None:
        """Read no more frames, cancel those that are not sent yet, and let `next` return."""
        self._withdrawal.withdraw()
        with self._room:
            waiting = tuple(self._waiting)
            self._waiting.clear()
            self._room.notify()
        self._done.put(None)
        for future in waiting:
            future.cancel()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread that reads frames has ended, after `close`."""
        if self._reader is not None:
            wait([self._reader], timeout_s)

    def _read(self) -> None:
        try:
            frames = iter(self._frames)
            while self._has_room():
                try:
                    frame = next(frames)
                except StopIteration:
                    break
                future = self._submit(frame, withdrawal=self._withdrawal)
                if future is not None:
                    self._wait_for(future)
                    continue
                with self._room:
                    self._ahead -= 1
        finally:
            self._done.put(None)

    def _wait_for(self, future: Future[Outputs]) -> None:
        with self._room:
            if not self._withdrawal.is_withdrawn:
                self._waiting.append(future)
                self._submitted += 1
        if self._withdrawal.is_withdrawn:
            future.cancel()
        future.add_done_callback(self._done.put)  # in order, as the run's results are

    def _has_room(self) -> bool:
        with self._room:
            self._room.wait_for(lambda: self._withdrawal.is_withdrawn or self._ahead < self._most())
            self._ahead += 1
            return not self._withdrawal.is_withdrawn
