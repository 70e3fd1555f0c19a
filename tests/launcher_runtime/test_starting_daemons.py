"""Real agents that are off at first, come while frames stream, or are killed while they load."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from launcher.core.events import ControlConnected
from launcher.errors import BadInputError
from launcher.run.connections import Connections
from launcher.run.request import Request
from launcher.streaming.job import launch
from launcher.streaming.live_cluster import open_cluster
from tests.launcher_runtime.clusters import (
    RandomFrames,
    free_port,
    start_daemon,
    stop,
    write_network,
)

pytestmark = [pytest.mark.slow, pytest.mark.alone]

AFTER = 20
"""Frames that are streamed after the last change."""

DIFFERENT = 16
"""Frames that differ; a stream repeats them until the last change has come."""


class Said:
    """A `ProgressDisplay` that keeps what is said, and calls `on_text` for it, and `on_stage` for
    what is counted."""

    def __init__(
        self,
        on_stage: Callable[[str], None] = lambda _: None,
        on_text: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.texts: list[str] = []
        self._on_stage = on_stage
        self._on_text = on_text

    def __enter__(self) -> Said:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def name_run(self, run: str) -> None:
        return None

    def say(self, text: str, level: str = "info", nodes: Sequence[str] = ()) -> None:
        self.texts.append(text)
        self._on_text(text)

    def update(self, stage: str, done: int, total: int | None, note: str = "") -> None:
        self._on_stage(stage)

    def has(self, part: str) -> bool:
        return any(part in text for text in self.texts)


class Boards:
    """Three nodes in a `cluster.yaml`, whose agents are started one by one."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.model = write_network(folder / "net.onnx", layers=9, channels=256)
        self.file = folder / "cluster.yaml"
        self.pids: dict[str, int] = {}
        self._folder, self._stack = folder, stack
        self._addresses = {f"n{i}": f"tcp://127.0.0.1:{free_port()}" for i in range(3)}

    def write(self, more_of_node: str = "", **keys: object) -> Path:
        """The cluster file, with more keys of every node; they count as their own machines."""
        nodes = (
            f"  - {{name: {name}, address: '{address}', host: {name}, memory: 2GB, threads: 1"
            f"{more_of_node}}}\n"
            for name, address in self._addresses.items()
        )
        more = "".join(f"{key}: {value}\n" for key, value in keys.items())
        self.file.write_text(
            "model: net.onnx\nstrategy: sequential\nobjective: period\n"
            "recovery: {recovery_s: 2.0, adapt: false}\n" + more + "nodes:\n" + "".join(nodes)
        )
        return self.file

    def start(self, *names: str) -> None:
        """Start the agents of these nodes."""
        for name in names:
            process = start_daemon(name, self._addresses[name], self._folder / "cache")
            self._stack.callback(stop, process)
            self.pids[name] = process.pid

    def start_and_wait(self, *names: str) -> None:
        """Start the agents of these nodes, and wait until they can be reached."""
        self.start(*names)
        starting = set(names)
        with Connections() as connections:
            for name in names:
                connections.open_control(name, self._addresses[name])
            while starting:
                arrivals = list(connections.wait(60.0))
                assert arrivals, f"{starting} did not start"
                starting -= {a.node for a in arrivals if isinstance(a, ControlConnected)}

    def whole(self, count: int) -> list[Any]:
        """The whole network's results."""
        session = ort.InferenceSession(str(self.model), providers=["CPUExecutionProvider"])
        frames = RandomFrames(count)
        return [session.run(None, dict(frames[number]))[0] for number in range(count)]


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[Boards]:
    with ExitStack() as stack:
        yield Boards(tmp_path, stack)


def test_a_board_that_is_off_at_first_is_used_when_it_is_switched_on(boards: Boards) -> None:
    path = boards.write(run="{connect_timeout_s: 3.0}")
    boards.start_and_wait("n0", "n1")
    said, results, deadline_s = Said(), [], time.monotonic() + 150.0

    def frames() -> Iterator[dict[str, np.ndarray]]:
        left = AFTER
        source = RandomFrames(DIFFERENT)
        number = 0
        while left:
            assert time.monotonic() < deadline_s, said.texts[-5:]
            left -= said.has("streaming again")
            yield source[number % DIFFERENT]
            number += 1

    with open_cluster(Request(path), said, most=16) as live:
        assert {phase.device for phase in live.plan.phases} == {"n0", "n1"}
        for result in live.stream(frames()):
            if not results:
                boards.start("n2")
            results.append(next(iter(result.values())))
    assert said.has("node 'n2' at tcp://127.0.0.1")
    assert said.has("planning for n0, n1")
    assert said.has("times as fast: n2 has joined")
    wanted = boards.whole(DIFFERENT)
    for number, got in enumerate(results):
        np.testing.assert_allclose(got, wanted[number % DIFFERENT], rtol=1e-4, atol=1e-5)


def test_a_board_that_is_killed_while_it_loads_costs_that_board(boards: Boards) -> None:
    path = boards.write(frames=10)
    boards.start_and_wait("n0", "n1", "n2")

    def kill(stage: str) -> None:
        if stage == "loading" and "n1" in boards.pids:
            os.kill(boards.pids.pop("n1"), signal.SIGKILL)

    outcome = launch(Request(path), Said(kill), started_s=time.monotonic())
    assert outcome.report is not None
    assert outcome.report.agrees
    assert outcome.report.frames == 10
    (absence,) = outcome.report.as_json()["absences"]
    assert absence["node"] == "n1"
    assert "was lost while" in absence["reason"]
    assert absence["came_s"] is None


@pytest.mark.parametrize("start", ["available", "all"])
def test_a_board_that_is_lost_before_links_are_measured_is_waited_for_once(
    boards: Boards, start: str
) -> None:
    path = boards.write(
        ", engine: onnxruntime", frames=10, run=f"{{connect_timeout_s: 2.0, start: {start}}}"
    )
    boards.start_and_wait("n0", "n1", "n2")

    def kill(text: str) -> None:
        if text.startswith("engines: ") and "n1" in boards.pids:
            os.kill(boards.pids.pop("n1"), signal.SIGKILL)

    said = Said(on_text=kill)
    if start == "all":
        with pytest.raises(BadInputError, match=r"'n1' at \S+ did not answer within 2 s"):
            launch(Request(path), said, started_s=time.monotonic())
        assert not said.has("loading")
        return
    outcome = launch(Request(path), said, started_s=time.monotonic())
    assert outcome.report is not None
    (absence,) = outcome.report.absences
    assert absence.node == "n1"
    assert "did not answer within 2 s" in absence.reason
    assert said.texts.count(absence.reason) == 1, "the run knows it from the start"
    assert said.has("planning for n0, n2")
    assert not said.has("links between machines are assumed")


def test_if_the_boards_that_answer_do_not_suffice_the_run_waits_and_names_the_others(
    boards: Boards,
) -> None:
    path = boards.write(
        frames=5, pins="{c0: n0, c8: n2}", run="{connect_timeout_s: 1.0, start_wait_s: 2.0}"
    )
    boards.start_and_wait("n0", "n1")
    said = Said()
    with pytest.raises(BadInputError, match=r"'n2' at tcp://127\.0\.0\.1:\d+ did not answer") as e:
        launch(Request(path), said, started_s=time.monotonic())
    assert "none came in" in str(e.value)
    assert said.has("the run has to wait for n2: ")
    assert said.has("waiting 2 s at most for other nodes to come")
