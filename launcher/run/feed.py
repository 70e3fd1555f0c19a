"""Frames that a program pushes into a run from its own threads, and a future for each result.

The run has a thread of its own. `submit` hands a frame over and wakes that thread; the frame's
future gets its outputs there, its cancellation keeps a frame from being sent, and the end of the
run ends all futures that are left. A frame is kept until its result is there, so that it can be
sent again after the loss of a node.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future

from launcher.errors import FullError, LauncherError, RunFailedError
from launcher.run.runtime import Array, Frame

Outputs = dict[str, Array]
"""One frame's results: output name → array."""


class Feed:
    """The frames of one run (`launcher.run.runtime.PushedFrames`), at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.ended: Future[None] = Future()
        """Gets the error with which the run has ended."""
        self.ended.set_running_or_notify_cancel()  # nobody can cancel it
        self._places = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._frames: dict[int, tuple[Frame, Future[Outputs]]] = {}
        self._pushed = 0
        self._is_ended = False
        self._is_given_up = False
        self._error: LauncherError | None = None

    # ------------------------------------------------------------ the program's threads

    def submit(
        self, frame: Frame, *, block: bool = True, timeout_s: float | None = None
    ) -> Future[Outputs]:
        """Push a frame; its future has the outputs once they are there.

        While `most` frames have no result, this waits for one of them, for `timeout_s` at the
        longest; then, and at once unless it is to `block`, it raises `FullError`. Raises what the
        run has ended with, or `RunFailedError` if it was ended.
        """
        self._check_open()
        if not self._places.acquire(blocking=block, timeout=timeout_s if block else None):
            raise FullError("the cluster has as many frames as it takes; try again later")
        future: Future[Outputs] = Future()
        with self._lock:
            try:
                self._check_open()
            except LauncherError:
                self._places.release()
                raise
            self._frames[self._pushed] = frame, future
            self._pushed += 1
            os.eventfd_write(self.descriptor, 1)
        return future

    def end(self) -> None:
        """No more frames come; the run ends once all results are there."""
        self._close(given_up=False)

    def give_up(self) -> None:
        """The run ends at once; frames without a result have none."""
        self._close(given_up=True)

    def _close(self, *, given_up: bool) -> None:
        with self._lock:
            self._is_ended = True
            self._is_given_up |= given_up
            if self._error is None:
                os.eventfd_write(self.descriptor, 1)

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_ended:
            raise RunFailedError("the cluster is closed")

    # ------------------------------------------------------------ the run's thread

    def seen(self) -> tuple[int, bool]:
        """See `PushedFrames.seen`."""
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)
            if self._is_given_up:
                raise RunFailedError("the run was given up")
            return self._pushed, self._is_ended

    def claim(self, index: int) -> bool:
        """See `PushedFrames.claim`: False if its future was cancelled."""
        _, future = self._frames[index]
        if future.set_running_or_notify_cancel():
            return True
        self._forget(index)
        return False

    def __getitem__(self, index: int) -> Frame:
        return self._frames[index][0]

    def took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """A frame's outputs are there."""
        _, future = self._frames[index]
        self._forget(index)
        future.set_result(dict(outputs))

    def _forget(self, index: int) -> None:
        with self._lock:
            del self._frames[index]
        self._places.release()

    def finish(self, error: LauncherError) -> None:
        """The run is over: frames that have no result end with `error`, and so does `submit`."""
        with self._lock:
            self._error = error
            left = list(self._frames.values())
            self._frames.clear()
        for _, future in left:
            self._places.release()
            if future.cancelled():
                future.set_running_or_notify_cancel()
            elif not future.done():
                future.set_exception(error)
        self.ended.set_exception(error)

    def close(self) -> None:
        """Close the descriptor, after `finish`."""
        os.close(self.descriptor)
