"""Collects the agents' traces of a run and writes them in Chrome's trace event format.

Perfetto opens the file. Every request for a trace is also a round trip by which clocks are compared
(`launcher.core.clocks`), and every answer empties the agent's buffer. The first few requests follow
each other immediately. Then each agent is asked several times a second, when the launcher is awake
anyway, and again before it is stopped.

In the file every node is a process with three tracks: its executor, with firings and the waits
between them; the tensors that it sends; and those that it receives. A tensor on its way between two
nodes is an asynchronous span of the receiver, from sending to arrival; here the clocks of two
machines are combined. Times are microseconds on the launcher's clock since the first event.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import Clock, estimate
from launcher.errors import RunFailedError
from launcher.files import cannot_write, write_whole
from launcher.view.frame_trace import TraceRequests
from nodes.protocol.messages import (
    TRACE_EVENT,
    ChannelSpec,
    Control,
    GetTrace,
    Start,
    Stop,
    Traced,
    TraceKind,
)

EXECUTOR, SENDING, RECEIVING = 1, 2, 3
"""The tracks (`tid`) of every node."""

TRACKS = {EXECUTOR: "executor", SENDING: "sending", RECEIVING: "receiving"}

LEAST_WAIT_S = 1e-4
"""Shorter gaps between two firings are not shown as waits."""

MOST_EVENTS = 1_000_000
"""The most events that are kept of one agent; further ones are counted as dropped."""

_EVENT = struct.Struct(TRACE_EVENT)
_KINDS = {int(kind): kind for kind in TraceKind}

Span: TypeAlias = dict[str, Any]
"""An event of the format: name, cat, ph, ts and dur in microseconds, pid, tid, args."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """An event of an agent; `number` is a phase's or a channel's, times are on its own clock."""

    kind: TraceKind
    number: int
    frame: int
    began_s: float
    took_s: float


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """The trace of one node and the estimate of its clock."""

    clock: Clock
    events: Sequence[TraceRecord]
    dropped: int = 0


def chrome_trace(blueprint: Blueprint, nodes: Mapping[str, NodeTrace]) -> dict[str, Any]:
    """Return the file's content as JSON-like data; `otherData` has clocks and dropped events."""
    channels = {
        channel.number: channel
        for deployment in blueprint.deployments.values()
        for channel in deployment.channels
    }
    numbers = {node: number for number, node in enumerate(nodes, start=1)}
    spans: list[Span] = []
    for node, trace in nodes.items():
        phases = [phase.name for phase in blueprint.deployments[node].phases]
        spans += _node_spans(numbers[node], trace, phases, channels)
    spans += _transfer_spans(nodes, numbers, channels)
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


def _node_spans(
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
            what, track = ("send", SENDING) if is_sent else ("receive", RECEIVING)
            yield {"name": what, "cat": what, "tid": track, **where, "args": args}


def _transfer_spans(
    nodes: Mapping[str, NodeTrace], numbers: Mapping[str, int], channels: Mapping[int, ChannelSpec]
) -> Iterator[Span]:
    """Yield the beginning and the end of each tensor's transfer between nodes."""
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
                "tid": RECEIVING,
                "args": {"tensor": channel.tensor, "frame": event.frame,
                         "from": numbers.get(channel.source_node)},
            }  # fmt: skip
            yield {**span, "ph": "b", "ts": began_s * 1e6}
            yield {**span, "ph": "e", "ts": ended_s * 1e6}


class Tracer(TraceRequests):
    """Requests and collects the traces of one run, from the `begin` of an epoch on."""

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[str, list[TraceRecord]] = {}
        self._dropped: dict[str, int] = {}

    def before(self, node: str, message: Control) -> GetTrace | None:
        """Return the request to send before `message`, if any: a trace lasts from `Start` to
        `Stop`, which nodes that were never started may receive too."""
        if isinstance(message, Start):
            return self.begin(node)
        return self.ask(node) if isinstance(message, Stop) and node in self._agents else None

    def begin(self, node: str) -> GetTrace:
        """See `TraceRequests`."""
        self._events[node], self._dropped[node] = [], 0
        return super().begin(node)

    def receive(self, node: str, answer: Traced) -> None:
        """Handle an answer; the events of a late one are kept too."""
        asked = self._answered(node, answer)
        if asked is None or answer.number == asked.first:
            return
        usable = len(answer.events) - len(answer.events) % _EVENT.size
        kept = self._events[node]
        self._dropped[node] += answer.dropped
        for began_s, took_s, frame, number, kind in _EVENT.iter_unpack(answer.events[:usable]):
            if len(kept) < MOST_EVENTS and kind in _KINDS:
                kept.append(TraceRecord(_KINDS[kind], number, frame, began_s, took_s))
            else:
                self._dropped[node] += 1

    @property
    def nodes(self) -> Mapping[str, NodeTrace]:
        """The trace of every node that has answered."""
        return {
            node: NodeTrace(estimate(asked.trips), tuple(self._events[node]), self._dropped[node])
            for node, asked in self._agents.items()
            if asked.trips
        }

    def write(self, path: Path, blueprint: Blueprint) -> None:
        """Write the trace of the last epoch, which is `blueprint`'s.

        Nodes that were lost before are left out. Raises `RunFailedError` if the file cannot be
        written.
        """
        nodes = {node: made for node, made in self.nodes.items() if node in blueprint.deployments}
        try:
            write_whole(path, json.dumps(chrome_trace(blueprint, nodes)))
        except OSError as error:
            raise RunFailedError(f"--trace {path}: {cannot_write(error)}") from error
