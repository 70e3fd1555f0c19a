"""Keeps figures of a run over time, in a bounded number of samples.

A sample holds the counters of a view. Rates and latencies over time are differences between two
samples, so that leaving out samples in between loses detail, and no frame. `History` keeps samples
of a whole run, whatever its length: once there are too many, it keeps every second one, and from
then on only every second one that is added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from launcher.view.model import LatencyView, RunView


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters of a view; of each node the busy seconds so far, and the most memory in bytes
    since the sample before."""

    at_s: float
    frames: int
    dropped: int
    latency: LatencyView
    busy_s: Mapping[str, float]
    rss_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Interval:
    """The figures between two samples: frames per second, latencies, memory in bytes."""

    from_s: float
    until_s: float
    rate: float
    median_s: float | None
    """The median latency; None if no frame ended."""
    percentile_99_s: float | None
    rss_bytes: Mapping[str, int]


def sample_of(view: RunView) -> Sample:
    """Return the counters of a view."""
    return Sample(
        view.taken_s,
        view.frames_total,
        view.dropped_total,
        view.latency,
        {node.name: node.busy_s_total for node in view.nodes},
        {node.name: node.rss_bytes for node in view.nodes if node.rss_bytes is not None},
    )


@dataclass
class History:
    """Samples of a run, at most `most` (an even number): first every one that is added, then every
    second, every fourth, …"""

    most: int = 600
    samples: list[Sample] = field(default_factory=list)
    step: int = 1
    """One of `step` samples is kept."""
    _skipped: int = 0
    _peak: Mapping[str, int] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        """Add a sample that is newer than all others."""
        peak = _larger(self._peak, sample.rss_bytes)
        self._skipped += 1
        if self.samples and self._skipped < self.step:
            self._peak = peak
            return
        self.samples.append(replace(sample, rss_bytes=peak))
        self._skipped, self._peak = 0, {}
        if len(self.samples) > self.most:
            self._thin()

    def _thin(self) -> None:
        """Keep every second sample, the first and the last among them."""
        kept = self.samples[:1]
        for dropped, later in zip(self.samples[1::2], self.samples[2::2], strict=True):
            kept.append(replace(later, rss_bytes=_larger(dropped.rss_bytes, later.rss_bytes)))
        self.samples = kept
        self.step *= 2


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def intervals(samples: Sequence[Sample]) -> list[Interval]:
    """Return the intervals between neighbouring samples."""
    return [between(first, second) for first, second in pairwise(samples)]


def between(first: Sample, second: Sample) -> Interval:
    """Return the interval between two samples."""
    seconds = second.at_s - first.at_s
    frames = second.frames - first.frames
    latency = latency_between(first.latency, second.latency)
    return Interval(
        first.at_s,
        second.at_s,
        max(0.0, frames / seconds) if seconds > 0 else 0.0,
        quantile_s(latency, 0.5),
        quantile_s(latency, 0.99),
        second.rss_bytes,
    )


def latency_between(first: LatencyView, second: LatencyView) -> LatencyView:
    """Return the histogram of the frames that ended between two views of one run."""
    if first.bounds_s != second.bounds_s:
        return second
    counts = tuple(b - a for a, b in zip(first.counts, second.counts, strict=True))
    return LatencyView(second.bounds_s, counts, second.sum_s - first.sum_s)


def quantile_s(latency: LatencyView, share: float) -> float | None:
    """Return the latency that this share of the frames did not exceed; None if there are none.

    Within a bucket latencies count as evenly spread, as Prometheus' `histogram_quantile` has it;
    beyond the last bound it is that bound.
    """
    if not latency.counts or latency.counts[-1] <= 0 or not latency.bounds_s:
        return None
    wanted = share * latency.counts[-1]
    below, lower_s = 0, 0.0
    for bound_s, count in zip(latency.bounds_s, latency.counts, strict=False):
        if count >= wanted and count > below:
            return lower_s + (wanted - below) / (count - below) * (bound_s - lower_s)
        below, lower_s = count, bound_s
    return latency.bounds_s[-1]
