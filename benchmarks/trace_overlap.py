"""Computes from a trace how much of the time with tensors under way a node also computed.

For each node: the time during which at least one tensor was under way to or from it, and the part
of it during which its executor fired. Without any overlap, a node would compute only while nothing
moves; a node that computes all the time hides all communication.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Interval: TypeAlias = tuple[float, float]
"""From, to: microseconds."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Of one node, in seconds."""

    moving_s: float
    both_s: float

    @property
    def share(self) -> float:
        """The part of the moving that was hidden, 0 to 1; 0 where nothing moved."""
        return self.both_s / self.moving_s if self.moving_s else 0.0


def overlaps(trace: Mapping[str, Any]) -> dict[str, Overlap]:
    """Node → overlap, of the content of a file that `launch --trace` wrote."""
    events = trace["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    moving: dict[int, list[Interval]] = {pid: [] for pid in names}
    firing: dict[int, list[Interval]] = {pid: [] for pid in names}
    began: dict[str, float] = {}
    for event in events:
        if event.get("cat") == "firing":
            firing[event["pid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            began[event["id"]] = event["ts"]
        elif event["ph"] == "e":
            for pid in (event["pid"], event["args"]["from"]):
                if pid in moving:
                    moving[pid].append((began[event["id"]], event["ts"]))
    found = {}
    for pid, name in names.items():
        moved, fired = union(moving[pid]), union(firing[pid])
        both = length(common(moved, fired))
        found[name] = Overlap(length(moved) / 1e6, both / 1e6)
    return found


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals, in order."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def common(left: Sequence[Interval], right: Sequence[Interval]) -> list[Interval]:
    """The moments in both, each disjoint and in order."""
    found: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            found.append((start, end))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(intervals: Iterable[Interval]) -> float:
    """Of disjoint intervals together."""
    return sum(end - start for start, end in intervals)
