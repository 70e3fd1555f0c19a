"""Delivers results to a sink in a separate thread: queues, drops, retries and counts them.

Each result that was put here is delivered, dropped, refused, or waits; none is delivered twice, and
they are delivered in order. The result that is being written waits too.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass

from launcher.clock import StreamClock
from launcher.config.ends.sink import FrameResult, ResultRefusedError, Sink, SinkLostError
from launcher.config.pace import Overload
from launcher.config.reconnect import ReconnectConfig
from launcher.errors import RunFailedError
from launcher.progress import Say
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.reading import MOST_REPORTED
from launcher.view.frames import FINE_BOUNDS_S, Latencies


@dataclass(frozen=True, slots=True)
class SinkCounts:
    """Counts of a sink's results, by outcome: `given` is the sum of the other four."""

    given: int = 0
    delivered: int = 0
    dropped: int = 0
    refused: int = 0

    @property
    def waiting(self) -> int:
        """How many results were neither delivered nor dropped nor refused."""
        return self.given - self.delivered - self.dropped - self.refused


@dataclass(frozen=True, slots=True, eq=False)
class _Outgoing:
    result: FrameResult
    read_s: float


class Delivery:
    """Hands results to `sink`; `places` of them may wait, and `on_overload` says what then."""

    def __init__(
        self,
        sink: Sink,
        reconnect: ReconnectConfig,
        say: Say,
        *,
        on_overload: Overload = "block",
        places: int = 64,
        clock: StreamClock | None = None,
    ) -> None:
        self.description = sink.description
        self.needs_image = sink.needs_image
        self.latencies = Latencies(FINE_BOUNDS_S)
        """From when a frame was read until its result was delivered."""
        self.losses = 0
        """How often the sink was lost."""
        self._sink = sink
        self._reconnect = reconnect
        self._say = say
        self._clock = clock or StreamClock()
        self._results: OverloadQueue[_Outgoing] = OverloadQueue(places, on_overload)
        self._abandoned = threading.Event()
        self._delivered = self._refused = 0

    @property
    def counts(self) -> SinkCounts:
        """The counts of the results so far."""
        delivered, refused = self._delivered, self._refused  # before the queue, which is ahead
        queued = self._results.counts
        return SinkCounts(queued.offered, delivered, queued.dropped, refused)

    def left(self) -> int:
        """Return how many results wait."""
        return self.counts.waiting

    def put(self, result: FrameResult, read_s: float) -> bool:
        """Take a result, whose frame was read at `read_s`; wait for a place if `block`.

        Returns False, counting nothing, after `finish` or `abandon`.
        """
        return self._results.put(_Outgoing(result, read_s))

    def finish(self) -> None:
        """Let `run` end once everything is delivered that was put."""
        self._results.close()

    def abandon(self) -> None:
        """Let `run` end with the present write; remaining results count as waiting."""
        self._abandoned.set()
        self._results.abandon()

    def run(self) -> None:
        """Deliver until `finish` or `abandon`, and close the sink.

        Raises `RunFailedError` if the sink can deliver nothing more.
        """
        try:
            while (item := self._results.take()) is not None and self._deliver(item):
                pass
        except BaseException:
            with contextlib.suppress(Exception):  # the first error says more
                self._sink.close()
            raise
        self._sink.close()

    def _deliver(self, item: _Outgoing) -> bool:
        """Return False if the result was abandoned."""
        failures = 0
        while not self._abandoned.is_set():
            lost = self._write(item)
            if lost is None:
                if failures:
                    self._say(f"{self.description}: results are delivered again")
                return True
            failures += 1
            self._wait_after(lost, failures)
        return False

    def _write(self, item: _Outgoing) -> SinkLostError | None:
        """Write a result once; return the error if it may be written again."""
        try:
            self._sink.write(item.result)
        except SinkLostError as error:
            return error
        except ResultRefusedError as error:
            self._refused += 1
            if self._refused <= MOST_REPORTED:
                self._say(f"result {item.result.index} is left out: {error}")
        else:
            self._delivered += 1
            self.latencies.add(self._clock.now_s() - item.read_s)
        return None

    def _wait_after(self, error: SinkLostError, failures: int) -> None:
        wait_s = self._reconnect.wait_s(failures)
        if wait_s is None:
            raise RunFailedError(
                f"{error} ({failures} failures in a row; see reconnect in cluster.yaml)"
            ) from error
        if failures == 1:
            self.losses += 1
            self._say(f"{error}; trying again")
        self._clock.wait(self._abandoned, wait_s)
