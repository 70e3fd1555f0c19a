"""Delivers results to a sink in a separate thread: queues, drops, retries and counts them.

Each result that was put here is delivered, dropped, refused, or waits; none is delivered twice, and
they are delivered in order. The result that is being written waits too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from launcher.clock import StreamClock
from launcher.config.ends.sink import (
    FrameResult,
    PresentSink,
    ResultRefusedError,
    Sink,
    SinkLostError,
)
from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import RunFailedError
from launcher.progress import Say
from launcher.results.streamed import SinkReport, latency_report
from launcher.run.parts import Part
from launcher.sinks.filtering import ResultFilter
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.reading import MOST_REPORTED
from launcher.view.frames import FINE_BOUNDS_S, Latencies

PRESENT_EVERY_S = 5.0
"""How often a sink that others see is connected again if it has no results."""


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
    settle: Callable[[], None]


class Delivery:
    """Hands results to `sink`; `places` of them may wait, and `on_overload` says what then."""

    def __init__(
        self,
        sink: Sink,
        reconnect: ReconnectConfig,
        say: Say,
        *,
        part: Part | None = None,
        wanted: ResultFilter | None = None,
        on_overload: Overload = "block",
        places: int = 64,
        clock: StreamClock | None = None,
    ) -> None:
        """The sink gets the outputs of `part` only, if several networks run side by side.

        Results that a filter does not want are counted as `left_out`, and not as given.
        """
        self.description = sink.description
        self.needs_image = sink.needs_image
        self.latencies = Latencies(FINE_BOUNDS_S)
        """From when a frame was read until its result was delivered."""
        self.losses = 0
        """How often the sink was lost."""
        self.left_out = 0
        """How many results the filter did not want."""
        self._sink = sink
        self._part = part
        self._wanted = wanted
        self._presence = sink if isinstance(sink, PresentSink) else None
        self._is_absent = False
        self._reconnect = reconnect
        self._say = say
        self._clock = clock or StreamClock()
        self._results: OverloadQueue[_Outgoing] = OverloadQueue(
            places, on_overload, lambda dropped: dropped.settle()
        )
        self._abandoned = threading.Event()
        self._delivered = self._refused = 0

    @property
    def counts(self) -> SinkCounts:
        """The counts of the results so far."""
        delivered, refused = self._delivered, self._refused  # before the queue, which is ahead
        queued = self._results.counts
        return SinkCounts(queued.offered, delivered, queued.dropped, refused)

    def report(self) -> SinkReport:
        """Return what became of the results."""
        counts = self.counts
        return SinkReport(
            sink=self.description,
            given=counts.given,
            delivered=counts.delivered,
            dropped=counts.dropped,
            refused=counts.refused,
            not_delivered=counts.waiting,
            left_out=self.left_out,
            losses=self.losses,
            latency=latency_report(self.latencies),
        )

    def left(self) -> int:
        """Return how many results wait."""
        return self.counts.waiting

    def put(
        self, result: FrameResult, read_s: float, settle: Callable[[], None] = lambda: None
    ) -> bool:
        """Take a result, whose frame was read at `read_s`; wait for a place if `block`.

        `settle` is called once the sink needs the result no more. Returns False, counting nothing,
        after `finish` or `abandon`.
        """
        if (part := self._part) is not None:
            result = replace(result, outputs=part.own(result.outputs, part.model.outputs))
        if self._results.is_closed:
            return False
        if self._wanted is not None:
            wanted = self._wanted(result)
            if wanted is None:
                self.left_out += 1
                settle()
                return True
            result = wanted
        return self._results.put(_Outgoing(result, read_s, settle))

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
            while (item := self._next()) is not None and self._deliver(item):
                pass
        except BaseException:
            with contextlib.suppress(Exception):  # the first error says more
                self._sink.close()
            raise
        self._sink.close()

    def _next(self) -> _Outgoing | None:
        """Wait for a result; meanwhile a sink that others see is kept connected."""
        if self._presence is None:
            return self._results.take()
        while not self._abandoned.is_set():
            self._be_present(self._presence)
            item = self._results.take(timeout_s=PRESENT_EVERY_S)
            if item is not None:
                return item
            if self._results.is_closed:
                return self._results.take(timeout_s=0)
        return None

    def _be_present(self, sink: PresentSink) -> None:
        try:
            sink.be_present()
        except SinkLostError as error:
            if not self._is_absent:
                self._say(f"{error}; trying again")
            self._is_absent = True
        else:
            self._is_absent = False

    def _deliver(self, item: _Outgoing) -> bool:
        """Return False if the result was abandoned."""
        failures = 0
        while not self._abandoned.is_set():
            lost = self._write(item)
            if lost is None:
                if failures:
                    self._say(f"{self.description}: results are delivered again")
                item.settle()
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
