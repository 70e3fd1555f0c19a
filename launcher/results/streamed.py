"""Counts what became of a stream's frames, from the source to each sink, as values.

Nothing here grows with the number of frames. Latencies are quantiles, to 1 %, of the time since a
frame was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from launcher.results.gaps import Gaps
from launcher.view.frames import Latencies
from launcher.view.history import quantile_s


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """The latency that half of the frames, and 99 %, did not exceed; None if there was none."""

    median_s: float | None = None
    percentile_99_s: float | None = None


def latency_report(latencies: Latencies) -> LatencyReport:
    """Return the quantiles of latencies."""
    counted = latencies.view()
    return LatencyReport(quantile_s(counted, 0.5), quantile_s(counted, 0.99))


@dataclass(frozen=True, slots=True)
class SinkReport:
    """Counts of a sink's results, by outcome: `given` is the sum of the four below."""

    sink: str
    given: int
    delivered: int
    dropped: int
    refused: int
    not_delivered: int
    losses: int
    """How often the sink was lost."""
    latency: LatencyReport
    left_out: int = 0
    """How many results the sink's filter did not want; they are not given."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A stream that has ended: `read` is the sum of `dropped`, `refused` and those computed.

    `results` are fewer than those where the stream was aborted.
    """

    read: int
    dropped: int
    refused: int
    results: int
    seconds: float
    """From when the first frame was read until the last result."""
    latency: LatencyReport
    """The latency until the result arrived, before any sink had it."""
    in_flight: int
    """How many frames may be in flight."""
    gaps: Gaps = field(default_factory=Gaps)
    sinks: tuple[SinkReport, ...] = ()
    signal: int | None = None
    """The signal with which the user has stopped the stream; None if it ended by itself."""
    asked: int | None = None
    """How many frames were asked for; None if the source decides."""

    @property
    def lost(self) -> int:
        """How many frames were abandoned when the stream was stopped."""
        return self.read - self.dropped - self.refused - self.results

    @property
    def problem(self) -> str | None:
        """A sentence, if results that the user counts on are missing although nobody stopped it."""
        missing = [sink for sink in self.sinks if sink.not_delivered]
        if not missing or self.signal is not None:
            return None
        return "; ".join(
            f"{sink.sink}: {sink.not_delivered} results were not delivered, because it accepted "
            "none for too long"
            for sink in missing
        )

    @property
    def is_cut_short(self) -> bool:
        """Whether the user has stopped it before all frames that were asked for were read."""
        return self.signal is not None and self.asked is not None and self.read < self.asked
