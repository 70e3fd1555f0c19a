"""Counts the frames of one stream: results, latencies, and the rate of the last ten seconds.

The memory that it takes does not depend on how many frames there were: latencies are counted in
buckets, results by the second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from launcher.view.model import LatencyView

BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
)  # fmt: skip
"""The bounds of the buckets of latencies, from a small network on one board to a long queue."""

FINE_BOUNDS_S = tuple(1e-6 * 1.01**power for power in range(-1, 2778))
"""From 1 µs to 10⁶ s, each 1 % further than the one before, so that a quantile is exact to 1 %, as
in HdrHistogram and DDSketch (Masson, Rim & Lee, doi:10.14778/3352063.3352135)."""

RATE_S = 10
"""Over how many seconds the rate is measured."""


class Latencies:
    """The latencies that were added, in buckets up to each of `bounds_s` and one beyond them."""

    def __init__(self, bounds_s: Sequence[float] = BOUNDS_S) -> None:
        self._bounds_s = tuple(bounds_s)
        self._buckets = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, latency_s: float) -> None:
        """Count a latency."""
        self._buckets[bisect_left(self._bounds_s, latency_s)] += 1
        self._sum_s += latency_s

    def view(self) -> LatencyView:
        """Return the counts; `launcher.view.history.quantile_s` computes quantiles of them."""
        return LatencyView(self._bounds_s, tuple(accumulate(self._buckets)), self._sum_s)


@dataclass(frozen=True, slots=True)
class FrameFigures:
    """The figures of one or several streams; `rate` is in frames per second."""

    results: int
    in_flight: int
    rate: float
    latency: LatencyView


class FrameCounts:
    """The counters of one stream; times are those of one monotonic clock."""

    def __init__(self) -> None:
        self.results = 0
        self._latencies = Latencies()
        self._first_s: float | None = None
        self._seconds: deque[tuple[int, int]] = deque(maxlen=RATE_S + 1)
        """Each second in which results came, and how many."""

    def sent(self, now_s: float) -> None:
        """Note that a frame is sent for the first time."""
        if self._first_s is None:
            self._first_s = now_s

    def took(self, sent_s: float, now_s: float) -> None:
        """Count the result of a frame that was first sent at `sent_s`."""
        self.results += 1
        self._latencies.add(now_s - sent_s)
        second = int(now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = second, self._seconds[-1][1] + 1
        else:
            self._seconds.append((second, 1))

    def figures(self, in_flight: int, now_s: float) -> FrameFigures:
        """Return the counts; `in_flight` frames have no result yet."""
        return FrameFigures(self.results, in_flight, self._rate(now_s), self._latencies.view())

    def _rate(self, now_s: float) -> float:
        if self._first_s is None:
            return 0.0
        began_s = max(self._first_s, float(int(now_s) - RATE_S))
        recent = sum(count for second, count in self._seconds if second >= int(now_s) - RATE_S)
        return recent / max(now_s - began_s, 1e-3)


def total(figures: Iterable[FrameFigures]) -> FrameFigures:
    """Return the figures of several streams together."""
    each = list(figures)
    counts = [figure.latency.counts for figure in each] or [(0,) * (len(BOUNDS_S) + 1)]
    return FrameFigures(
        results=sum(figure.results for figure in each),
        in_flight=sum(figure.in_flight for figure in each),
        rate=sum(figure.rate for figure in each),
        latency=LatencyView(
            BOUNDS_S,
            tuple(map(sum, zip(*counts, strict=True))),
            sum(figure.latency.sum_s for figure in each),
        ),
    )
