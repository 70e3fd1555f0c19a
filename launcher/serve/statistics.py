"""Counts of requests and the time that they took, as Triton's statistics extension reports them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Duration:
    """So many requests, and the sum of their times in nanoseconds."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """One more request."""
        self.count += 1
        self.ns += ns

    def as_json(self) -> dict[str, int]:
        """Its JSON form in the protocol."""
        return {"count": self.count, "ns": self.ns}


@dataclass
class Statistics:
    """Of one model. The cluster does not say how long a frame waits in it, so all the time from
    submission to result counts as `compute_infer`, and none as `queue`."""

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)

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
