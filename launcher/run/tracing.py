"""Asks agents what they do and when, while a run goes on, and writes it all to one file.

Every question is a round trip by which clocks are compared (`launcher.core.clocks`), and every
answer empties an agent's buffer. The first few follow each other; then each agent is asked a few
times a second, when the launcher is awake anyway, and once more before it is stopped.

Traces of several agents as one file in Chrome's trace event format, which Perfetto opens.

Every node is a process with three tracks: its executor with the firings and the waits between them,
what it hands to its sockets, what comes from them. A tensor under way from one node to another is
an asynchronous span of the node that it goes to, from when it was handed over until it came, which
is where clocks of different machines meet. Times are microseconds of the launcher's clock, counted
from the first event.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import Clock, RoundTrip, estimate
from launcher.errors import BadInputError, RunFailedError
from launcher.files import unwritten, write_whole
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

EXECUTOR, SENDING, COMING = 1, 2, 3
"""Tracks (`tid`) of every node."""

TRACKS = {EXECUTOR: "executor", SENDING: "sending", COMING: "receiving"}

LEAST_WAIT_S = 1e-4
"""Shorter gaps between two firings are no waits."""

Span: TypeAlias = dict[str, Any]
"""An event of the format: name, cat, ph, ts and dur in microseconds, pid, tid, args."""


@dataclass(frozen=True, slots=True)
class TraceRecord:
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
    events: Sequence[TraceRecord]
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


AT_ONCE = 8
"""Questions that follow each other at first."""

EVERY_S = 0.25

MOST_EVENTS = 1_000_000
"""Of one agent; the rest of a longer run is counted and left out."""

_EVENT = struct.Struct(TRACE_EVENT)
_KINDS = {int(kind): kind for kind in TraceKind}


@dataclass
class _Asked:
    """What is known of one agent."""

    sent_s: float = 0.0
    number: int = 0
    first: int = 0
    is_waiting: bool = False
    trips: list[RoundTrip] = field(default_factory=list)
    events: list[TraceRecord] = field(default_factory=list)
    dropped: int = 0


def check_trace_file(path: Path | None) -> None:
    """Raise `BadInputError` if a trace could not be written there."""
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadInputError(f"--trace {path}: it must be a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"--trace {path}: it must be a file that you may write")


class Tracer:
    """Questions and answers of one run; begins with an epoch's `begin`."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def before(self, node: str, message: Control) -> GetTrace | None:
        """What to ask a node before it gets `message`: from the start of an epoch to its stop,
        which also those get that were never started."""
        if isinstance(message, Start):
            return self.begin(node)
        return self.ask(node) if isinstance(message, Stop) and node in self._asked else None

    def begin(self, node: str) -> GetTrace:
        """The first question of an epoch: records from before it have other numbers."""
        number = self._asked[node].number if node in self._asked else 0
        self._asked[node] = _Asked(number=number, first=number + 1)
        return self.ask(node)

    def ask(self, node: str) -> GetTrace:
        """A question to a node, which is to be sent now."""
        asked = self._asked[node]
        asked.number += 1
        asked.is_waiting, asked.sent_s = True, time.monotonic()
        return GetTrace(asked.number)

    def due(self, now_s: float) -> list[str]:
        """The nodes that are to be asked again."""
        return [
            node
            for node, asked in self._asked.items()
            if not asked.is_waiting
            and (len(asked.trips) < AT_ONCE or now_s >= asked.sent_s + EVERY_S)
        ]

    def receive(self, node: str, answer: Traced) -> None:
        """Take an answer, also one that nobody waits for any more: it has events."""
        asked = self._asked.get(node)
        if asked is None or answer.number < asked.first:
            return
        if asked.is_waiting and answer.number == asked.number:
            asked.is_waiting = False
            asked.trips.append(RoundTrip(asked.sent_s, answer.now_s, time.monotonic()))
        if answer.number == asked.first:
            return
        usable = len(answer.events) - len(answer.events) % _EVENT.size
        asked.dropped += answer.dropped
        for began_s, took_s, frame, number, kind in _EVENT.iter_unpack(answer.events[:usable]):
            if len(asked.events) < MOST_EVENTS and kind in _KINDS:
                asked.events.append(TraceRecord(_KINDS[kind], number, frame, began_s, took_s))
            else:
                asked.dropped += 1

    @property
    def nodes(self) -> Mapping[str, NodeTrace]:
        """The records of every node that answered."""
        return {
            node: NodeTrace(estimate(asked.trips), tuple(asked.events), asked.dropped)
            for node, asked in self._asked.items()
            if asked.trips
        }

    def write(self, path: Path, blueprint: Blueprint) -> None:
        """One file, as Perfetto and Chrome read it; raises `RunFailedError` if it cannot be.

        It is of the last epoch, which is `blueprint`'s: nodes that were lost before are left out.
        """
        nodes = {node: of for node, of in self.nodes.items() if node in blueprint.deployments}
        try:
            write_whole(path, json.dumps(chrome_trace(blueprint, nodes)))
        except OSError as error:
            raise RunFailedError(f"--trace {path}: {unwritten(error)}") from error
