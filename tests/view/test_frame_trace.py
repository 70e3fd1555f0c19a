"""Frames that are followed: which firings are theirs, and what happens if agents do not answer."""

from __future__ import annotations

import struct
import time

from launcher.core.blueprint import Blueprint, Dealing
from launcher.view.frame_trace import ANSWERS_S, FrameTrace, FrameTracer, phases_of
from nodes.protocol.messages import (
    HOST,
    TRACE_EVENT,
    BlobInfo,
    ChannelSpec,
    Deployment,
    GetTrace,
    PhaseSpec,
    Start,
    Stop,
    Traced,
    TraceKind,
)

BLOB = BlobInfo("a" * 64, 10)


def channel(number: int, source: tuple[str, int | None], target: tuple[str, int]) -> ChannelSpec:
    ends = (source[0], source[1], target[0], () if target[0] == HOST else (target[1],))
    return ChannelSpec(number, f"t{number}", "float32", (1,), *ends, 2)


def two_copies() -> Blueprint:
    """Node a has a phase of each copy; b has the second phase of copy 0, c that of copy 1."""
    channels = [
        channel(0, (HOST, None), ("a", 0)),
        channel(1, (HOST, None), ("a", 1)),
        channel(2, ("a", 0), ("b", 0)),
        channel(3, ("a", 1), ("c", 0)),
        channel(4, ("b", 0), (HOST, 0)),
        channel(5, ("c", 0), (HOST, 0)),
    ]
    phases = {"a": ("a.0", "a.1"), "b": ("b.0",), "c": ("c.0",)}
    deployments = {
        node: Deployment(
            1,
            node,
            "pipelined",
            tuple(PhaseSpec(name, BLOB, None, (), ()) for name in names),
            tuple(c for c in channels if node in (c.source_node, c.target_node)),
            (),
        )
        for node, names in phases.items()
    }
    dealing = Dealing((0, 1), {0: 0, 1: 1, 4: 0, 5: 1})
    return Blueprint(1, deployments, tuple(channels[:2]), tuple(channels[4:]), dealing=dealing)


class Agents:
    """Answers a tracer's requests with clocks that are `ahead_s`, and with these firings."""

    def __init__(self, ahead_s: float = 1000.0) -> None:
        self.ahead_s = ahead_s
        self.fired: dict[str, list[tuple[float, float, int, int, int]]] = {}

    def fire(self, node: str, phase: int, frame: int) -> None:
        began_s = time.monotonic() + self.ahead_s
        fired = (began_s, 0.001, frame, phase, int(TraceKind.FIRED))
        self.fired.setdefault(node, []).append(fired)

    def answer(self, node: str, asked: GetTrace) -> Traced:
        events = [event for event in self.fired.get(node, ()) if event[2] in asked.frames]
        data = b"".join(struct.pack(TRACE_EVENT, *event) for event in events)
        return Traced(asked.number, time.monotonic() + self.ahead_s, data, 0)


def begun(agents: Agents, *nodes: str) -> FrameTracer:
    tracer = FrameTracer()
    for node in nodes:
        first = tracer.before(node, Start(1))
        assert first is not None
        tracer.receive(node, agents.answer(node, first))
    return tracer


def take(tracer: FrameTracer, trace: FrameTrace) -> None:
    trace.taken_s = time.monotonic()
    tracer.took(trace)


def ask_all(tracer: FrameTracer, agents: Agents, now_s: float) -> None:
    for node in tracer.due(now_s):
        tracer.receive(node, agents.answer(node, tracer.ask(node)))
    tracer.due(now_s)


def test_the_phases_that_a_frame_reaches_are_those_of_its_copy() -> None:
    assert phases_of(two_copies(), 0) == {("a", 0), ("b", 0)}
    assert phases_of(two_copies(), 1) == {("a", 1), ("c", 0)}


def test_a_frame_gets_the_firings_of_its_own_copy_and_number_by_the_launchers_clock() -> None:
    agents = Agents()
    tracer = begun(agents, "a", "b", "c")
    trace = FrameTrace()
    agents.fire("a", 1, 7)  # of an earlier epoch
    time_before_s = time.monotonic()
    trace.sent(two_copies(), copy=1, frame=7)
    for node, phase, frame in [("a", 0, 7), ("a", 1, 7), ("a", 1, 8), ("b", 0, 7), ("c", 0, 7)]:
        agents.fire(node, phase, frame)
    take(tracer, trace)
    ask_all(tracer, agents, time.monotonic() + 1)
    assert trace.complete.done()
    assert [(firing.node, firing.phase) for firing in trace.firings] == [("a", "a.1"), ("c", "c.0")]
    for firing in trace.firings:
        assert abs(firing.began_s - time_before_s) < 1
        assert abs(firing.ended_s - firing.began_s - 0.001) < 1e-6


def test_a_frame_is_complete_without_an_agent_that_is_stopped_or_silent() -> None:
    agents = Agents()
    tracer = begun(agents, "a", "c")
    stopped, silent = FrameTrace(), FrameTrace()
    stopped.sent(two_copies(), copy=1, frame=0)
    take(tracer, stopped)
    tracer.before("a", Stop(1))
    tracer.before("c", Stop(1))
    tracer.due(time.monotonic())
    assert stopped.complete.done()
    tracer.before("a", Start(2))
    silent.sent(two_copies(), copy=0, frame=0)
    take(tracer, silent)
    tracer.due(silent.taken_s + ANSWERS_S / 2)
    assert not silent.complete.done()
    tracer.due(silent.taken_s + ANSWERS_S)
    assert silent.complete.done()
    assert silent.firings == ()


def test_frames_that_are_left_at_the_end_of_a_run_are_complete() -> None:
    tracer = begun(Agents(), "a")
    trace = FrameTrace()
    trace.sent(two_copies(), copy=0, frame=0)
    take(tracer, trace)
    tracer.close()
    assert trace.complete.done()
