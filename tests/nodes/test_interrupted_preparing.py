"""Unloading a deployment whose subnets are still being prepared: the child ends, the agent goes on.

The child is a real process that has begun an entry and then never finishes it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from nodes.core import events as ev
from nodes.execution.worker import Worker
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess
from nodes.protocol.messages import Deployed, Progress
from tests.nodes.test_worker import DEPLOYMENT, GRAPHS, WAIT_S, Engine

ENDLESS = """
import sys
from pathlib import Path
from nodes.executors.preparing.entries import PreparedFiles
request = sys.stdin.readline()
with PreparedFiles(Path(sys.argv[1])).making("never") as folder:
    (folder / "model").write_bytes(b"half")
    print('{"done": "0"}', flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Those begun from now on; each says that its first job is done and is stuck in the next."""
    begun: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def endless(_: object, **options: object) -> subprocess.Popen[str]:
        begun.append(real([sys.executable, "-c", ENDLESS, str(tmp_path)], **options))
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", endless)
    return begun


class Preparing(Engine):
    """Prepares in child processes, as long as `in_children`."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self.child = PreparingProcess(
            "onnxruntime", "nodes.executors.onnx.optimise:prepare", PreparedFiles(cache)
        )
        self.in_children = True
        self.interrupt, self.resume, self.close = (
            self.child.interrupt,
            self.child.resume,
            self.child.close,
        )

    def prepare(self, graphs, options, on_done=None):
        if self.in_children:
            jobs = [Job(graph, graph.name, str(n)) for n, graph in enumerate(graphs)]
            self.child.make(jobs, options, lambda job: on_done(job.graph))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Preparing]:
    engine = Preparing(tmp_path)
    yield engine
    engine.close()


def is_gone(child: subprocess.Popen[str]) -> bool:
    """Ended and reaped."""
    return child.returncode is not None and not Path(f"/proc/{child.pid}").exists()


def test_unloading_ends_the_child_and_the_next_deployment_loads_at_once(
    engine: Preparing, children: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    told: SimpleQueue[ev.Event] = SimpleQueue()
    worker = Worker(engine, told.put)

    def told_until(kind: type) -> ev.Event:
        while not isinstance(event := told.get(timeout=WAIT_S), kind):
            pass
        return event

    worker.load(DEPLOYMENT, GRAPHS)
    while told_until(Progress).what != "prepared 1 of 3":
        pass
    assert len(list(tmp_path.iterdir())) == 1, "it is at the second"
    worker.unload(DEPLOYMENT.epoch)
    assert told_until(ev.Unloaded) == ev.Unloaded(DEPLOYMENT.epoch)
    assert [is_gone(child) for child in children] == [True]
    assert not list(tmp_path.iterdir()), "nothing half-written is left"
    engine.in_children = False
    worker.load(DEPLOYMENT, GRAPHS)
    assert isinstance(told_until(Deployed | ev.LoadFailed), Deployed)
    assert worker.stop(WAIT_S)


def test_until_it_may_resume_whoever_begins_is_stopped_too(
    engine: Preparing, children: list[subprocess.Popen[str]]
) -> None:
    """An unload may come between what asks for a child and its start."""
    jobs = [Job(graph, graph.name, str(n)) for n, graph in enumerate(GRAPHS)]
    engine.interrupt()
    with pytest.raises(ExecutorError, match="the process that prepares it was stopped"):
        engine.child.make(jobs, LoadOptions(), lambda _: None)
    engine.resume()
    done: list[Job] = []

    def is_done(job: Job) -> None:
        done.append(job)
        os.kill(children[-1].pid, 9)

    with pytest.raises(ExecutorError, match="was killed"):
        engine.child.make(jobs, LoadOptions(), is_done)
    assert done == jobs[:1], "this one ran"
    assert all(is_gone(child) for child in children)


def test_what_is_closed_does_not_resume(
    engine: Preparing, children: list[subprocess.Popen[str]]
) -> None:
    engine.close()
    engine.resume()
    with pytest.raises(ExecutorError, match="was stopped"):
        engine.child.make([Job(GRAPHS[0], "x", "0")] * 2, LoadOptions(), lambda _: None)
    assert all(is_gone(child) for child in children)
