"""Reads a source in a thread: numbers its frames, queues them, and connects again after a loss."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from launcher.clock import StreamClock
from launcher.config.ends.source import FrameRefusedError, Source, SourceFrame, SourceLostError
from launcher.config.reconnect import ReconnectConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.progress import Say
from launcher.streaming.gaps import GapLog, Gaps
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
        frames: OverloadQueue[NumberedFrame],
        reconnect: ReconnectConfig,
        say: Say,
        *,
        most: int | None = None,
        clock: StreamClock | None = None,
    ) -> None:
        self.source = source
        self.frames = frames
        self._reconnect = reconnect
        self._say = say
        self._most = most
        self._clock = clock or StreamClock()
        self.refused = 0
        """How many frames the source could not give; they have numbers."""
        self._gaps = GapLog()
        self._next = 0
        self._stopped = threading.Event()

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

    def _read_on(self) -> None:
        for frame in self.source.frames():
            now_s = self._clock.now_s()
            if (seconds := self._gaps.end(now_s)) is not None:
                self._say(f"{self.source.description}: frames come again, after {seconds:.1f} s")
            if not self.frames.put(NumberedFrame(self._next, frame, now_s)):
                return
            self._next += 1
            if self._next == self._most:
                return

    def _refuse(self, error: FrameRefusedError) -> None:
        self.refused += 1
        if self.refused <= MOST_REPORTED:
            self._say(f"frame {self._next} is left out: {error}")
        self._next += 1
        if self._next == self._most:
            self._stopped.set()

    def _wait_after(self, error: SourceLostError, failures: int) -> None:
        wait_s = self._reconnect.wait_s(failures)
        if wait_s is None:
            times = f"{failures} attempts in a row failed" if failures > 1 else "an attempt failed"
            kind = RunFailedError if self._next else BadInputError
            raise kind(f"{error} ({times}; see reconnect in cluster.yaml)") from error
        if failures == 1:
            self._say(f"{error}; connecting again")
        if self._next:
            self._gaps.lost(self._clock.now_s(), self._next - 1, str(error))
        self._clock.wait(self._stopped, wait_s)
