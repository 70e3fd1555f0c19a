"""Firings that are over before they could be handed to another thread: who computes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event, get_native_id

import numpy as np
import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.executors import onnx_runtime
from nodes.executors.tensor_rt import TensorRtExecutor
from nodes.worker import PATIENCE_S, Worker, is_set_apart
from tests.nodes.test_worker import (
    DEPLOYMENT,
    WAIT_S,
    AddOne,
    Engine,
    frame,
    loaded,
    numbers,
)

ANYTHING_S, NOTHING_S = 10.0, 1e-9
"""Every run is as brief as the one, none as the other."""


class Watched(Engine):
    """Keeps the threads that its subnets ran in; may do something in the one that loads."""

    def __init__(self) -> None:
        super().__init__()
        self.ran_in: list[int] = []
        self.loads_in: list[int] = []

    def load(self, graph, options):
        self.loads_in.append(get_native_id())
        subnet: AddOne = super().load(graph, options)
        compute = subnet.run

        def run(inputs):
            self.ran_in.append(get_native_id())
            return compute(inputs)

        subnet.run = run
        return subnet


def slowed(compute, seconds: float):
    return lambda inputs: (Event().wait(seconds), compute(inputs))[1]


@pytest.fixture
def engine() -> Watched:
    return Watched()


def made(engine: Engine, brief_s: float) -> Iterator[Worker]:
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(engine, reported.put, brief_s=brief_s)
    worker.reported = lambda: reported.get(timeout=WAIT_S)
    worker.is_silent = reported.empty
    yield worker
    assert worker.stop(WAIT_S)


@pytest.fixture
def brief(engine: Watched) -> Iterator[Worker]:
    yield from made(engine, ANYTHING_S)


@pytest.fixture
def long(engine: Watched) -> Iterator[Worker]:
    yield from made(engine, NOTHING_S)


def test_brief_firings_are_computed_at_once_by_whoever_asks(brief: Worker, engine: Watched) -> None:
    assert isinstance(loaded(brief), ev.Loaded)
    assert get_native_id() not in {*engine.ran_in, *engine.loads_in}
    engine.ran_in.clear()
    for k in range(2):
        ended = [
            brief.fire(Fire(1, phase, k, {"x": frame(k)} if not phase else {}))
            for phase in range(3)
        ]
        assert [(e.phase, e.frame) for e in ended] == [(0, k), (1, k), (2, k)]
        sent = [{t: numbers(p) for t, p in e.outputs.items()} for e in ended]
        assert sent == [{"y": {k + 1.0}}, {"z": {k + 2.0}}, {"w": {k + 2.0}}]
    assert engine.ran_in == [get_native_id()] * 6
    assert brief.is_silent()
    assert not brief._store


def test_longer_ones_are_computed_by_its_thread(long: Worker, engine: Watched) -> None:
    loaded(long)
    engine.ran_in.clear()
    assert long.fire(Fire(1, 0, 0, {"x": frame(0)})) is None
    assert isinstance(long.reported(), ev.FiringEnded)
    assert engine.ran_in == engine.loads_in[:1]


def test_one_longer_phase_is_enough_to_hand_all_of_them_over(engine: Watched) -> None:
    load = engine.load

    def slow_second(graph, options):
        subnet = load(graph, options)
        if graph.name.startswith("y-z"):
            compute = subnet.run
            subnet.run = lambda inputs: (sum(range(1_000_000)), compute(inputs))[1]
        return subnet

    engine.load = slow_second
    for worker in made(engine, 0.002):
        seconds = loaded(worker).phase_s
        assert seconds[0] < 0.002 < seconds[1]
        assert worker.fire(Fire(1, 0, 0, {"x": frame(0)})) is None
        assert isinstance(worker.reported(), ev.FiringEnded)


def test_firings_that_are_no_longer_brief_go_back_to_its_thread(engine: Watched) -> None:
    """In order, with what lies in the store; the next deployment begins anew."""
    for worker in made(engine, 0.005):
        assert isinstance(loaded(worker), ev.Loaded)
        first = engine.loaded[0]
        first.run = slowed(first.run, 0.08)
        for k in range(2):
            assert worker.fire(Fire(1, 0, k, {"x": frame(k)})) is not None
        first.run = slowed(first.run, 0.12)
        assert worker.fire(Fire(1, 0, 2, {"x": frame(2)})) is not None
        engine.ran_in.clear()
        for phase in (1, 2):
            assert worker.fire(Fire(1, phase, 2, {})) is None
            ended = worker.reported()
            assert (ended.phase, ended.frame) == (phase, 2)
        assert set(engine.ran_in) == set(engine.loads_in)
        worker.unload(1)
        assert worker.reported() == ev.Unloaded(1)
        loaded(worker, replace(DEPLOYMENT, epoch=2))
        assert worker.fire(Fire(2, 0, 0, {"x": frame(0)})) is not None
        assert worker._brief_epoch == 2


def test_rare_long_firings_change_nothing(brief: Worker) -> None:
    loaded(brief)
    brief._excess_s = PATIENCE_S / 2
    assert brief.fire(Fire(1, 0, 0, {"x": frame(0)})) is not None
    assert brief._excess_s == 0.0
    assert brief._brief_epoch == 1


def test_engines_that_run_where_they_were_loaded_keep_their_thread(
    brief: Worker, engine: Watched
) -> None:
    engine.is_bound_to_thread = True
    loaded(brief)
    assert brief.fire(Fire(1, 0, 0, {"x": frame(0)})) is None
    assert isinstance(brief.reported(), ev.FiringEnded)
    assert set(engine.ran_in) == set(engine.loads_in)


def test_engines_on_a_gpu_run_where_they_were_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    assert TensorRtExecutor.is_bound_to_thread
    for providers in ((), ("CUDAExecutionProvider",)):
        monkeypatch.setattr(onnx_runtime, "gpu_providers", lambda *_, found=providers, **__: found)
        executor = onnx_runtime.OnnxRuntimeExecutor(tmp_path)
        assert executor.is_bound_to_thread == bool(providers)
        executor.close()


def test_an_error_in_a_brief_firing_is_its_end(brief: Worker) -> None:
    loaded(brief)
    failed = brief.fire(Fire(1, 0, 5, {"x": frame(np.nan)}))
    assert isinstance(failed, ev.FiringFailed)
    assert failed.reason == "phase 'first' at frame 5: ValueError: not a number"
    assert isinstance(brief.fire(Fire(1, 0, 0, {"x": frame(1)})), ev.FiringEnded)


def test_after_unloading_the_number_of_an_epoch_tells_nothing(
    brief: Worker, engine: Watched
) -> None:
    """A new session counts its epochs anew."""
    loaded(brief)
    brief.fire(Fire(1, 0, 0, {"x": frame(0)}))
    brief.unload(1)
    assert brief.reported() == ev.Unloaded(1)
    assert all(subnet.closed for subnet in engine.loaded)
    assert not brief._store
    brief._brief_s = NOTHING_S
    loaded(brief)
    assert brief.fire(Fire(1, 0, 0, {"x": frame(0)})) is None
    assert isinstance(brief.reported(), ev.FiringEnded)
    brief._brief_s = ANYTHING_S
    brief.unload(1)
    assert brief.reported() == ev.Unloaded(1)
    loaded(brief, replace(DEPLOYMENT, epoch=2))
    assert isinstance(brief.fire(Fire(2, 0, 0, {"x": frame(0)})), ev.FiringEnded)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU only")
def test_a_thread_that_is_bound_to_a_cpu_keeps_its_work(brief: Worker, engine: Watched) -> None:
    """Whoever bounds the thread that computes means what it computes."""
    loads = engine.load

    def bound(graph, options):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        return loads(graph, options)

    engine.load = bound
    loaded(brief)
    assert brief.fire(Fire(1, 0, 0, {"x": frame(0)})) is None
    assert isinstance(brief.reported(), ev.FiringEnded)


@pytest.mark.parametrize(
    ("thread", "process", "expected"),
    [("0::/a\n", "0::/a\n", False), ("0::/a/slow\n", "0::/a\n", True), (None, None, False)],
)
def test_a_thread_in_a_control_group_of_its_own_is_set_apart(
    tmp_path: Path, thread: str | None, process: str | None, expected: bool
) -> None:
    for name, groups in (("thread-self", thread), ("self", process)):
        (tmp_path / name).mkdir()
        if groups is not None:
            (tmp_path / name / "cgroup").write_text(groups)
    assert is_set_apart(tmp_path) is expected
