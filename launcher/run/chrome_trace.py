"""Traces of several agents as one file in Chrome's trace event format, which Perfetto opens.

Every node is a process with three tracks: its executor with the firings and the waits between them,
what it hands to its sockets, what comes from them. A tensor under way from one node to another is
an asynchronous span of the node that it goes to, from when it was handed over until it came, which
is where clocks of different machines meet. Times are microseconds of the launcher's clock, counted
from the first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import Clock
from nodes.protocol.messages import ChannelSpec, TraceKind

EXECUTOR, SENDING, COMING = 1, 2, 3
"""Tracks (`tid`) of every node."""

TRACKS = {EXECUTOR: "executor", SENDING: "sending", COMING: "receiving"}

LEAST_WAIT_S = 1e-4
"""Shorter gaps between two firings are no waits."""

Span: TypeAlias = dict[str, Any]
"""An event of the format: name, cat, ph, ts and dur in microseconds, pid, tid, args."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of an agent; `number` is a phase's or a channel's, seconds are of its own clock."""

    kind: TraceKind
    number: int
    frame: int
    began_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """All that is known of one node."""

    clock: Clock
    events: Sequence[Happened]
    dropped: int = 0


def chrome_trace(blueprint: Blueprint, nodes: Mapping[str, NodeTrace]) -> dict[str, Any]:
    """Return the whole file's content for JSON; `otherData` has the clocks and what is missing."""
    channels = {
        channel.number: channel
        for deployment in blueprint.deployments.values()
        for channel in deployment.channels
    }
    numbers = {node: number for number, node in enumerate(nodes, start=1)}
    spans: list[Span] = []
    for node, trace in nodes.items():
        phases = [phase.name for phase in blueprint.deployments[node].phases]
        spans += _of_node(numbers[node], trace, phases, channels)
    spans += _under_way(nodes, numbers, channels)
    first_us = min((span["ts"] for span in spans), default=0.0)
    for span in spans:
        span["ts"] = round(span["ts"] - first_us, 3)
    return {
        "traceEvents": [*_names(numbers), *sorted(spans, key=lambda span: span["ts"])],
        "displayTimeUnit": "ms",
        "otherData": {
            node: {
                "clock_ahead_s": trace.clock.ahead_s,
                "clock_drift": trace.clock.drift,
                "clock_error_s": trace.clock.error_s,
                "events_dropped": trace.dropped,
            }
            for node, trace in nodes.items()
        },
    }


def _names(numbers: Mapping[str, int]) -> Iterator[Span]:
    for node, number in numbers.items():
        yield {"name": "process_name", "ph": "M", "pid": number, "args": {"name": node}}
        for track, name in TRACKS.items():
            thread = {"name": "thread_name", "ph": "M", "pid": number, "tid": track}
            yield {**thread, "args": {"name": name}}


def _of_node(
    pid: int, trace: NodeTrace, phases: Sequence[str], channels: Mapping[int, ChannelSpec]
) -> Iterator[Span]:
    idle_from_s: float | None = None
    for event in sorted(trace.events, key=lambda event: event.began_s):
        began_s = trace.clock.ours(event.began_s)
        where = {"ph": "X", "pid": pid, "ts": began_s * 1e6, "dur": round(event.took_s * 1e6, 3)}
        if event.kind is TraceKind.FIRED:
            if idle_from_s is not None and began_s - idle_from_s >= LEAST_WAIT_S:
                dur = round((began_s - idle_from_s) * 1e6, 3)
                wait = {"ph": "X", "pid": pid, "ts": idle_from_s * 1e6, "dur": dur}
                yield {"name": "waiting", "cat": "waiting", "tid": EXECUTOR, **wait}
            idle_from_s = began_s + event.took_s
            name = phases[event.number] if event.number < len(phases) else f"{event.number}"
            args = {"phase": name, "frame": event.frame}
            named = {"name": f"{name} · {event.frame}", "cat": "firing", "tid": EXECUTOR}
            yield {**named, **where, "args": args}
        elif event.number in channels:
            args = {"tensor": channels[event.number].tensor, "frame": event.frame}
            is_sent = event.kind is TraceKind.SENT
            what, track = ("send", SENDING) if is_sent else ("receive", COMING)
            yield {"name": what, "cat": what, "tid": track, **where, "args": args}


def _under_way(
    nodes: Mapping[str, NodeTrace], numbers: Mapping[str, int], channels: Mapping[int, ChannelSpec]
) -> Iterator[Span]:
    """From node to node: each tensor's beginning and end."""
    sent_s = {
        (event.number, event.frame): trace.clock.ours(event.began_s)
        for trace in nodes.values()
        for event in trace.events
        if event.kind is TraceKind.SENT
    }
    for node, trace in nodes.items():
        for event in trace.events:
            began_s = sent_s.get((event.number, event.frame))
            channel = channels.get(event.number)
            if event.kind is not TraceKind.CAME or began_s is None or channel is None:
                continue
            ended_s = max(began_s, trace.clock.ours(event.began_s))
            span = {
                "name": f"{channel.source_node} → {node}",
                "cat": "under way",
                "id": f"{event.number}/{event.frame}",
                "pid": numbers[node],
                "tid": COMING,
                "args": {"tensor": channel.tensor, "frame": event.frame,
                         "from": numbers.get(channel.source_node)},
            }  # fmt: skip
            yield {**span, "ph": "b", "ts": began_s * 1e6}
            yield {**span, "ph": "e", "ts": ended_s * 1e6}
