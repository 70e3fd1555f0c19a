"""All real agents fall silent, or the real launcher is stopped: every frame has its result."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from launcher.config.run import RunConfig
from launcher.run.processes import start_agents
from launcher.run.runtime import RunOptions, Update
from tests.launcher_runtime.clusters import (
    WAIT_S,
    RandomFrames,
    daemons,
    make_cluster,
    results,
)
from tests.launcher_runtime.test_recovery import Dealer, hurried

pytestmark = pytest.mark.slow

FRAMES = 400
STOPPED_S = 3.0


class Silence:
    """Takes results; at the twentieth stops processes for a while."""

    def __init__(self, pids: list[int]) -> None:
        self.results = results()
        self._pids = pids
        self._timer = threading.Timer(STOPPED_S, self._signal, [signal.SIGCONT])

    def __call__(self, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        self.results(frame, outputs)
        if frame == 20:
            self._signal(signal.SIGSTOP)
            self._timer.start()

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def join(self) -> None:
        self._timer.join()


@pytest.mark.parametrize(("lease_s", "is_lost"), [(15.0, False), (2.0, True)])
def test_all_daemons_are_stopped_for_a_while_and_every_frame_comes_back(
    tmp_path: Path, lease_s: float, is_lost: bool
) -> None:
    """Within the lease the stream just continues; after it all are greeted and deployed again."""
    cluster = make_cluster(tmp_path, nodes=3)
    replan = Dealer(cluster, tmp_path / "again")
    with daemons(cluster.names, tmp_path / "cache") as running:
        take = Silence([pid for _, pid in running.values()])
        nodes = cluster.nodes({name: where for name, (where, _) in running.items()})
        options = RunOptions(RunConfig(lease_s=lease_s), hurried(1.0), replan)
        try:
            found = cluster.run(RandomFrames(FRAMES), take, options, nodes=nodes)
        finally:
            take.join()
    cluster.check(take.results.outputs, FRAMES)
    assert bool(found.recoveries) == is_lost


def test_agents_that_launch_started_are_stopped_and_every_frame_comes_back(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, nodes=2)
    replan = Dealer(cluster, tmp_path / "again")
    cache = tmp_path / "cache"
    with start_agents(cluster.nodes(), cache) as agents:
        take = Silence([agents[name].pid for name in cluster.names])
        options = RunOptions(RunConfig(lease_s=2.0), hurried(1.0), replan, cache=cache)
        try:
            found = cluster.run(RandomFrames(FRAMES), take, options, agents=agents)
        finally:
            take.join()
    cluster.check(take.results.outputs, FRAMES)
    assert found.recoveries


def test_ctrl_c_ends_a_run_that_waits_at_once(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, nodes=2)
    replan = Dealer(cluster, tmp_path / "again")

    def interrupt(update: Update) -> None:
        if update.stage.startswith("waiting for any node") and update.done == 1:
            signal.raise_signal(signal.SIGINT)

    with daemons(cluster.names, tmp_path / "cache") as running:
        take = Silence([pid for _, pid in running.values()])
        nodes = cluster.nodes({name: where for name, (where, _) in running.items()})
        options = RunOptions(RunConfig(lease_s=1.0), hurried(0.5), replan)
        began_s = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                cluster.run(RandomFrames(FRAMES), take, options, nodes=nodes, on_update=interrupt)
        finally:
            took_s = time.monotonic() - began_s
            take.join()
    assert took_s < WAIT_S


@contextmanager
def launcher(folder: Path, lease_s: float) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "tests.launcher_runtime.stopped_launcher")
    given = (str(folder), str(FRAMES), str(lease_s))
    process = subprocess.Popen([*command, *given], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("lease_s", [15.0, 2.0])
def test_the_launcher_is_stopped_for_a_while_and_every_frame_comes_back(
    tmp_path: Path, lease_s: float
) -> None:
    """Within the lease nothing happens; after it nobody is blamed but the launcher."""
    with launcher(tmp_path, lease_s) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "streaming\n"
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        timer = threading.Timer(STOPPED_S, process.send_signal, [signal.SIGCONT])
        timer.start()
        told, _ = process.communicate(timeout=STOPPED_S + 3 * WAIT_S)
    assert process.returncode == 0
    lines = told.splitlines()
    stopped = [re.search(r"this launcher was stopped for (\d+) s", line) for line in lines]
    assert all(found and int(found[1]) >= STOPPED_S for found in stopped)
    assert bool(lines) == (lease_s < STOPPED_S)
