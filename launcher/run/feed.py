"""Frames that a program pushes into a run from its own threads, and a future for each result.

The run has a thread of its own. `submit` hands a frame over and wakes that thread; the frame's
future gets its outputs there, its cancellation keeps a frame from being sent, and the end of the
run ends all futures that are left. A frame is kept until its result is there, so that it can be
sent again after the loss of a node.

The run's thread is woken by a write to a descriptor, once for all frames that are pushed before it
looks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future

from launcher.core.intake import ENDLESS
from launcher.errors import FullError, LauncherError, RunFailedError
from launcher.run.runtime import Array, Frame
from launcher.view.frame_trace import FrameTrace
from launcher.view.frames import FrameCounts, FrameFigures

Outputs = dict[str, Array]
"""One frame's results: output name → array."""

AHEAD = 4
"""How many frames are under way beyond those that the nodes' channels can hold: they wait to be
sent, or their results are being handed over."""


class Feed:
    """The frames of one run (`launcher.run.runtime.PushedFrames`)."""

    deadline_s = None

    def __init__(
        self, most: int | None = None, *, most_unsent: int | None = None, count: int = ENDLESS
    ) -> None:
        """At most `most` frames are under way; by default, as many as keep all nodes busy.

        Of these, at most `most_unsent` wait to be sent, if that is given. `count` frames come in
        all, or fewer.
        """
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.count = count
        self.most = AHEAD if most is None else most
        """How many frames may be under way now."""
        self.ended: Future[None] = Future()
        """Gets the error with which the run has ended."""
        self.ended.set_running_or_notify_cancel()  # nobody can cancel it
        self._follows_channels = most is None
        self._most_unsent = most_unsent
        self._changed = threading.Condition()
        self._frames: dict[int, tuple[Frame, Future[Outputs]]] = {}
        self._traces: dict[int, FrameTrace] = {}
        self._counts = FrameCounts()
        self._sent_s: dict[int, float] = {}
        """When the frames were first sent whose results are not there, on the monotonic clock."""
        self._pushed = 0
        self._unsent = 0
        self._is_signalled = False
        self._is_ended = False
        self._is_given_up = False
        self._error: LauncherError | None = None

    # ------------------------------------------------------------ the program's threads

    def submit(
        self,
        frame: Frame,
        *,
        block: bool = True,
        timeout_s: float | None = None,
        trace: FrameTrace | None = None,
    ) -> Future[Outputs]:
        """Push a frame, which `trace` follows; its future has the outputs once they are there.

        While there is no room for it, this waits, for `timeout_s` at the longest; then, and at once
        unless it is to `block`, it raises `FullError`. Raises what the run has ended with, or
        `RunFailedError` if it was ended.
        """
        with self._changed:
            waits_s = timeout_s if block else 0.0
            if not self._may_go_on() and not self._changed.wait_for(self._may_go_on, waits_s):
                raise FullError("the cluster has as many frames as it takes; try again later")
            if self._error is not None:
                raise self._error
            if self._is_ended:
                raise RunFailedError("the cluster is closed")
            future: Future[Outputs] = Future()
            self._frames[self._pushed] = frame, future
            if trace is not None:
                self._traces[self._pushed] = trace
            self._pushed += 1
            self._unsent += 1
            self._signal()
        return future

    def _may_go_on(self) -> bool:
        """Whether `submit` need not wait: there is room, or there never will be."""
        if self._is_ended or self._error is not None:
            return True
        is_ahead = self._most_unsent is not None and self._unsent >= self._most_unsent
        return len(self._frames) < self.most and not is_ahead

    def figures(self) -> FrameFigures:
        """What was counted so far."""
        with self._changed:
            return self._counts.figures(len(self._frames), time.monotonic())

    def end(self) -> None:
        """No more frames come; the run ends once all results are there."""
        self._close(given_up=False)

    def give_up(self) -> None:
        """The run ends at once; frames without a result have none."""
        self._close(given_up=True)

    def _close(self, *, given_up: bool) -> None:
        with self._changed:
            self._is_ended = True
            self._is_given_up |= given_up
            self._changed.notify_all()
            if self._error is None:
                self._signal()

    def _signal(self) -> None:
        """Wake the run's thread, unless it was woken and has not looked yet."""
        if not self._is_signalled:
            self._is_signalled = True
            os.eventfd_write(self.descriptor, 1)

    # ------------------------------------------------------------ the run's thread

    def hold(self, frames: int) -> None:
        """See `PushedFrames.hold`."""
        with self._changed:
            if self._follows_channels and frames + AHEAD > self.most:
                self.most = frames + AHEAD
                self._changed.notify_all()

    def seen(self) -> tuple[int, bool]:
        """See `PushedFrames.seen`."""
        with self._changed:
            if self._is_signalled:
                self._is_signalled = False
                os.eventfd_read(self.descriptor)
            if self._is_given_up:
                raise RunFailedError("the run was given up")
            return self._pushed, self._is_ended

    def claim(self, index: int) -> bool:
        """See `PushedFrames.claim`: False if its future was cancelled."""
        _, future = self._frames[index]
        is_wanted, now_s = future.set_running_or_notify_cancel(), time.monotonic()
        with self._changed:
            self._unsent -= 1
            if is_wanted:
                self._sent_s[index] = now_s
                self._counts.sent(now_s)
            else:
                del self._frames[index]
                self._traces.pop(index, None)
            if not is_wanted or self._most_unsent is not None:
                self._changed.notify()
        return is_wanted

    def __getitem__(self, index: int) -> Frame:
        return self._frames[index][0]

    def traces(self, index: int) -> tuple[FrameTrace, ...]:
        """See `PushedFrames.traces`."""
        trace = self._traces.get(index)
        return () if trace is None else (trace,)

    def took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """A frame's outputs are there."""
        now_s = time.monotonic()
        with self._changed:
            _, future = self._frames.pop(index)
            self._traces.pop(index, None)
            self._counts.took(self._sent_s.pop(index), now_s)
            self._changed.notify()
        future.set_result(dict(outputs))

    def finish(self, error: LauncherError) -> None:
        """The run is over: frames that have no result end with `error`, and so does `submit`."""
        with self._changed:
            self._error = error
            left = list(self._frames.values())
            self._frames.clear()
            self._changed.notify_all()
        for _, future in left:
            if future.cancelled():
                future.set_running_or_notify_cancel()
            elif not future.done():
                future.set_exception(error)
        self.ended.set_exception(error)

    def close(self) -> None:
        """Close the descriptor, after `finish`."""
        os.close(self.descriptor)
