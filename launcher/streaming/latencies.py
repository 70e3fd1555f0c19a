"""Counts latencies in buckets, so that quantiles of an endless stream need bounded memory.

Each bucket reaches 2 % further than the one before, so a quantile is exact to 1 %, as in
HdrHistogram and DDSketch (Masson, Rim & Lee, doi:10.14778/3352063.3352135).
"""

from __future__ import annotations

import math

SHORTEST_S = 1e-6
LONGEST_S = 1e6
_LOG_RATIO = math.log(1.02)
_BUCKETS = math.ceil(math.log(LONGEST_S / SHORTEST_S) / _LOG_RATIO) + 1


class Latencies:
    """The latencies that were added, to 1 %; those beyond 1 µs and 10⁶ s count as these."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets = [0] * _BUCKETS

    def add(self, latency_s: float) -> None:
        """Count a latency."""
        bounded_s = min(max(latency_s, SHORTEST_S), LONGEST_S)
        self._buckets[math.floor(math.log(bounded_s / SHORTEST_S) / _LOG_RATIO)] += 1
        self.count += 1

    def quantile_s(self, fraction: float) -> float | None:
        """Return the latency that this fraction of them does not exceed; None if there is none."""
        wanted, seen = max(1, math.ceil(fraction * self.count)), 0
        for bucket, count in enumerate(self._buckets):
            seen += count
            if seen >= wanted:
                return SHORTEST_S * math.exp((bucket + 0.5) * _LOG_RATIO)
        return None
