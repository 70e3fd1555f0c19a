"""The results of any iterable of frames, in its order: a stream in front of `Feed.submit`."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

from launcher.run.feed import Outputs

Given = TypeVar("Given")


class StreamedResults(Generic[Given]):
    """Iterates `frames` in a thread of its own, and submits them.

    At most `most()` frames have been read whose results the consumer has not done with.
    """

    def __init__(
        self,
        submit: Callable[[Given], Future[Outputs]],
        frames: Iterable[Given],
        most: Callable[[], int],
    ) -> None:
        self._submit = submit
        self._frames = frames
        self._most = most
        self._room = threading.Condition()
        self._ahead = 0
        self._is_over = False
        self._waiting: deque[Future[Outputs]] = deque()
        self._done: queue.SimpleQueue[Future[Outputs] | None] = queue.SimpleQueue()
        self._submitted = 0
        self._error: BaseException | None = None
        threading.Thread(target=self._read, name="csdf-edge frames", daemon=True).start()

    def __iter__(self) -> Iterator[Outputs]:
        """Yield the results, each as soon as it is there, until the frames end.

        What reading or submitting them raised is raised after the results of the frames before.
        """
        try:
            yield from self._results()
        finally:
            self._stop()

    def _results(self) -> Iterator[Outputs]:
        taken, is_read = 0, False
        while not is_read or taken < self._submitted:
            future = self._done.get()
            if future is None:
                is_read = True
                continue
            self._waiting.popleft()
            taken += 1
            yield future.result()
            with self._room:
                self._ahead -= 1
                self._room.notify()
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        try:
            frames = iter(self._frames)
            while self._has_room():
                try:
                    frame = next(frames)
                except StopIteration:
                    break
                future = self._submit(frame)
                self._waiting.append(future)
                self._submitted += 1
                future.add_done_callback(self._done.put)  # in order, as the run's results are
        except BaseException as error:  # noqa: BLE001 - it is the consumer's to see, whatever it is
            self._error = error
        finally:
            self._done.put(None)

    def _has_room(self) -> bool:
        with self._room:
            self._room.wait_for(lambda: self._is_over or self._ahead < self._most())
            self._ahead += 1
            return not self._is_over

    def _stop(self) -> None:
        """The consumer is gone: no more frames are read, and those not yet sent are cancelled."""
        with self._room:
            self._is_over = True
            self._room.notify()
        while self._waiting:
            self._waiting.popleft().cancel()
