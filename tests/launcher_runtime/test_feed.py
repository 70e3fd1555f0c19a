"""Frames that a program pushes into a run over real agents, from its own threads."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from launcher.config.run import RecoveryConfig
from launcher.errors import FullError, LauncherError, RunFailedError
from launcher.run.feed import Feed
from launcher.run.processes import LocalAgents, start_agents
from launcher.run.runtime import RunOptions, Update
from tests.launcher_runtime.clusters import (
    WAIT_S,
    Cluster,
    RandomFrames,
    has_ended,
    make_cluster,
)
from tests.launcher_runtime.test_recovery import Dealer

pytestmark = [pytest.mark.slow, pytest.mark.alone]


@pytest.fixture
def three(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path, nodes=3)


class Streaming:
    """A run in a thread of its own, whose frames come from `feed`."""

    def __init__(
        self, cluster: Cluster, agents: LocalAgents, options: RunOptions, most: int
    ) -> None:
        self.feed = Feed(most)
        self.began = threading.Event()
        self.updates: list[Update] = []
        self._cluster, self._agents, self._options = cluster, agents, options
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        error: LauncherError = RunFailedError("the cluster is closed")
        try:
            self._cluster.run(
                self.feed,
                self.feed.took,
                self._options,
                on_update=self._update,
                agents=self._agents,
            )
        except LauncherError as failed:
            error = failed
        finally:
            self.feed.finish(error)
            self.began.set()

    def _update(self, update: Update) -> None:
        self.updates.append(update)
        if update.stage == "streaming":
            self.began.set()


@contextmanager
def streaming(
    cluster: Cluster, options: RunOptions | None = None, most: int = 16
) -> Iterator[tuple[Streaming, LocalAgents]]:
    with start_agents(cluster.nodes()) as agents:
        run = Streaming(cluster, agents, options or RunOptions(), most)
        run.thread.start()
        try:
            assert run.began.wait(WAIT_S)
            yield run, agents
        finally:
            run.feed.give_up()
            run.thread.join(WAIT_S)
            assert not run.thread.is_alive()
            run.feed.close()


def noise(count: int) -> list[dict[str, np.ndarray]]:
    return [RandomFrames(count)[number] for number in range(count)]


def check(cluster: Cluster, futures: list[Future[dict[str, np.ndarray]]]) -> None:
    cluster.check([future.result(WAIT_S)["features"] for future in futures], len(futures))


def test_every_frame_of_many_threads_gets_its_own_result(three: Cluster) -> None:
    frames = noise(400)
    with streaming(three) as (run, _), ThreadPoolExecutor(8) as threads:
        futures = list(threads.map(run.feed.submit, frames))
        run.feed.end()
        check(three, futures)
        run.thread.join(WAIT_S)
        with pytest.raises(RunFailedError, match="the cluster is closed"):
            run.feed.submit(frames[0])


def test_a_frame_whose_future_is_cancelled_is_never_sent(three: Cluster) -> None:
    frames = noise(40)
    with streaming(three, most=40) as (run, _):
        futures = [run.feed.submit(frame) for frame in frames]
        cancelled = [future for future in futures[10:] if future.cancel()]
        wait(futures, WAIT_S)
        assert cancelled
        for number, future in enumerate(futures):
            if future in cancelled:
                with pytest.raises(CancelledError):
                    future.result(0)
            else:
                wanted = three.expected(number + 1)[number]
                np.testing.assert_allclose(future.result(0)["features"], wanted, rtol=1e-4)
        assert run.feed.submit(frames[0]).result(WAIT_S)


def test_a_full_cluster_says_so_or_lets_its_caller_wait(three: Cluster) -> None:
    frames = noise(3)
    with streaming(three, most=1) as (run, agents):
        for agent in agents.values():
            os.kill(agent.pid, signal.SIGSTOP)
        first = run.feed.submit(frames[0])
        with pytest.raises(FullError, match="try again later"):
            run.feed.submit(frames[1], block=False)
        with pytest.raises(FullError):
            run.feed.submit(frames[1], timeout_s=0.05)
        for agent in agents.values():
            os.kill(agent.pid, signal.SIGCONT)
        second = run.feed.submit(frames[1])
        check(three, [first, second])


def test_no_frame_is_lost_or_doubled_when_a_node_is_killed(three: Cluster, tmp_path: Path) -> None:
    frames = noise(300)
    options = RunOptions(recovery=RecoveryConfig(), replan=Dealer(three, tmp_path / "again"))
    with streaming(three, options) as (run, agents), ThreadPoolExecutor(4) as threads:
        first = [run.feed.submit(frames[number]) for number in range(100)]
        os.kill(agents["n1"].pid, signal.SIGKILL)
        futures = first + list(threads.map(run.feed.submit, frames[100:]))
        check(three, futures)
        assert has_ended(agents["n1"].pid)


def test_a_run_that_ends_with_an_error_ends_every_future(three: Cluster) -> None:
    frames = noise(64)
    with streaming(three, most=64) as (run, agents):
        run.feed.submit(frames[0]).result(WAIT_S)
        os.kill(agents["n2"].pid, signal.SIGKILL)
        with pytest.raises(LauncherError, match="n2"):  # noqa: PT012 - whichever is first
            for future in [run.feed.submit(frame) for frame in frames]:
                future.result(WAIT_S)
        with pytest.raises(LauncherError, match="n2"):
            run.feed.submit(frames[0])


def test_giving_up_ends_what_is_under_way(three: Cluster) -> None:
    frames = noise(64)
    with streaming(three, most=64) as (run, agents):
        for agent in agents.values():
            os.kill(agent.pid, signal.SIGSTOP)
        futures = [run.feed.submit(frame) for frame in frames]
        run.feed.give_up()
        run.thread.join(WAIT_S)
        for future in futures:
            with pytest.raises(RunFailedError, match="given up"):
                future.result(WAIT_S)
        for agent in agents.values():
            os.kill(agent.pid, signal.SIGCONT)
