"""Defines what is shown of a run while it streams: one immutable view, taken at one moment.

Metrics, `launch top`, the page of the server and the report read this view and nothing else of a
run. Counters (`*_total`) only grow during the life of a process, also when the run continues in a
new epoch. Times of day are seconds since 1970, so that views of several processes can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NodeState(Enum):
    """The role of a node in a run."""

    ACTIVE = "active"
    STANDING_BY = "standing by"
    LOST = "lost"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class PhaseView:
    """A phase on its node: its layers, and what it has computed in the present epoch."""

    name: str
    layers: int
    firings: int
    busy_s: float
    predicted_s: float
    """Seconds per firing, by the plan or by the agent's rehearsal."""
    waited_s: float = 0.0
    """Seconds for which the node computed nothing while this phase waited for credits only."""


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel between two nodes, one of which may be the host: frames that it holds."""

    name: str
    producer: str
    consumer: str
    frames: int
    capacity: int
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node: its part of the plan, and what its agent measured last."""

    name: str
    state: NodeState
    reason: str = ""
    """Why it is lost or absent, in a sentence for the user."""
    engine: str = ""
    device: str = ""
    busy: float | None = None
    """The share of time for which it computed, between the last two measurements."""
    waited: float | None = None
    """The share of time for which the node computed nothing while a phase had its inputs and waited
    for credits."""
    busy_s_total: float = 0.0
    waited_s_total: float = 0.0
    """Seconds for which it waited so: those of the phase that waited longest in each epoch."""
    rss_bytes: int | None = None
    predicted_bytes: int | None = None
    limit_bytes: int | None = None
    sent_bytes_total: int = 0
    received_bytes_total: int = 0
    energy_j_total: float | None = None
    phases: tuple[PhaseView, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencyView:
    """A histogram of latencies: how many frames took at most each of `bounds_s`, then all."""

    bounds_s: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    """Cumulative, one more than `bounds_s`; the last one counts all frames. A frame's latency is
    the time from when it was first sent until its result was taken."""
    sum_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EventView:
    """Something that happened: a loss, a recovery, a change of the plan."""

    at_s: float
    level: str
    """`info`, `warning` or `error`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """The parts that only the run's thread knows: the run's state, its plan and its nodes."""

    state: str = "preparing"
    """A `RunState`'s name, in lower case."""
    epoch: int = 0
    strategy: str = ""
    batch: int = 1
    predicted_rate: float = 0.0
    """Frames per second, as predicted for the present plan."""
    recoveries_total: int = 0
    nodes: tuple[NodeView, ...] = ()
    channels: tuple[ChannelView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(RunSnapshot):
    """One run at one moment."""

    taken_s: float
    started_s: float
    models: tuple[str, ...]
    rate: float
    """Frames per second over the last ten seconds."""
    frames_total: int
    dropped_total: int
    in_flight: int
    latency: LatencyView
    events: tuple[EventView, ...] = ()
    """The last ones, oldest first; at most 100."""
    versions: tuple[str, ...] = ()
    """The versions of `models`, in their order."""
    run: str = ""
    """The run's name, which its agents write into their logs; new in each run."""

    @property
    def bottleneck(self) -> str | None:
        """The name of the active node that is busy for the largest share of time, if measured."""
        busy = [(node.busy, node.name) for node in self.nodes if node.busy is not None]
        return max(busy)[1] if busy else None
