"""Counts of requests and the time that they took, for Triton's statistics extension and metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from launcher.view.frames import Latencies

OUTCOMES = ("success", "full", "invalid", "failed", "cancelled")
"""How a request can end: `full` was refused because as many are in flight as the cluster takes,
`invalid` has wrong inputs, and `cancelled` was cancelled by its client.
"""


@dataclass
class Statistics:
    """The statistics of one model.

    The cluster does not say how long a frame waits in it, so all the time from submission to result
    counts as `compute_infer`, and none as `queue`.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    """How many requests ended in each of `OUTCOMES`."""
    ns: Counter[str] = field(default_factory=Counter)
    """The sum of their times in nanoseconds."""
    latencies: Latencies = field(default_factory=Latencies)
    """The latencies of successful requests."""

    def add(self, outcome: str, ns: int) -> None:
        """Count a request that has ended after `ns` nanoseconds."""
        self.outcomes[outcome] += 1
        self.ns[outcome] += ns
        if outcome == "success":
            self.latencies.add(ns / 1e9)

    def durations(self) -> dict[str, dict[str, int]]:
        """The protocol's name of each → the number of requests, and their nanoseconds."""
        count, ns = self.outcomes["success"], self.ns["success"]
        success, none = {"count": count, "ns": ns}, {"count": count, "ns": 0}
        return {
            "success": success,
            "fail": {"count": self.outcomes.total() - count, "ns": self.ns.total() - ns},
            "queue": none,
            "compute_input": none,
            "compute_infer": success,
            "compute_output": none,
        }
