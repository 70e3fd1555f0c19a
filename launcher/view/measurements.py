"""Turns an agent's statistics of each epoch into counters that only grow.

An agent counts from the start of each epoch (`nodes.protocol.messages.Stats`). When the statistics
of another epoch arrive, the counts of the last one are kept and added from then on. The counts of
an agent after its last statistics of an epoch are lost, so counters are a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable

from nodes.protocol.messages import Stats

LEAST_S = 0.5
"""The least time between two statistics from which shares of time are computed."""


class NodeMeasurements:
    """The statistics of one node, over all epochs."""

    def __init__(self) -> None:
        self.stats: Stats | None = None
        """The last statistics."""
        self._before: Stats | None = None
        """Earlier ones of the same epoch, with which the last ones are compared."""
        self._busy_s = self._waited_s = 0.0
        self._sent_bytes = self._received_bytes = 0
        self.energy_j: float | None = None
        """Joules that its machine took while epochs ran; None if they were never measured."""
        self._epoch_j = 0.0
        self.rss_bytes: int | None = None

    def add(self, stats: Stats) -> None:
        """Take in statistics; their counts are ignored if they are older than the known ones, or if
        nothing is deployed.
        """
        last = self.stats
        self.rss_bytes = stats.rss_bytes
        if not stats.epoch or (last is not None and _age(stats) < _age(last)):
            return
        if last is None or stats.epoch != last.epoch:
            self._busy_s, self._waited_s, self._epoch_j = self.busy_s, self.waited_s, 0.0
            self._sent_bytes, self._received_bytes = self.sent_bytes, self.received_bytes
            self._before = None
        elif self._before is None or stats.elapsed_s - last.elapsed_s >= LEAST_S:
            self._before = last
        self.stats = stats
        if stats.energy_j is not None:
            self.energy_j = (self.energy_j or 0.0) + stats.energy_j - self._epoch_j
            self._epoch_j = stats.energy_j

    @property
    def busy_s(self) -> float:
        """Seconds for which the node computed."""
        return self._busy_s + (0.0 if self.stats is None else sum(self.stats.busy_s))

    @property
    def waited_s(self) -> float:
        """Seconds for which it computed nothing because of missing credits, by the phase that
        waited longest in each epoch."""
        return self._waited_s + (0.0 if self.stats is None else _waited_s(self.stats))

    @property
    def sent_bytes(self) -> int:
        """Bytes of tensors that it sent."""
        return self._sent_bytes + (0 if self.stats is None else self.stats.sent_bytes)

    @property
    def received_bytes(self) -> int:
        """Bytes of tensors that it received."""
        return self._received_bytes + (0 if self.stats is None else self.stats.received_bytes)

    @property
    def busy(self) -> float | None:
        """The share of time for which it computed lately; None if that is not known."""
        return self._share(lambda stats: sum(stats.busy_s))

    @property
    def waited(self) -> float | None:
        """The share of time for which it waited lately, as `waited_s` counts; None if unknown."""
        return self._share(_waited_s)

    def _share(self, seconds: Callable[[Stats], float]) -> float | None:
        if self.stats is None or self._before is None:
            return None
        elapsed_s = self.stats.elapsed_s - self._before.elapsed_s
        if elapsed_s <= 0:
            return None
        spent_s = seconds(self.stats) - seconds(self._before)
        return min(1.0, max(0.0, spent_s / elapsed_s))


def _age(stats: Stats) -> tuple[int, float]:
    return stats.epoch, stats.elapsed_s


def _waited_s(stats: Stats) -> float:
    return max(stats.waited_s, default=0.0)
