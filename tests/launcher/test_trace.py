"""The traces of all agents in one file, and how much of their communication is hidden."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import Clock
from launcher.errors import BadInputError
from launcher.files import check_can_write
from launcher.run.tracing import NodeTrace, Tracer, TraceRecord, chrome_trace
from nodes.protocol.messages import (
    TRACE_EVENT,
    BlobInfo,
    ChannelSpec,
    Deployment,
    GetTrace,
    PhaseSpec,
    Ping,
    Start,
    Stop,
    Traced,
    TraceKind,
)

CHANNEL = ChannelSpec(3, "t", "float32", (1,), "a", 0, "b", (0,), 2)


def blueprint() -> Blueprint:
    blob = BlobInfo("0" * 64, 1)
    deployments = {
        node: Deployment(
            1, node, "pipelined", (PhaseSpec(f"{node}/0", blob, None, (), ()),), (CHANNEL,), ()
        )
        for node in "ab"
    }
    return Blueprint(1, deployments, (), (), ())


def trace() -> dict[str, NodeTrace]:
    """b's clock is 100 s ahead. The tensor of frame 0 is under way from 1 to 3 while a fires."""
    fired, sent, came = TraceKind.FIRED, TraceKind.SENT, TraceKind.CAME
    a = [TraceRecord(fired, 0, 0, 0.0, 1.0), TraceRecord(sent, 3, 0, 1.0, 0.1),
         TraceRecord(fired, 0, 1, 1.5, 1.0)]  # fmt: skip
    b = [TraceRecord(came, 3, 0, 103.0, 0.0), TraceRecord(fired, 0, 0, 103.0, 1.0)]
    return {"a": NodeTrace(Clock(), a), "b": NodeTrace(Clock(ahead_s=100.0), b, dropped=2)}


def test_spans_of_all_nodes_are_on_one_clock() -> None:
    made = chrome_trace(blueprint(), trace())
    assert json.loads(json.dumps(made)) == made
    spans = [e for e in made["traceEvents"] if e["ph"] != "M"]
    told = {(e["name"], e["pid"], e["ph"], e["ts"], e.get("dur")) for e in spans}
    assert told == {
        ("a/0 · 0", 1, "X", 0.0, 1e6), ("send", 1, "X", 1e6, 1e5), ("waiting", 1, "X", 1e6, 5e5),
        ("a/0 · 1", 1, "X", 1.5e6, 1e6), ("a → b", 2, "b", 1e6, None), ("a → b", 2, "e", 3e6, None),
        ("receive", 2, "X", 3e6, 0.0), ("b/0 · 0", 2, "X", 3e6, 1e6),
    }  # fmt: skip
    assert made["otherData"]["b"] == {
        "clock_ahead_s": 100.0, "clock_drift": 0.0, "clock_error_s": 0.0, "events_dropped": 2,
    }  # fmt: skip


def events(*frames: int) -> bytes:
    return b"".join(struct.pack(TRACE_EVENT, 1.0, 0.5, f, 0, TraceKind.FIRED) for f in frames)


def test_what_a_node_noted_before_the_epoch_is_left_out() -> None:
    tracer = Tracer()
    first = tracer.begin("a")
    assert tracer.due(1e12) == [], "it has not answered"
    tracer.receive("a", Traced(first.number, 5.0, events(7), 0))
    assert tracer.due(0.0) == ["a"], "the first questions follow each other"
    again = tracer.ask("a")
    tracer.receive("a", Traced(again.number, 6.0, events(0, 1), 3))
    tracer.receive("stranger", Traced(1, 0.0, b"", 0))
    told = tracer.nodes["a"]
    assert ([event.frame for event in told.events], told.dropped) == ([0, 1], 3)
    anew = tracer.begin("a")
    tracer.receive("a", Traced(anew.number - 1, 7.0, events(2), 0))
    tracer.receive("a", Traced(anew.number, 8.0, events(3), 0))
    assert tracer.nodes["a"].events == ()


def test_a_node_is_asked_when_it_starts_and_stops_even_if_it_never_started() -> None:
    tracer = Tracer()
    assert tracer.before("a", Stop(0)) is None, "it was lost while it loaded"
    assert tracer.before("a", Start(1)) == GetTrace(1)
    assert tracer.before("a", Ping()) is None
    assert tracer.before("a", Stop(1)) == GetTrace(2)


def test_a_node_that_was_lost_on_the_way_is_not_in_the_file(tmp_path: Path) -> None:
    tracer = Tracer()
    for node in ("a", "lost"):
        tracer.receive(node, Traced(tracer.begin(node).number, 5.0, b"", 0))
        tracer.receive(node, Traced(tracer.ask(node).number, 6.0, events(0), 0))
    tracer.write(tmp_path / "t.json", blueprint())
    assert set(json.loads((tmp_path / "t.json").read_text())["otherData"]) == {"a"}


def test_where_no_file_can_be_it_is_said_at_once(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none" / "t.json"):
        with pytest.raises(BadInputError, match=r"--trace .* a folder that exists"):
            check_can_write(path, "--trace")
    check_can_write(tmp_path / "t.json", "--trace")
    check_can_write(None, "--trace")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(BadInputError, match=r"--trace .* that you may write"):
        check_can_write(tmp_path / "t.json", "--trace")
