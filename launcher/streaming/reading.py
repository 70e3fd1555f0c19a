"""Reads a source in a thread: numbers its frames, queues them, and connects again after a loss.

A source may have its own pace, as a camera does: a frame is then offered each `period_s`. If
the queue blocks, the source's clock stands still meanwhile. A live source is not slowed down: of
its frames those that come too early are dropped.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from launcher.clock import StreamClock
from launcher.config.ends.source import FrameRefusedError, Source, SourceFrame, SourceLostError
from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.progress import Say
from launcher.results.gaps import GapLog, Gaps
from launcher.results.journal.ranges import FrameRanges
from launcher.streaming.overload import OverloadQueue

MOST_REPORTED = 10
"""How many refused frames, and results of a sink, have their own message; all are counted."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberedFrame:
    """A frame, its number from 0 on, and when it was read, in seconds of the stream's clock."""

    index: int
    frame: SourceFrame
    read_s: float


class Reader:
    """Puts a source's frames into `frames`, at most `most` of them, until the source ends."""

    def __init__(
        self,
        source: Source,
        reconnect: ReconnectConfig,
        say: Say,
        *,
        on_overload: Overload = "block",
        places: int = 8,
        most: int | None = None,
        first: int = 0,
        settled: FrameRanges = FrameRanges(),  # noqa: B008 - nobody changes it
        period_s: float = 0.0,
        clock: StreamClock | None = None,
    ) -> None:
        """Numbers begin with `first`, and those of `most` frames end before `most`.

        Frames with the numbers of those that are `settled` are read and left out.
        """
        self.source = source
        self.frames: OverloadQueue[NumberedFrame] = OverloadQueue(places, on_overload, self._drop)
        self._reconnect = reconnect
        self._say = say
        self._most = most
        self._clock = clock or StreamClock()
        self.unread = 0
        """How many frames the source could not give; they have numbers."""
        self.unfit = 0
        """How many frames were given and do not fit the network."""
        self._lost = FrameRanges()
        self._noting = threading.Lock()
        self._period_s = period_s
        self._due_s: float | None = None
        self._gaps = GapLog()
        self._first = self._next = first
        self._settled = settled
        self._stopped = threading.Event()

    @property
    def refused(self) -> int:
        """How many frames could not be used."""
        return self.unread + self.unfit

    @property
    def gaps(self) -> Gaps:
        """The times for which the source was lost, so far."""
        return self._gaps.gaps

    def run(self) -> None:
        """Read until the source ends, `most` frames were read, or `stop`; then close both ends.

        Raises `BadInputError` if the source can never give frames, and if it too often failed
        before its first frame; `RunFailedError` if it was lost too often in a row later.
        """
        failures = 0
        try:
            while not self._stopped.is_set():
                begin = self._next
                try:
                    self._read_on()
                    return
                except FrameRefusedError as error:
                    self._refuse(error)
                except SourceLostError as error:
                    if not self._stopped.is_set():
                        failures = failures + 1 if self._next == begin else 1
                        self._wait_after(error, failures)
        finally:
            self._gaps.end(self._clock.now_s())
            self.frames.close()
            self.source.close()

    def stop(self) -> None:
        """Let `run` end; what is queued stays there. May be called from any thread."""
        self._stopped.set()
        self.frames.close()
        self.source.close()

    def take_lost(self) -> FrameRanges:
        """Return the frames that were dropped or refused since the last call."""
        with self._noting:
            lost, self._lost = self._lost, FrameRanges()
        return lost

    def leave_out(self, frame: NumberedFrame, error: BadInputError) -> None:
        """Count a frame that was taken off the queue and does not fit the network.

        It is called in the thread that takes frames.
        """
        self.unfit += 1
        name = frame.frame.name
        self._report(frame.index, f"{name}: {error}" if name else str(error))
        self._drop(frame)

    def _report(self, number: int, problem: str) -> None:
        if self.refused <= MOST_REPORTED:
            self._say(f"frame {number} is left out: {problem}")

    def _drop(self, frame: NumberedFrame) -> None:
        self._note_lost(frame.index)
        frame.frame.settle()

    def _note_lost(self, number: int) -> None:
        with self._noting:
            self._lost.add(number)

    def _read_on(self) -> None:
        for frame in self.source.frames():
            if (seconds := self._gaps.end(self._clock.now_s())) is not None:
                self._say(f"{self.source.description}: frames arrive again, after {seconds:.1f} s")
            number = self._next if frame.index is None else frame.index
            self._next = number + 1
            offer = self._offer_in_time if self._period_s else self._offer
            if number in self._settled:
                frame.settle()
            elif not offer(number, frame):
                return
            if self._next == self._most:
                return

    def _offer(self, number: int, frame: SourceFrame, timeout_s: float | None = None) -> bool:
        numbered = NumberedFrame(number, frame, self._clock.now_s())
        return self.frames.put(numbered, timeout_s=timeout_s)

    def _offer_in_time(self, number: int, frame: SourceFrame) -> bool:
        now_s = self._clock.now_s()
        due_s = now_s if self._due_s is None else self._due_s
        if due_s > now_s:
            if self.source.is_live:
                self.frames.drop(NumberedFrame(number, frame, now_s))
                return True
            if self._clock.wait(self._stopped, due_s - now_s):
                return False
        if not self._offer(number, frame, timeout_s=0):
            if not self._offer(number, frame):
                return False
            due_s = self._clock.now_s()
        self._due_s = due_s + self._period_s
        if self.source.is_live:
            self._due_s = max(self._due_s, now_s)
        return True

    def _refuse(self, error: FrameRefusedError) -> None:
        self.unread += 1
        self._report(self._next, str(error))
        self._note_lost(self._next)
        self._next += 1
        if self._next == self._most:
            self._stopped.set()

    def _wait_after(self, error: SourceLostError, failures: int) -> None:
        wait_s = self._reconnect.wait_s(failures)
        if wait_s is None:
            times = f"{failures} attempts in a row failed" if failures > 1 else "an attempt failed"
            kind = RunFailedError if self._next > self._first else BadInputError
            raise kind(f"{error} ({times}; see reconnect in cluster.yaml)") from error
        if failures == 1:
            self._say(f"{error}; connecting again")
        elif not failures & (failures - 1):  # 2, 4, 8 …: the time between two doubles as well
            came = "" if self._next > self._first else "no frame has arrived yet; "
            self._say(
                f"{error}; {came}{failures} attempts in a row failed, and the next is in "
                f"{wait_s:g} s"
            )
        if self._next > self._first:
            self._gaps.lost(self._clock.now_s(), self._next - 1, str(error))
        self._clock.wait(self._stopped, wait_s)
