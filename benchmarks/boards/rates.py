"""Computes a pipeline's rate in its steady state.

It counts from the result by which the pipeline has surely filled up to the departure of its last
frame, because boards that have no more work while it drains leave the machine to the others. While
it fills, boards compute early phases only and put more frames on their way than later, when older
frames come first. So as many results are left out as there are places on the way.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import networkx as nx

from csdf.conversion.from_network import SINK, SOURCE
from partition.plan import Plan

FULL_FRAMES = 4
"""Results per board that are left out at least."""


def filling_frames(plan: Plan) -> int:
    """Results that are left out, while the pipeline fills."""
    return max(FULL_FRAMES * len(plan.devices), most_in_flight(plan))


def most_in_flight(plan: Plan) -> int:
    """The most frames that are on their way at once: the places on the way with the fewest."""
    ways = nx.DiGraph()
    for channel in plan.channels:
        for target in channel.targets:
            places = channel.capacity_frames * len(set(plan.dealing))
            known = ways.get_edge_data(channel.source, target, {"places": places})
            ways.add_edge(channel.source, target, places=min(places, known["places"]))
    return int(nx.shortest_path_length(ways, SOURCE, SINK, weight="places"))


def steady_rate(
    sent_s: Sequence[float], received_s: Sequence[float], skipped: int, cycle: int = 1
) -> float:
    """Results per second after `skipped` of them and until the last frame departed.

    Where fewer than two results lie between (a pipeline deeper than the run is long), until the
    last result. Results of copies of the network, to which frames are dealt out in cycles of so
    many, come in bursts; so whole cycles count, if there is one.
    """
    last = bisect.bisect_right(received_s, sent_s[-1]) - 1
    if last - skipped < max(2, cycle):
        last = len(received_s) - 1
    if last - skipped > cycle:
        last -= (last - skipped) % cycle
    return (last - skipped) / (received_s[last] - received_s[skipped])
