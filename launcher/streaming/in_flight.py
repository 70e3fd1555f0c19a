"""Computes how many frames must be in flight so that a plan runs at its full rate.

A frame is in flight from before it is fitted until its result is in the queues of all sinks. More
frames than the plan can work on would only wait in the channels before the slowest node, and every
result would be older by their periods (Little's law: latency = frames in flight × period). So a
stream keeps as many in flight as the plan's timetable has, where every node is busy all the time.

In the timetable the host sends a frame in period 0, phase φ works on it in period σ(φ), and the
host receives it in period max σ + 1: it takes max σ + 2 periods, counting both. A frame on the wire
is in no period. The plan's slack is for that: one frame for each channel that crosses devices, and
a frame passes at most one such channel in each of its max σ + 1 steps from period to period.

If frames are dealt out to copies of the network, each copy works on its own share of them.
"""

from __future__ import annotations

import math

from partition.plan import Plan

AT_THE_HOST = 2
"""One frame that is fitted, and one result that is decoded and handed to sinks."""


def frames_in_flight(plan: Plan) -> int:
    """Return how many frames keep every node of `plan` busy, and no more."""
    dealing = plan.dealing
    most = 0
    for copy in set(dealing):
        last = max((phase.skew for phase in plan.phases if phase.copy == copy), default=0)
        periods, on_wires = last + 2, last + 1
        most = max(most, math.ceil((periods + on_wires) * len(dealing) / dealing.count(copy)))
    return most + AT_THE_HOST
