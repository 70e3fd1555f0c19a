"""Phases that are loaded and rehearsed beside those that fire, and then take their place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from nodes.core import events as ev
from nodes.core.actions import Fire
from nodes.execution.worker import Worker
from nodes.protocol.messages import BlobInfo, Deployed, Deployment, PeerSpec, Prepared
from tests.nodes.test_worker import DEPLOYMENT, GRAPHS, WAIT_S, Engine, frame, loaded, working

NEXT = replace(DEPLOYMENT, epoch=2, dial=())
DEPLOYED = replace(NEXT, dial=(PeerSpec("m", "tcp://m:2"),))
"""As `NEXT` is deployed: with the addresses of its peers."""


class Beside(Engine):
    """An engine that loads subnets while others run; `may_load` holds loading up."""

    loads_beside_runs = True

    def __init__(self) -> None:
        super().__init__()
        self.loading, self.may_load = Event(), Event()
        self.may_load.set()

    def load(self, graph, options):
        self.loading.set()
        assert self.may_load.wait(WAIT_S)
        return super().load(graph, options)


@pytest.fixture
def engine():
    return Beside()


@pytest.fixture
def worker(engine):
    with working(engine) as worker:
        yield worker
        engine.may_load.set()


def prepared(worker: Worker, deployment: Deployment = NEXT, *, loads: bool = True) -> str:
    """Prepare a deployment ahead; returns what is left to do."""
    worker.prepare_ahead(deployment, GRAPHS, lambda: None, loads=loads)
    event = worker.reported()
    assert isinstance(event, Prepared)
    return event.reason


def unloaded(worker: Worker, epoch: int = 1) -> None:
    worker.unload(epoch)
    assert worker.reported() == ev.Unloaded(epoch)


def fires(worker: Worker, epoch: int) -> bool:
    worker.fire(Fire(epoch, 0, 0, {"x": frame(1.0)}))
    return isinstance(worker.reported(), ev.FiringEnded)


def test_what_is_loaded_ahead_is_rehearsed_once_and_taken_over(worker, engine):
    first = loaded(worker)
    assert prepared(worker) == ""
    ahead = engine.loaded[3:]
    runs = [subnet.runs for subnet in ahead]
    assert all(runs)
    assert fires(worker, 1)
    unloaded(worker)
    assert all(subnet.closed for subnet in engine.loaded[:3])
    event = loaded(worker, DEPLOYED)
    assert isinstance(event, Deployed)
    assert (event.epoch, len(event.phase_s)) == (2, 3)
    assert event.message_s == first.message_s
    assert engine.loaded[3:] == ahead
    assert [subnet.runs for subnet in ahead] == runs
    assert fires(worker, 2)
    unloaded(worker, 2)
    assert all(subnet.closed for subnet in ahead)


def test_phases_fire_while_others_are_loaded(worker, engine):
    loaded(worker)
    engine.loading.clear()
    engine.may_load.clear()
    worker.prepare_ahead(NEXT, GRAPHS, lambda: None, loads=True)
    assert engine.loading.wait(WAIT_S)
    assert fires(worker, 1)
    engine.may_load.set()
    assert worker.reported() == Prepared(2, "")


def test_an_idle_node_loads_ahead_too(worker, engine):
    assert prepared(worker) == ""
    assert isinstance(loaded(worker, DEPLOYED), Deployed)
    assert len(engine.loaded) == 3


def test_another_deployment_closes_what_was_loaded_ahead(worker, engine):
    loaded(worker)
    prepared(worker)
    unloaded(worker)
    loaded(worker, replace(DEPLOYED, epoch=3, threads=1, check_finite=True))
    assert [subnet.closed for subnet in engine.loaded] == [True] * 6 + [False] * 3


def test_what_is_not_wanted_is_closed_while_phases_fire_on(worker, engine):
    loaded(worker)
    prepared(worker)
    worker.close_ahead()
    assert fires(worker, 1)
    assert [subnet.closed for subnet in engine.loaded] == [False] * 3 + [True] * 3


def test_loading_ends_when_it_is_not_wanted_any_more(worker, engine):
    loaded(worker)
    engine.loading.clear()
    engine.may_load.clear()
    worker.prepare_ahead(NEXT, GRAPHS, lambda: None, loads=True)
    assert engine.loading.wait(WAIT_S)
    worker.close_ahead()
    engine.may_load.set()
    event = worker.reported()
    assert "dropped" in event.reason
    assert [subnet.closed for subnet in engine.loaded] == [False] * 3 + [True]


def test_a_deployment_that_comes_while_another_is_loaded_ahead_waits_for_its_end(worker, engine):
    engine.may_load.clear()
    worker.prepare_ahead(NEXT, GRAPHS, lambda: None, loads=True)
    assert engine.loading.wait(WAIT_S)
    worker.load(replace(DEPLOYED, epoch=3), GRAPHS)
    engine.may_load.set()
    events = [worker.reported()]
    while not isinstance(events[-1], Deployed):
        events.append(worker.reported())
    assert [event.epoch for event in events if isinstance(event, Prepared)] == [2]
    first, *others = engine.loaded
    assert first.closed
    assert [subnet.closed for subnet in others] == [False] * 3


def test_an_error_leaves_nothing_loaded_and_the_phases_fire_on(worker, engine):
    loaded(worker)
    worker.prepare_ahead(NEXT, (*GRAPHS[:2], Path("broken")), lambda: None, loads=True)
    assert worker.reported() == Prepared(2, "broken: no such operator")
    assert [subnet.closed for subnet in engine.loaded] == [False] * 3 + [True] * 2
    assert fires(worker, 1)


def test_an_engine_that_loads_in_one_thread_only_prepares_and_says_so():
    with working(Engine()) as worker:
        assert prepared(worker) == "adds one loads no subnets while others run"


def test_subnets_for_which_there_is_no_room_are_loaded_later(worker, engine):
    large = replace(NEXT.phases[0], weights=BlobInfo("b" * 64, 1 << 60))
    reason = prepared(worker, replace(NEXT, phases=(large, *NEXT.phases[1:])))
    assert "MB in addition to the present ones, and the room left is" in reason
    assert not engine.loaded


def test_preparing_without_loading_loads_nothing(worker, engine):
    assert prepared(worker, loads=False) == ""
    assert not engine.loaded
