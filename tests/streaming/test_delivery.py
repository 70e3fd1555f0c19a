"""Results reach a sink once, in order, and each is counted for what became of it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.model import Model
from launcher.config.ends.sink import FrameResult
from launcher.config.run import Overload, ReconnectConfig
from launcher.errors import RunFailedError
from launcher.run.parts import Part
from launcher.streaming.delivery import Delivery, SinkCounts
from launcher.view.history import quantile_s
from tests.streaming.parts import (
    WAIT_S,
    Answer,
    GatedSink,
    ScriptedSink,
    SimulatedClock,
    delivery,
    result,
)


@given(
    st.lists(st.sampled_from(["taken", "lost", "refused"]), max_size=40),
    st.integers(0, 20),
    st.sampled_from(["drop-oldest", "drop-newest"]),
    st.integers(1, 10),
)
def test_every_result_is_delivered_once_in_order_or_counted(
    answers: list[Answer], results: int, overload: Overload, places: int
) -> None:
    sink = ScriptedSink(answers)
    delivering = delivery(sink, overload, places)
    for index in range(results):
        assert delivering.put(result(index), 0.0)
    assert delivering.counts == SinkCounts(results, 0, max(0, results - places), 0)
    delivering.finish()
    delivering.run()
    kept = range(results)[-places:] if overload == "drop-oldest" else range(results)[:places]
    assert sorted(sink.indices + sink.refused) == list(kept)
    assert sink.indices == sorted(sink.indices)
    counts = delivering.counts
    assert (counts.delivered, counts.refused) == (len(sink.taken), len(sink.refused))
    assert counts.waiting == 0
    assert sink.closed == 1


def test_a_result_that_could_not_be_delivered_is_written_again_after_growing_waits() -> None:
    clock, said = SimulatedClock(), list[str]()
    sink = ScriptedSink(["taken", "lost", "lost", "lost", "taken", "lost"])
    delivering = delivery(sink, clock=clock, say=said.append)
    for index in range(3):
        delivering.put(result(index), 0.0)
    delivering.finish()
    delivering.run()
    assert sink.indices == [0, 1, 2]
    assert clock.waits_s == [0.5, 1.0, 2.0, 0.5]
    assert delivering.losses == 2
    assert said[:2] == [
        "the test's sink: no connection; trying again",
        "the test's sink: results are delivered again",
    ]


def test_a_latency_lasts_from_reading_until_delivery() -> None:
    sink = ScriptedSink(["lost"])
    delivering = delivery(sink, clock=SimulatedClock())
    delivering.put(result(0), -2.0)
    delivering.finish()
    delivering.run()
    assert quantile_s(delivering.latencies.view(), 0.5) == pytest.approx(2.5, rel=0.011)


def test_a_sink_that_failed_too_often_ends_the_run_and_is_closed() -> None:
    sink = ScriptedSink(["lost"] * 9)
    delivering = delivery(sink, reconnect=ReconnectConfig(tries=3))
    delivering.put(result(0), 0.0)
    with pytest.raises(RunFailedError, match=r"no connection \(3 failures in a row"):
        delivering.run()
    assert sink.closed == 1
    assert delivering.counts.waiting == 1


class BrokenSink(ScriptedSink):
    def write(self, result: FrameResult) -> None:
        raise RunFailedError(f"the disk is full at frame {result.index}")

    def close(self) -> None:
        super().close()
        raise OSError("nor can it be closed")


def test_the_first_error_of_a_sink_is_the_one_that_is_reported() -> None:
    sink = BrokenSink()
    delivering = delivery(sink)
    delivering.put(result(0), 0.0)
    with pytest.raises(RunFailedError, match="the disk is full at frame 0"):
        delivering.run()
    assert sink.closed == 1


def test_a_result_that_is_being_written_waits() -> None:
    sink = GatedSink()
    delivering = delivery(sink)
    thread = threading.Thread(target=delivering.run)
    thread.start()
    delivering.put(result(0), 0.0)
    delivering.put(result(1), 0.0)
    assert sink.began.acquire(timeout=WAIT_S)
    assert delivering.counts == SinkCounts(given=2)
    delivering.abandon()
    sink.gate.release()
    thread.join(WAIT_S)
    assert delivering.counts == SinkCounts(given=2, delivered=1)
    assert delivering.counts.waiting == 1
    assert sink.closed == 1
    assert len(sink.threads) == 1


def test_of_networks_side_by_side_a_sink_gets_the_outputs_of_its_own() -> None:
    sink = ScriptedSink()
    model = SimpleNamespace(network=SimpleNamespace(name="gate"), outputs=("y",))
    part = Part(cast(Model, model), is_alone=False)
    delivering = Delivery(sink, ReconnectConfig(), lambda _: None, part=part)
    both = {"gate/y": np.array([1]), "yard/y": np.array([2])}
    assert delivering.put(FrameResult(0, 0.0, both), 0.0)
    delivering.finish()
    delivering.run()
    assert sink.taken[0].outputs == {"y": both["gate/y"]}
