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
class Duration:
    """The number of requests, and the sum of their times in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Count a request."""
        self.count += 1
        self.ns += ns

    def as_json(self) -> dict[str, int]:
        """Return its JSON form in the protocol."""
        return {"count": self.count, "ns": self.ns}


@dataclass
class Statistics:
    """The statistics of one model.

    The cluster does not say how long a frame waits in it, so all the time from submission to result
    counts as `compute_infer`, and none as `queue`.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How many requests ended in each of `OUTCOMES`."""
    latencies: Latencies = field(default_factory=Latencies)
    """The latencies of successful requests."""

    def add(self, outcome: str, ns: int) -> None:
        """Count a request that has ended after `ns` nanoseconds."""
        self.outcomes[outcome] += 1
        if outcome == "success":
            self.success.add(ns)
            self.latencies.add(ns / 1e9)
        else:
            self.fail.add(ns)

    def durations(self) -> dict[str, Duration]:
        """The protocol's name of each → what was counted."""
        return {
            "success": self.success,
            "fail": self.fail,
            "queue": Duration(self.success.count, 0),
            "compute_input": Duration(self.success.count, 0),
            "compute_infer": self.success,
            "compute_output": Duration(self.success.count, 0),
        }
