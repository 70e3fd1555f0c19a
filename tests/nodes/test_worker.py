"""The executor thread: order, errors, what it holds and when it lets go; its own engine."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import numpy as np
import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.execution.rehearsal import FEWEST_ROUNDS, MOST_ROUNDS, Rehearsal
from nodes.execution.worker import COUNTED_EVERY, COUNTED_FIRST, LONG_S, Worker
from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.host.usage import usage
from nodes.protocol.messages import (
    HOST,
    BlobInfo,
    ChannelSpec,
    Deployed,
    Deployment,
    EngineChoice,
    EngineOption,
    PeerSpec,
    PhaseSpec,
    Progress,
)
from tests.arm64.marks import not_in_qemu

WAIT_S = 10.0
BLOB = BlobInfo("a" * 64, 1)
SHAPE = (2, 3)


class AddOne:
    """A subnet that adds one to its only input, for each of its outputs."""

    def __init__(self, engine: Engine, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        spec = TensorSpec("float32", engine.shape)
        self.inputs = dict.fromkeys(inputs, spec)
        self.outputs = dict.fromkeys(outputs, spec)
        self.engine = engine
        self.runs = 0
        self.closed = False

    def run(self, inputs):
        self.runs += 1
        self.engine.running.set()
        assert self.engine.may_run.wait(WAIT_S)
        (array,) = inputs.values()
        if np.isnan(array).any():
            raise ValueError("not a number")
        made = array + 1
        if (array < 0).any():
            made = made.astype(np.float64)
        return dict.fromkeys(self.outputs, made)

    def close(self):
        self.closed = True


class Engine:
    """Loads graphs called INPUT-OUTPUT,OUTPUT…; `may_run` holds runs up, `fail` breaks a load."""

    def __init__(self) -> None:
        self.may_run = Event()
        self.may_run.set()
        self.running = Event()
        self.loaded: list[AddOne] = []
        self.shape = SHAPE

    def describe(self):
        return "adds one"

    def prepare(self, graphs, options, on_done=None):
        for graph in graphs:
            on_done(graph)

    def load(self, graph, options):
        self.threads = options.threads
        self.options = options
        if graph.name == "broken":
            raise ExecutorError("broken: no such operator")
        inputs, _, outputs = graph.name.partition("-")
        self.loaded.append(AddOne(self, (inputs,), tuple(outputs.split(","))))
        return self.loaded[-1]

    def interrupt(self):
        pass

    def resume(self):
        pass

    def close(self):
        pass


def channel(number, tensor, source, phase, target, phases):
    return ChannelSpec(number, tensor, "float32", SHAPE, source, phase, target, phases, 2)


GRAPHS = (Path("x-y"), Path("y-z"), Path("y-w"))
DEPLOYMENT = Deployment(
    1,
    "n",
    "pipelined",
    (
        PhaseSpec("first", BLOB, None, ("x",), ("y",)),
        PhaseSpec("second", BLOB, None, ("y",), ("z",)),
        PhaseSpec("third", BLOB, None, ("y",), ("w",)),
    ),
    (
        channel(0, "x", HOST, None, "n", (0,)),
        channel(1, "y", "n", 0, "n", (1, 2)),
        channel(2, "y", "n", 0, "m", (0,)),
        channel(3, "z", "n", 1, HOST, ()),
        channel(4, "w", "n", 2, HOST, ()),
    ),
    (PeerSpec("m", "tcp://m:1"),),
)


@pytest.fixture
def engine():
    return Engine()


@contextmanager
def working(engine):
    """A worker; its `reported` waits for its next event."""
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(engine, reported.put)
    worker.reported = lambda: reported.get(timeout=WAIT_S)
    yield worker
    engine.may_run.set()
    assert worker.stop(WAIT_S)


@pytest.fixture
def worker(engine):
    with working(engine) as worker:
        yield worker


def loaded(worker: Worker, deployment=DEPLOYMENT, graphs=GRAPHS) -> ev.Event:
    worker.load(deployment, graphs)
    while isinstance(event := worker.reported(), Progress):
        pass
    return event


def frame(value: float) -> bytes:
    return np.full(SHAPE, value, np.float32).tobytes()


def numbers(payload) -> set[float]:
    return set(np.frombuffer(payload, np.float32).tolist())


def test_loads_and_warms_up_every_phase(worker, engine):
    event = loaded(worker)
    assert isinstance(event, Deployed)
    assert len(event.phase_s) == 3
    runs = {subnet.runs for subnet in engine.loaded}
    assert len(runs) == 1
    assert FEWEST_ROUNDS <= runs.pop() <= MOST_ROUNDS


@pytest.mark.parametrize(("asked", "given"), [(1, 1), (1024, len(os.sched_getaffinity(0)))])
def test_an_engine_gets_no_more_threads_than_there_are_processors(
    worker, engine, asked, given, monkeypatch
):
    rehearsed = []

    def rehearsal(loopback, threads, others):
        rehearsed.append(threads)
        return Rehearsal(loopback, threads, others)

    monkeypatch.setattr("nodes.execution.loading.Rehearsal", rehearsal)
    assert isinstance(loaded(worker, replace(DEPLOYMENT, threads=asked)), Deployed)
    assert engine.threads == given
    assert rehearsed == [given]


def test_passes_local_tensors_on_and_sends_only_what_leaves(worker):
    loaded(worker)
    for k in range(2):
        worker.fire(Fire(1, 0, k, {"x": frame(k)}))
        worker.fire(Fire(1, 1, k, {}))
        worker.fire(Fire(1, 2, k, {}))
        ended = [worker.reported() for _ in range(3)]
        assert [(e.phase, e.frame) for e in ended] == [(0, k), (1, k), (2, k)]
        sent = [{t: numbers(p) for t, p in e.outputs.items()} for e in ended]
        assert sent == [{"y": {k + 1.0}}, {"z": {k + 2.0}}, {"w": {k + 2.0}}]
        assert all(e.busy_s > 0 for e in ended)
    assert not worker._store


@not_in_qemu
def test_while_it_computes_it_gives_back_what_was_needed_for_a_moment(engine):
    worker = Worker(engine, (reported := SimpleQueue()).put, trim_period_s=0.0)
    worker.reported = lambda: reported.get(timeout=WAIT_S)
    loaded(worker)
    burst = [(np.ones(100_000, np.uint8), np.ones(2_000, np.uint8)) for _ in range(500)]
    kept = [small for _, small in burst]  # between the large ones, which leave holes in the heap
    full_bytes = usage().rss_bytes
    del burst
    for k in range(2):  # the memory is given back behind the report of a firing
        worker.fire(Fire(1, 0, k, {"x": frame(k)}))
        worker.reported()
    assert usage().rss_bytes < full_bytes - 30_000_000
    assert len(kept) == 500
    assert worker.stop(WAIT_S)


def test_waits_for_other_processes_are_counted_for_few_of_many_quick_firings(worker):
    loaded(worker)
    before_s = 0.0
    for k in range(COUNTED_FIRST - 2, COUNTED_FIRST + 3 * COUNTED_EVERY):
        for phase, inputs in enumerate(({"x": frame(k)}, {}, {})):
            worker.fire(Fire(1, phase, k, inputs))
        ended, *_ = (worker.reported() for _ in range(3))
        is_due = k < COUNTED_FIRST or k % COUNTED_EVERY == 0
        assert (ended.undisturbed_s > 0) == (is_due or before_s > LONG_S)
        before_s = ended.busy_s


def encoded_as(encoding: str) -> Deployment:
    """The deployment in which what leaves for m, and what comes from k, is encoded."""
    x, y, *others = DEPLOYMENT.channels
    channels = (replace(x, source_node="k", source_phase=0, encoding=encoding), y, *others)
    return replace(
        DEPLOYMENT,
        channels=tuple(
            replace(each, encoding=encoding) if each.target_node == "m" else each
            for each in channels
        ),
    )


def test_decodes_what_comes_and_encodes_what_leaves(worker):
    assert isinstance(loaded(worker, encoded_as("fp16")), Deployed)
    worker.fire(Fire(1, 0, 0, {"x": np.full(SHAPE, 0.5, np.float16).tobytes()}))
    ended = worker.reported()
    assert not ended.outputs, "nobody reads it raw, so nothing holds it"
    assert ended.encoded.keys() == {2}
    assert set(np.frombuffer(ended.encoded[2], np.float16).tolist()) == {1.5}
    worker.fire(Fire(1, 1, 0, {}))
    assert numbers(worker.reported().outputs["z"]) == {2.5}, "on this node it was not rounded"


def test_what_cannot_be_decoded_is_blamed_on_the_node_that_sent_it(worker):
    loaded(worker, encoded_as("int8"))
    worker.fire(Fire(1, 0, 5, {"x": b"short"}))
    failed = worker.reported()
    assert isinstance(failed, ev.FiringFailed)
    assert (failed.phase, failed.frame, failed.peer) == (0, 5, "k")
    assert "cannot be decoded as int8" in failed.reason


def test_an_encoding_that_is_missing_here_fails_the_load_with_what_to_install(worker, monkeypatch):
    monkeypatch.setattr("nodes.execution.encoding.AVAILABLE", ("raw",))
    failed = loaded(worker, encoded_as("lossless"))
    assert isinstance(failed, ev.LoadFailed)
    assert "install csdf-edge[lossless]" in failed.reason


def test_keeps_a_local_tensor_until_its_last_reader_has_run(worker):
    loaded(worker)
    worker.fire(Fire(1, 0, 0, {"x": frame(0)}))
    worker.fire(Fire(1, 2, 0, {}))
    assert [worker.reported().phase for _ in range(2)] == [0, 2]
    assert list(worker._store) == [("y", 0)]


@pytest.mark.parametrize(
    ("value", "told"),
    [(np.nan, "ValueError: not a number"), (-1.0, "was computed as float64[2, 3]")],
)
def test_an_error_while_computing_names_phase_and_frame(worker, value, told):
    loaded(worker)
    worker.fire(Fire(1, 0, 5, {"x": frame(value)}))
    failed = worker.reported()
    assert isinstance(failed, ev.FiringFailed)
    assert (failed.phase, failed.frame) == (0, 5)
    assert failed.reason.startswith("phase 'first' at frame 5: ")
    assert told in failed.reason
    worker.fire(Fire(1, 0, 0, {"x": frame(1)}))
    assert isinstance(worker.reported(), ev.FiringEnded)


def test_an_engine_that_fails_to_close_a_subnet_does_not_end_the_thread(worker, engine):
    for _ in range(2):
        loaded(worker)

        def fail():
            raise RuntimeError("the driver is gone")

        for subnet in engine.loaded:
            subnet.close = fail
        worker.unload(1)
        assert isinstance(worker.reported(), ev.Unloaded)


def test_memory_that_only_loading_needed_is_given_back_before_it_is_reported(worker, monkeypatch):
    given_back: SimpleQueue[int] = SimpleQueue()
    monkeypatch.setattr("nodes.execution.worker.give_back_free_memory", lambda: given_back.put(1))
    loaded(worker)
    assert given_back.qsize() == 2  # before the rehearsal and after it
    for k in range(3):
        worker.fire(Fire(1, 0, k, {"x": frame(k)}))
        assert isinstance(worker.reported(), ev.FiringEnded)
    worker.unload(1)
    assert isinstance(worker.reported(), ev.Unloaded)
    assert given_back.qsize() == 3


WATCHED = replace(DEPLOYMENT, check_finite=True)


def broken(*values: float):
    """What a phase's engine does from now on: these values, whatever comes in."""
    return lambda inputs: {"y": np.resize(np.array(values, np.float32), SHAPE)}


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_a_phase_that_makes_nan_of_numbers_has_failed_if_the_user_wants(
    worker, engine, value, what
):
    loaded(worker, WATCHED)
    engine.loaded[0].run = broken(1, value)
    worker.fire(Fire(1, 0, 7, {"x": frame(0)}))
    failed = worker.reported()
    assert isinstance(failed, ev.FiringFailed)
    sentence = f"phase 'first' at frame 7: 'y' holds {what} although the inputs"
    assert failed.reason.startswith(sentence)


def test_nan_is_passed_on_where_nobody_asked_or_it_came_in_or_always_was_there(worker, engine):
    loaded(worker)
    engine.loaded[0].run = broken(np.inf)
    worker.fire(Fire(1, 0, 0, {"x": frame(0)}))
    assert isinstance(worker.reported(), ev.FiringEnded)
    worker.unload(1)
    worker.reported()
    loaded(worker, replace(WATCHED, epoch=2))
    worker.fire(Fire(2, 0, 0, {"x": frame(np.inf)}))
    assert isinstance(worker.reported(), ev.FiringEnded)
    worker.unload(2)
    worker.reported()
    load = engine.load
    engine.load = lambda graph, options: broken_from_the_start(load(graph, options))
    loaded(worker, replace(WATCHED, epoch=3))
    worker.fire(Fire(3, 0, 0, {"x": frame(0)}))
    assert isinstance(worker.reported(), ev.FiringEnded)


def broken_from_the_start(subnet: AddOne) -> AddOne:
    compute = subnet.run
    subnet.run = lambda inputs: {name: made * np.inf for name, made in compute(inputs).items()}
    return subnet


def test_a_phase_that_cannot_be_loaded_is_reported_and_can_be_unloaded(worker, engine):
    failed = loaded(worker, graphs=(GRAPHS[0], Path("broken"), GRAPHS[2]))
    assert failed == ev.LoadFailed(1, "broken: no such operator")
    worker.unload(1)
    assert worker.reported() == ev.Unloaded(1)
    assert all(subnet.closed for subnet in engine.loaded)
    assert isinstance(loaded(worker), Deployed)


@pytest.mark.parametrize(
    ("graphs", "told"),
    [
        ((Path("v-y"), *GRAPHS[1:]), "no input 'x'"),
        ((Path("x-v"), *GRAPHS[1:]), "no output 'y'"),
    ],
)
def test_a_subnet_that_is_not_the_planned_one_is_reported(worker, graphs, told, engine):
    failed = loaded(worker, graphs=graphs)
    assert isinstance(failed, ev.LoadFailed)
    assert told in failed.reason
    assert engine.loaded[0].closed


def test_tensors_for_which_there_is_no_room_are_refused_before_any_is_made(worker, engine):
    shape = (10**13,)
    engine.shape = shape
    channels = tuple(replace(channel, shape=shape) for channel in DEPLOYMENT.channels)
    failed = loaded(worker, replace(DEPLOYMENT, channels=channels))
    assert isinstance(failed, ev.LoadFailed)
    assert "phase 'first': the inputs and outputs of one frame take 80000000.0 MB" in failed.reason
    assert [subnet.runs for subnet in engine.loaded] == [0, 0, 0]


def test_unloading_drops_what_is_queued_and_closes_everything(worker, engine):
    loaded(worker)
    engine.may_run.clear()
    engine.running.clear()
    worker.fire(Fire(1, 0, 0, {"x": frame(0)}))
    worker.fire(Fire(1, 0, 1, {"x": frame(0)}))
    assert engine.running.wait(WAIT_S)
    worker.unload(1)
    engine.may_run.set()
    assert isinstance(worker.reported(), ev.FiringEnded)
    assert worker.reported() == ev.Unloaded(1)
    assert all(subnet.closed for subnet in engine.loaded)
    assert not worker._store


def test_unloading_interrupts_a_rehearsal_between_two_phases(worker, engine):
    engine.may_run.clear()
    worker.load(DEPLOYMENT, GRAPHS)
    assert engine.running.wait(WAIT_S)
    worker.unload(1)
    engine.may_run.set()
    while isinstance(event := worker.reported(), Progress):
        pass
    assert event == ev.Unloaded(1)
    assert [subnet.runs for subnet in engine.loaded] == [1, 0, 0]
    assert isinstance(loaded(worker), Deployed)


class TwoEngines:
    """Finds `other` for every deployment, once it `may_open`."""

    def __init__(self) -> None:
        self.other = Engine()
        self.may_open, self.opening = Event(), Event()

    def executor_for(self, choice):
        self.opening.set()
        assert self.may_open.wait(WAIT_S)
        return self.other, EngineChoice("other", "cpu", "fp16", (EngineOption("beads", "3"),))


def test_a_deployment_is_loaded_by_the_engine_that_it_names(engine) -> None:
    engines, reported = TwoEngines(), SimpleQueue()
    engines.may_open.set()
    worker = Worker(engine, reported.put, engines=engines)
    worker.reported = lambda: reported.get(timeout=WAIT_S)
    assert isinstance(loaded(worker), Deployed)
    assert not engine.loaded
    assert len(engines.other.loaded) == 3
    assert engines.other.options == LoadOptions(1, "fp16", {"beads": "3"})
    assert worker.stop(WAIT_S)


def test_a_deployment_dropped_while_its_engine_is_opened_is_not_prepared(engine) -> None:
    engines, reported = TwoEngines(), SimpleQueue()
    worker = Worker(engine, reported.put, engines=engines)
    worker.load(DEPLOYMENT, GRAPHS)
    assert engines.opening.wait(WAIT_S)
    worker.unload(1)
    engines.may_open.set()
    said = [reported.get(timeout=WAIT_S) for _ in range(2)]
    assert isinstance(said[0], ev.LoadFailed)
    assert said[1] == ev.Unloaded(1)
    assert not engines.other.loaded
    assert worker.stop(WAIT_S)
