"""State that a phase keeps from frame to frame, from the beginning of an epoch to its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire, SendData
from nodes.core.actor import Ports, RunningActor
from nodes.core.dataplane import DataPlane
from nodes.core.deployment import DeploymentError, check
from nodes.core.fifo import Inlet, Outlet
from nodes.execution.worker import Worker
from nodes.executors.base import TensorSpec
from nodes.protocol.codec import decode, encode
from nodes.protocol.messages import (
    HOST,
    Attach,
    BlobInfo,
    ChannelSpec,
    Credit,
    Deploy,
    Deployed,
    Deployment,
    PhaseSpec,
    Progress,
    TensorHeader,
)

WAIT_S = 10.0
SHAPE = (2,)
X = ChannelSpec(0, "x", "float32", SHAPE, HOST, None, "n", (0,), 2)
HN = ChannelSpec(1, "hn", "float32", SHAPE, "n", 0, HOST, (), 2)
H = ChannelSpec(2, "h", "float32", SHAPE, HOST, None, "n", (0,), 1, kept_from="hn")
PHASE = PhaseSpec("sum", BlobInfo("a" * 64, 1), None, ("x", "h"), ("hn",))
DEPLOYMENT = Deployment(1, "n", "pipelined", (PHASE,), (X, HN, H), ())


def test_it_is_said_on_the_wire() -> None:
    assert decode(encode(Deploy(DEPLOYMENT))) == Deploy(DEPLOYMENT)


def test_a_phase_waits_for_its_state_at_its_first_frame_only() -> None:
    frames, state, outlet = Inlet(0, 3), Inlet(1, 1), Outlet(2, 3)
    actor = RunningActor("pipelined", [Ports(((frames, 0),), (outlet,), ((state, 0),))])
    for frame in range(3):
        frames.put(frame, None)
    outlet.grant(3)
    actor.changed(0)
    assert actor.choose() is None
    state.put(0, None)
    actor.changed(1)
    fired = []
    while (phase := actor.choose()) is not None:
        fired.append(actor.dispatch(phase))
        actor.ended(phase, fired[-1])
    assert fired == [0, 1, 2]


class Plane:
    """A data plane with the host attached to it."""

    def __init__(self) -> None:
        self.plane = DataPlane(DEPLOYMENT)
        self.plane.start()
        self.granted = self.plane.attach(b"host", Attach(1, HOST))
        self.plane.credit(b"host", Credit(1, 1, 2))

    def gets(self, channel: ChannelSpec, frame: int, payload: str) -> list[Fire]:
        header = TensorHeader(1, channel.number, frame, channel.dtype, channel.shape)
        actions = self.plane.tensor(b"host", header, payload, 8)
        return [action for action in actions if isinstance(action, Fire)]

    def ends(self, frame: int) -> list[object]:
        actions = self.plane.ended(ev.FiringEnded(1, 0, frame, {"hn": b"."}, 0.1))
        return [a.message for a in actions if isinstance(a, SendData)]


def test_the_first_firing_of_an_epoch_gets_the_state_and_the_others_do_not() -> None:
    node = Plane()
    assert Credit(1, 2, 1) in [action.message for action in node.granted]
    assert node.gets(X, 0, "x0") == []
    assert node.gets(H, 0, "h0") == [Fire(1, 0, 0, {"x": "x0", "h": "h0"})]
    assert node.gets(X, 1, "x1") == [Fire(1, 0, 1, {"x": "x1"})]


def test_its_place_is_given_back_like_any_other() -> None:
    node = Plane()
    node.gets(X, 0, "x0")
    node.gets(H, 0, "h0")
    assert [m.channel for m in node.ends(0) if isinstance(m, Credit)] == [0, 2]
    node.gets(X, 1, "x1")
    assert [m.channel for m in node.ends(1) if isinstance(m, Credit)] == [0]
    assert node.plane.fifo_peak_bytes == 16


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (replace(H, kept_from="y"), "keeps 'y', which is not an output of phase 'sum'"),
        (replace(H, source_node="m"), "brings state from m to 1 phases"),
        (replace(H, target_phases=(0, 1)), "brings state from @host to 2 phases"),
        (replace(HN, number=2, kept_from="hn"), "brings state from n to 0 phases"),
    ],
)
def test_a_deployment_that_is_inconsistent_is_refused(wrong: ChannelSpec, sentence: str) -> None:
    with pytest.raises(DeploymentError, match=sentence):
        check(replace(DEPLOYMENT, phases=(PHASE, PHASE), channels=(X, HN, wrong)))


class Sum:
    """A subnet that adds its inputs: `hn` = `x` + `h`."""

    def __init__(self) -> None:
        spec = TensorSpec("float32", SHAPE)
        self.inputs = {"x": spec, "h": spec}
        self.outputs = {"hn": spec}

    def run(self, inputs):
        return {"hn": inputs["x"] + inputs["h"]}

    def close(self):
        pass


class Engine:
    def describe(self):
        return "adds"

    def prepare(self, graphs, options, on_done=None):
        for graph in graphs:
            on_done(graph)

    def load(self, graph, options):
        return Sum()

    def interrupt(self):
        pass

    def resume(self):
        pass

    def close(self):
        pass


@pytest.fixture
def worker():
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(Engine(), reported.put)
    worker.reported = lambda: reported.get(timeout=WAIT_S)
    yield worker
    assert worker.stop(WAIT_S)


def load(worker: Worker, deployment: Deployment = DEPLOYMENT) -> ev.Event:
    worker.load(deployment, (Path("sum"),))
    while isinstance(event := worker.reported(), Progress):
        pass
    return event


def fired(worker: Worker, epoch: int, frame: int, **inputs: float) -> float:
    """What a firing makes of tensors of these values."""
    given = {name: np.full(SHAPE, number, np.float32).data for name, number in inputs.items()}
    worker.fire(Fire(epoch, 0, frame, given))
    event = worker.reported()
    assert isinstance(event, ev.FiringEnded), event
    return float(np.frombuffer(event.outputs["hn"], np.float32)[0])


def test_what_a_firing_makes_is_what_the_next_one_reads(worker) -> None:
    """Rehearsals ran before, and have left nothing."""
    assert isinstance(load(worker), Deployed)
    assert fired(worker, 1, 0, x=1, h=100) == 101
    assert fired(worker, 1, 1, x=2) == 103
    assert fired(worker, 1, 2, x=3) == 106


def test_nothing_of_it_is_left_for_the_next_epoch(worker) -> None:
    load(worker)
    fired(worker, 1, 0, x=1, h=100)
    worker.unload(1)
    assert worker.reported() == ev.Unloaded(1)
    load(worker, replace(DEPLOYMENT, epoch=2))
    assert fired(worker, 2, 0, x=1, h=5) == 6


def test_state_of_another_shape_than_the_subnet_makes_is_refused(worker) -> None:
    wider = replace(DEPLOYMENT, channels=(X, HN, replace(H, shape=(3,))))
    event = load(worker, wider)
    assert isinstance(event, ev.LoadFailed)
    assert "input 'h' is float32[2], but float32[3] in its plan" in event.reason
