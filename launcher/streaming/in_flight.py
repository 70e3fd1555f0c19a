"""Computes how many frames must be in flight so that a plan runs at its full rate.

A frame is in flight from before it is fitted until its result is in the queues of all sinks. More
frames than the plan can work on would only wait in the channels before the slowest node, and every
result would be older by their periods (Little's law: latency = frames in flight × period). So a
stream keeps as many in flight as the plan's timetable has, where every node is busy all the time.

In the timetable the host sends a frame in period 0, phase φ works on it in period σ(φ), and the
host receives it in period max σ + 1: at any time max σ frames are computed. Between two of these
periods a frame may be on the wire; the plan has slack in its channels for a period of that. So
max σ + 1 frames are on the wire at most, if the wires are as slow as the plan's rate allows.

If frames are dealt out to copies of the network, each copy works on its own share of them. If nodes
compute several frames at once, a batch takes the place of a frame: while one is formed, the one
before is on its way.
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
        computed = max((phase.skew for phase in plan.phases if phase.copy == copy), default=0)
        on_wires = computed + 1
        share = dealing.count(copy) / len(dealing)
        most = max(most, math.ceil((computed + on_wires) / share))
    return most * plan.batch + AT_THE_HOST
