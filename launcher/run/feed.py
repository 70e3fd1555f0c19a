"""Frames that a program pushes into a run from its own threads, and a future for each result.

Every frame of a file, a source, a request or a program passes here, where its shapes and dtypes are
checked, once.

The run has its own thread. `submit` hands a frame over and wakes that thread; the frame's future
gets its outputs there, its cancellation keeps a frame from being sent, and the end of the run ends
all futures that are left. A frame is kept until its result has arrived, so that it can be sent
again after the loss of a node.

The run's thread is woken by a write to a descriptor, once for all frames that are pushed before it
reads them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from launcher.core.stream import ENDLESS
from launcher.errors import FullError, LauncherError, RunFailedError
from launcher.run.batches import Batches
from launcher.run.parts import Part
from launcher.run.runtime import Frame, RunResult
from launcher.run.tensors import as_tensors
from launcher.view.frame_trace import FrameTrace
from launcher.view.frames import FrameCounts, FrameFigures
from nodes.protocol.payload import Array

_log = logging.getLogger("csdf-edge")

Outputs = dict[str, Array]
"""One frame's results: output name → array."""

AHEAD = 4
"""How many frames are in flight beyond those that the nodes' channels can hold: they wait to be
sent, or their results are being handed over.
"""


class Withdrawal:
    """Ends a call of `Feed.submit` that waits for room, from any thread."""

    def __init__(self) -> None:
        self.is_withdrawn = False
        self._waits_at: threading.Condition | None = None

    def withdraw(self) -> None:
        """End the present wait and every later one: `submit` raises `CancelledError` there."""
        self.is_withdrawn = True
        if (changed := self._waits_at) is not None:
            with changed:
                changed.notify_all()

    def wait_at(self, changed: threading.Condition) -> None:
        """Note where the caller waits, before it reads `is_withdrawn` for the first time."""
        self._waits_at = changed


class Feed:
    """The frames of one network of a run (`launcher.run.runtime.PushedFrames`).

    The network is `part`. Where nodes compute several frames at once, the run sees batches of
    `batch` frames, and the program frames.
    """

    def __init__(
        self,
        part: Part,
        most: int | None = None,
        *,
        most_unsent: int | None = None,
        count: int = ENDLESS,
        batch: int = 1,
        batch_wait_s: float | None = None,
        timed: bool = False,
    ) -> None:
        """At most `most` frames are in flight; by default, as many as keep all nodes busy.

        Of these, at most `most_unsent` wait to be sent, if that is given. `count` frames come in
        all, or fewer. An incomplete batch is sent once a frame of it has waited for `batch_wait_s`,
        with None only at the end; how long they wait is kept if the run is `timed`.
        """
        self.part = part
        self.batch = batch
        self.inputs = tuple(map(part.common, part.inputs))
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._batches = Batches(batch, batch_wait_s, timed=timed) if batch > 1 else None
        self.count = count if self._batches is None else self._batches.most(count)
        self.most = AHEAD if most is None else most
        """How many frames may be in flight now."""
        self.ended: Future[None] = Future()
        """Receives the error with which the run has ended."""
        self.ended.set_running_or_notify_cancel()  # nobody can cancel it
        self.trouble: Callable[[], str] = lambda: ""
        """Explains why no results come now, in a sentence; empty while they may come."""
        self._takes = part.inputs
        self._follows_channels = most is None
        self._most_unsent = most_unsent
        self._changed = threading.Condition()
        self._frames: dict[int, tuple[Frame, Future[Outputs]]] = {}
        self._traces: dict[int, FrameTrace] = {}
        self._counts = FrameCounts()
        self._sent_s: dict[int, float] = {}
        """When each frame without a result was first sent, on the monotonic clock."""
        self._pushed = 0
        self._unsent = 0
        self._is_signalled = False
        self._is_ended = False
        self._is_given_up = False
        self._error: LauncherError | None = None
        self._given_up: LauncherError = RunFailedError("the run was abandoned")
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------ the program's threads

    def submit(
        self,
        frame: Mapping[str, ArrayLike],
        *,
        block: bool = True,
        timeout_s: float | None = None,
        copy: bool = False,
        trace: FrameTrace | None = None,
        withdrawal: Withdrawal | None = None,
    ) -> Future[Outputs]:
        """Push a frame, which `trace` follows; its future has the outputs once they have arrived.

        Without `copy`, the arrays must not be written to until then. While there is no room for the
        frame, this waits, for at most `timeout_s`; then, at once unless it is to `block`, and in
        the run's own thread, it raises `FullError`. Raises `UnfitFrameError` for a frame that
        the network does not take (`as_tensors`), the error with which the run has ended,
        `RunFailedError` if it was ended, and `CancelledError` after the `withdrawal`.
        """
        taken = as_tensors(frame, self._takes, copy=copy)
        if not self.part.is_alone:
            taken = {self.part.common(name): array for name, array in taken.items()}
        with self._changed:
            if not self._may_go_on():
                waits_s = timeout_s if block and not self.is_own_thread else 0.0
                self._wait_for_room(waits_s, withdrawal or Withdrawal())
            if self._error is not None:
                raise self._error
            if self._is_ended:
                raise RunFailedError("the cluster is closed")
            future: Future[Outputs] = Future()
            self._frames[self._pushed] = taken, future
            if trace is not None:
                self._traces[self._pushed] = trace
            self._pushed += 1
            self._unsent += 1
            self._signal()
        return future

    def _wait_for_room(self, waits_s: float | None, withdrawal: Withdrawal) -> None:
        withdrawal.wait_at(self._changed)
        try:
            may_go_on = self._changed.wait_for(
                lambda: withdrawal.is_withdrawn or self._may_go_on(), waits_s
            )
            if withdrawal.is_withdrawn:
                raise CancelledError
        except BaseException:
            self._changed.notify()  # this may have been woken in place of another
            raise
        if not may_go_on:
            trouble = self.trouble()
            raise FullError(
                "the cluster holds as many frames as it can take; try again later"
                + (f" ({trouble})" if trouble else "")
            )

    @property
    def is_own_thread(self) -> bool:
        """Whether this is called in the run's thread, which must not wait for a result."""
        return threading.current_thread() is self._thread

    def _may_go_on(self) -> bool:
        """Whether `submit` need not wait: there is room, or there never will be."""
        if self._is_ended or self._error is not None:
            return True
        is_ahead = self._most_unsent is not None and self._unsent >= self._most_unsent
        return len(self._frames) < self.most and not is_ahead

    def figures(self) -> FrameFigures:
        """The counts so far."""
        with self._changed:
            return self._counts.figures(len(self._frames), time.monotonic())

    def end(self) -> None:
        """No more frames come; the run ends once all results have arrived."""
        self._close(given_up=False)

    def give_up(self, error: LauncherError | None = None) -> None:
        """End the run at once; frames without a result end with `error`, if that is given."""
        self._given_up = error or self._given_up
        self._close(given_up=True)

    def _close(self, *, given_up: bool) -> None:
        with self._changed:
            self._is_ended = True
            self._is_given_up |= given_up
            self._changed.notify_all()
            if self._error is None:
                self._signal()

    def _signal(self) -> None:
        """Wake the run's thread, unless it was woken and has not read the frames yet."""
        if not self._is_signalled:
            self._is_signalled = True
            os.eventfd_write(self.descriptor, 1)

    # ------------------------------------------------------------ the run's thread

    @property
    def deadline_s(self) -> float | None:
        """See `PushedFrames.deadline_s`."""
        return None if self._batches is None else self._batches.deadline_s

    def hold(self, frames: int) -> None:
        """See `PushedFrames.hold`; one more batch is formed than the channels hold."""
        if self._batches is not None:
            frames = (frames + 1) * self.batch
        with self._changed:
            if self._follows_channels and frames + AHEAD > self.most:
                self.most = frames + AHEAD
                self._changed.notify_all()

    def seen(self) -> tuple[int, bool]:
        """See `PushedFrames.seen`."""
        with self._changed:
            self._thread = threading.current_thread()
            if self._is_signalled:
                self._is_signalled = False
                os.eventfd_read(self.descriptor)
            if self._is_given_up:
                raise self._given_up
            pushed, is_ended = self._pushed, self._is_ended
        if self._batches is not None:
            pushed = self._batches.seen(pushed, time.monotonic(), is_ended=is_ended)
        return pushed, is_ended

    def claim(self, index: int) -> bool:
        """See `PushedFrames.claim`: False if its future, or that of all its frames, was
        cancelled."""
        if self._batches is not None:
            return self._batches.claim(index, self._claim)
        return self._claim(index)

    def _claim(self, number: int) -> bool:
        _, future = self._frames[number]
        is_wanted, now_s = future.set_running_or_notify_cancel(), time.monotonic()
        with self._changed:
            self._unsent -= 1
            if is_wanted:
                self._sent_s[number] = now_s
                self._counts.sent(now_s)
            else:
                del self._frames[number]
                self._traces.pop(number, None)
            if not is_wanted or self._most_unsent is not None:
                self._changed.notify()
        return is_wanted

    def __getitem__(self, index: int) -> Frame:
        if self._batches is not None:
            frames = [self._frames[number][0] for number in self._batches.frames(index)]
            return self._batches.stacked(frames)
        return self._frames[index][0]

    def traces(self, index: int) -> Sequence[FrameTrace]:
        """See `PushedFrames.traces`."""
        numbers = (index,) if self._batches is None else self._batches.frames(index)
        return [self._traces[number] for number in numbers if number in self._traces]

    def took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """See `PushedFrames.took`; the futures of its frames are done."""
        model = self.part.model
        own = self.part.own(outputs, model.network.outputs)
        if self._batches is None:
            self._took(index, {**own, **model.constant_outputs})
            return
        for number, result in self._batches.apart(index, own):
            self._took(number, {**result, **model.constant_outputs})

    def _took(self, number: int, outputs: Outputs) -> None:
        now_s = time.monotonic()
        with self._changed:
            _, future = self._frames.pop(number)
            self._traces.pop(number, None)
            self._counts.took(self._sent_s.pop(number), now_s)
            self._changed.notify()
        _settle(future, lambda: future.set_result(outputs))

    def in_frames(self, result: RunResult) -> RunResult:
        """Return the measurements of a run of this feed alone with the times of frames."""
        return result if self._batches is None else self._batches.in_frames(result)

    def finish(self, error: LauncherError) -> None:
        """End the run: frames that have no result end with `error`, and so does `submit`."""
        with self._changed:
            self._error = error
            left = list(self._frames.values())
            self._frames.clear()
            self._changed.notify_all()
        for _, future in left:
            _settle(future, partial(future.set_exception, error))
        _settle(self.ended, partial(self.ended.set_exception, error))

    def close(self) -> None:
        """Close the descriptor, after `finish`."""
        os.close(self.descriptor)


def _settle(future: Future[Any], settle: Callable[[], None]) -> None:
    """Call `settle`, which lets a future end, unless it was cancelled, which may happen any time.

    Nothing that its callbacks raise, `SystemExit` included, reaches the run.
    """
    try:
        settle()
    except InvalidStateError:
        if future.cancelled():
            future.set_running_or_notify_cancel()
    except BaseException:  # noqa: BLE001
        _log.exception("a callback of a frame's future failed")
