"""Whoever bounds the executor thread from outside bounds what computes, and nothing else.

Told by the CPUs that a thread may use: what it starts inherits them as it inherits control groups.
"""

from __future__ import annotations

import os
from pathlib import Path
from queue import SimpleQueue

import pytest
from zmq.utils import garbage

from nodes.core import events as ev
from nodes.execution.worker import Worker
from nodes.net.loopback import Loopback
from nodes.protocol.messages import Deployed, Progress
from tests.nodes.test_worker import DEPLOYMENT, GRAPHS, WAIT_S, AddOne, Engine

ALL = os.sched_getaffinity(0)


class Bound(Engine):
    """Binds the thread that loads, and notes where others are at that time and later."""

    def __init__(self) -> None:
        super().__init__()
        self.preparing: set[int] | None = None
        self.wire: list[set[int]] = []

    def prepare(self, graphs, options, on_done=None):
        self.preparing = os.sched_getaffinity(0)

    def load(self, graph, options):
        os.sched_setaffinity(0, {min(ALL)})
        subnet = super().load(graph, options)
        return Noting(self, tuple(subnet.inputs), tuple(subnet.outputs))


class Noting(AddOne):
    def run(self, inputs):
        assert os.sched_getaffinity(0) == {min(ALL)}
        tasks = Path("/proc/self/task").iterdir()
        wire = [task for task in tasks if (task / "comm").read_text().startswith("ZMQ")]
        self.engine.wire += [os.sched_getaffinity(int(task.name)) for task in wire]
        return super().run(inputs)


@pytest.mark.skipif(len(ALL) < 2, reason="a machine of one CPU")
def test_preparing_and_the_wire_are_not_where_the_executor_is(tmp_path: Path) -> None:
    garbage.gc.stop()  # which another test may have started
    engine = Bound()
    reported: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(engine, reported.put, lambda: Loopback(f"ipc://{tmp_path}/self"))
    for _ in range(2):  # the second time the thread is bound from the beginning
        worker.load(DEPLOYMENT, GRAPHS)
        while isinstance(event := reported.get(timeout=WAIT_S), Progress):
            pass
        assert isinstance(event, Deployed), event
        worker.unload(DEPLOYMENT.epoch)
        assert isinstance(reported.get(timeout=WAIT_S), ev.Unloaded)
    assert worker.stop(WAIT_S)
    assert engine.preparing == ALL
    assert len(engine.wire) >= 4, "of two contexts, each with two threads"
    assert all(cpus == ALL for cpus in engine.wire)
    assert garbage.gc.is_alive(), "what tells of large tensors that were sent runs before any is"
    assert os.sched_getaffinity(garbage.gc.thread.native_id) == ALL
