"""Says in words what a view means: rows of texts with marks, for the terminal and for pages.

A mark says what a reader should look at. A node is degraded if it takes no part or holds more
memory than was predicted. A channel is full if it holds as many frames as it may: then its producer
waits. That is normal before the bottleneck, so it is not a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from launcher.quantities import duration, gigabytes, megabytes, rate, seconds
from launcher.view.history import latency_between, quantile_s
from launcher.view.model import (
    ChannelView,
    EventView,
    LatencyView,
    NodeState,
    NodeView,
    PhaseView,
    RunView,
)
from nodes.protocol.messages import HOST

MEMORY_MARGIN = 1.1
"""A node that holds more than this times the predicted bytes gets a warning."""

SLOW_RATE = 0.8
"""A bottleneck whose rate is below this share of the predicted one gets a warning."""

BUSY = 0.9
"""A node that is busy for this share of time limits the rate."""


class Mark(Enum):
    """The importance of a sentence."""

    NONE = "none"
    FINE = "fine"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its mark."""

    text: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Gauge:
    """A share in 0..1 to be drawn as a bar, and what it says in words."""

    share: float
    text: str
    mark: Mark = Mark.NONE


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A phase: seconds per firing, measured and predicted."""

    name: str
    layers: str
    time: str
    firings: str


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: its state, what it computes with, and its load."""

    name: str
    state: str
    mark: Mark
    is_bottleneck: bool
    engine: str
    busy: Gauge | None
    waited: str
    memory: Gauge | None
    traffic: str
    energy: str
    reason: str
    phases: tuple[PhaseRow, ...]


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel: its ends, and how full it is."""

    name: str
    producer: str
    consumer: str
    fill: Gauge
    is_full: bool
    frame: str
    """The size of a frame."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event, and how long ago it was."""

    age: str
    text: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class ShownRun:
    """A run in words."""

    name: str
    state: str
    mark: Mark
    """The worst of all marks of its sentences."""
    about: str
    """Strategy, epoch, batch and age."""
    figures: tuple[tuple[str, str], ...]
    """Label and value of what is measured of the whole run."""
    sentences: tuple[Sentence, ...]
    nodes: tuple[NodeRow, ...]
    channels: tuple[ChannelRow, ...]
    events: tuple[EventRow, ...]
    """The latest first."""


def shown(view: RunView, before: LatencyView | None = None) -> ShownRun:
    """Return a run in words.

    Latencies are those of the frames since the histogram `before`, or of all without it.
    """
    sentences = tuple(_sentences(view))
    mark = _worst(each.mark for each in sentences)
    is_degraded = view.state == "streaming" and mark in (Mark.WARNING, Mark.ERROR)
    return ShownRun(
        name=", ".join(view.models),
        state=f"{view.state}, degraded" if is_degraded else view.state,
        mark=mark,
        about=", ".join(_about(view)),
        figures=tuple(_figures(view, before)),
        sentences=sentences,
        nodes=tuple(_node(node, is_bottleneck=node.name == view.bottleneck) for node in view.nodes),
        channels=tuple(map(_channel, view.channels)),
        events=tuple(_event(event, view.taken_s) for event in reversed(view.events)),
    )


def latency_texts(latency: LatencyView, before: LatencyView | None = None) -> tuple[str, str]:
    """Return the median and the 99th percentile in words; `-` if no frame has ended."""
    recent = latency if before is None else latency_between(before, latency)
    if not recent.counts or recent.counts[-1] == 0:
        recent = latency
    return _quantile(recent, 0.5), _quantile(recent, 0.99)


def _quantile(latency: LatencyView, share: float) -> str:
    found = quantile_s(latency, share)
    if found is None:
        return "-"
    lies_beyond = share * latency.counts[-1] > latency.counts[len(latency.bounds_s) - 1]
    return f"> {seconds(found)}" if lies_beyond else seconds(found)


def _worst(marks: Iterator[Mark]) -> Mark:
    order = list(Mark)
    return max(marks, key=order.index, default=Mark.FINE)


def _about(view: RunView) -> Iterator[str]:
    yield f"strategy {view.strategy}"
    if view.batch > 1:
        yield f"batches of {view.batch}"
    yield f"up {duration(view.taken_s - view.started_s)}"


def _figures(view: RunView, before: LatencyView | None) -> Iterator[tuple[str, str]]:
    median, worst = latency_texts(view.latency, before)
    yield "frames/s", rate(view.rate)
    yield "predicted", rate(view.predicted_rate)
    yield "median latency", median
    yield "99 % latency", worst
    yield "in flight", str(view.in_flight)
    yield "frames", str(view.frames_total)
    yield "dropped", str(view.dropped_total)
    yield "recoveries", str(view.recoveries_total)


def _sentences(view: RunView) -> Iterator[Sentence]:
    """Yield what a reader should know first: what is wrong, then what limits the rate."""
    if view.state != "streaming":
        yield Sentence(f"the run is {view.state}: no frames are computed", Mark.ERROR)
    yield from node_sentences(view)
    yield from limit_sentences(view)


def node_sentences(view: RunView) -> Iterator[Sentence]:
    """Say which nodes take no part, and which hold too much memory."""
    for node in view.nodes:
        if node.state in (NodeState.LOST, NodeState.ABSENT):
            why = f": {node.reason}" if node.reason else ""
            yield Sentence(f"{node.name} is {node.state.value}{why}", Mark.ERROR)
    for node in view.nodes:
        if _memory_mark(node) is Mark.ERROR and node.limit_bytes is not None:
            limit = megabytes(node.limit_bytes)
            yield Sentence(f"{node.name} holds more memory than its limit of {limit}", Mark.ERROR)
        elif _memory_mark(node) is Mark.WARNING:
            yield Sentence(f"{node.name} holds more memory than was predicted", Mark.WARNING)


def limit_sentences(view: RunView) -> Iterator[Sentence]:
    """Yield a sentence on the node that limits the rate, if the nodes were measured."""
    bottleneck = next((node for node in view.nodes if node.name == view.bottleneck), None)
    if view.state != "streaming" or bottleneck is None or bottleneck.busy is None:
        return
    busy = f"{bottleneck.name} is the bottleneck, busy for {bottleneck.busy:.0%} of the time"
    if bottleneck.busy < BUSY:
        yield Sentence(f"{busy}, so the nodes could compute more frames", Mark.FINE)
    elif view.rate < SLOW_RATE * view.predicted_rate:
        yield Sentence(f"{busy}, and slower than predicted", Mark.WARNING)
    else:
        yield Sentence(busy, Mark.FINE)


def _node(node: NodeView, *, is_bottleneck: bool) -> NodeRow:
    takes_part = node.state is NodeState.ACTIVE
    away = node.state in (NodeState.LOST, NodeState.ABSENT)
    busy = node.busy if takes_part else None
    return NodeRow(
        name=node.name,
        state=node.state.value,
        mark=Mark.ERROR if away else _memory_mark(node),
        is_bottleneck=is_bottleneck and takes_part,
        engine=" ".join(filter(None, (node.engine, node.device))),
        busy=None if busy is None else Gauge(_within(busy), f"{busy:.0%}"),
        waited=f"{node.waited:.0%}" if takes_part and node.waited is not None else "",
        memory=None if away else _memory(node),
        traffic=f"{gigabytes(node.sent_bytes_total)} sent, "
        f"{gigabytes(node.received_bytes_total)} received",
        energy="" if node.energy_j_total is None else f"{node.energy_j_total:.0f} J",
        reason=node.reason,
        phases=tuple(map(_phase, node.phases)),
    )


def _memory_mark(node: NodeView) -> Mark:
    held, expected, limit = node.rss_bytes, node.predicted_bytes, node.limit_bytes
    if held is None or node.state in (NodeState.LOST, NodeState.ABSENT):
        return Mark.NONE
    if limit is not None and held > limit:
        return Mark.ERROR
    # An agent that stands by has no part for which anything was predicted.
    if expected and node.state is NodeState.ACTIVE and held > MEMORY_MARGIN * expected:
        return Mark.WARNING
    return Mark.NONE


def _memory(node: NodeView) -> Gauge | None:
    """The memory that a node holds, as a share of what was predicted, or else of its limit."""
    held, expected = node.rss_bytes, node.predicted_bytes
    if held is None:
        return None
    whole = expected or node.limit_bytes or held
    predicted = f" of {megabytes(expected)}" if expected else ""
    return Gauge(_within(held / whole), f"{megabytes(held)}{predicted}", _memory_mark(node))


def _within(share: float) -> float:
    return min(1.0, max(0.0, share))


def _phase(phase: PhaseView) -> PhaseRow:
    predicted = f"{seconds(phase.predicted_s)} predicted"
    measured = f"{seconds(phase.busy_s / phase.firings)}, " if phase.firings else ""
    layers = "1 layer" if phase.layers == 1 else f"{phase.layers} layers"
    return PhaseRow(phase.name, layers, measured + predicted, f"fired {phase.firings} times")


def _channel(channel: ChannelView) -> ChannelRow:
    is_full = channel.frames >= channel.capacity
    share = channel.frames / channel.capacity if channel.capacity else 1.0
    return ChannelRow(
        name=channel.name,
        producer=_end(channel.producer),
        consumer=_end(channel.consumer),
        fill=Gauge(_within(share), f"{channel.frames}/{channel.capacity}"),
        is_full=is_full,
        frame=megabytes(channel.frame_bytes),
    )


def _end(name: str) -> str:
    return "launcher" if name == HOST else name


_EVENT_MARKS = {"warning": Mark.WARNING, "error": Mark.ERROR}


def _event(event: EventView, now_s: float) -> EventRow:
    age = f"{duration(now_s - event.at_s)} ago"
    return EventRow(age, event.text, _EVENT_MARKS.get(event.level, Mark.NONE))
