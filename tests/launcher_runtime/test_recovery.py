"""Real agents are killed or stopped while frames stream, and the run continues without them."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cnn import read
from launcher.config.run import RecoveryConfig
from launcher.core.events import PlanRequest
from launcher.errors import BadInputError, RunFailedError
from launcher.plan.subnet_files import cut_subnets
from launcher.run.background import IsWanted
from launcher.run.processes import start_agents
from launcher.run.runtime import CutPlan, RunOptions, RunResult
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from partition.wire import RAW, WirePolicy
from tests.launcher_runtime.clusters import (
    Cluster,
    RandomFrames,
    Results,
    daemons,
    make_cluster,
    start_daemon,
    stop,
    wait_until_it_listens,
)

pytestmark = pytest.mark.slow

FRAMES = 300


@pytest.fixture
def three(tmp_path: Path) -> Cluster:
    return make_cluster(tmp_path, nodes=3)


class EnoughError(Exception):
    """The test has seen what it wants to see."""


class Dealer:
    """Deals the layers out to the nodes that are left, each of which holds at most `most`."""

    def __init__(
        self, cluster: Cluster, folder: Path, most: int = 1000, wire: WirePolicy = RAW
    ) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._wire = wire
        self._cluster = cluster
        self._folder = folder
        self._most = most

    def __call__(self, request: PlanRequest, _: Plan | None, __: IsWanted) -> CutPlan:
        nodes = request.nodes
        self.asked.append(nodes)
        model = read(self._cluster.model).in_batches(self._cluster.plan.batch)
        layers = [layer.name for layer in model.network.layers]
        if len(layers) > self._most * len(nodes):
            raise BadInputError(
                f"{len(layers)} layers, and {', '.join(nodes)} hold {self._most} each"
            )
        plan = make_plan(
            model.network,
            model.digest,
            [Device(name) for name in nodes],
            {layer: nodes[(i // 3) % len(nodes)] for i, layer in enumerate(layers)},
            strategy="test",
            explanation="dealt out again",
            wire=self._wire,
        )
        subnets = cut_subnets(model, plan, self._folder, lambda _done, _total: None)
        return CutPlan(plan, subnets, gain=2.0)


class Strikes:
    """Takes results; sends a signal to a process when it gets a certain frame."""

    def __init__(self, signals: Mapping[int, tuple[int, signal.Signals]]) -> None:
        self.results = Results([], [])
        self._signals = signals

    def __call__(self, frame: int, outputs: Mapping[str, np.ndarray]) -> None:
        self.results(frame, outputs)
        if frame in self._signals:
            os.kill(*self._signals[frame])


def hurried(heartbeat_s: float) -> RecoveryConfig:
    return RecoveryConfig(heartbeat_s=heartbeat_s, adapt=False)


def options(replan: Dealer, cache: Path, heartbeat_s: float = 15.0) -> RunOptions:
    """Unless the test says otherwise, a node is lost by its broken connection, never by silence."""
    return RunOptions(recovery=hurried(heartbeat_s), replan=replan, cache=cache)


def check(result: RunResult, lost: tuple[str, ...]) -> None:
    assert tuple(node for past in result.recoveries for node in past.nodes) == lost
    assert len(result.sent_s) == len(result.received_s) == FRAMES
    assert list(result.received_s) == sorted(result.received_s)
    assert all(sent < got for sent, got in zip(result.sent_s, result.received_s, strict=True))
    assert result.replanned is not None
    assert result.stats.keys() == {phase.device for phase in result.replanned.phases}
    last = result.recoveries[-1]
    for node, stats in result.stats.items():
        phases = sum(phase.device == node for phase in result.replanned.phases)
        assert stats.firings == (FRAMES - last.frame,) * phases


def test_a_node_that_is_killed_while_tensors_are_encoded_is_replaced(tmp_path: Path) -> None:
    wire = WirePolicy("fp16")
    cluster = make_cluster(tmp_path, nodes=3, wire=wire)
    replan = Dealer(cluster, tmp_path / "again", wire=wire)
    with start_agents(cluster.nodes(), tmp_path / "cache") as agents:
        take = Strikes({20: (agents["n1"].pid, signal.SIGKILL)})
        result = cluster.run(
            RandomFrames(FRAMES), take, options(replan, tmp_path / "cache"), agents=agents
        )
    cluster.check(take.results.outputs, FRAMES, rtol=1e-2)
    check(result, ("n1",))
    assert result.replanned is not None
    assert "fp16" in {channel.encoding for channel in result.replanned.channels}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_node_that_is_killed_or_stopped_is_replaced_and_every_result_is_right(
    three: Cluster, tmp_path: Path, how: signal.Signals
) -> None:
    replan = Dealer(three, tmp_path / "again")
    with start_agents(three.nodes(), tmp_path / "cache") as agents:
        take = Strikes({20: (agents["n1"].pid, how)})
        result = three.run(
            RandomFrames(FRAMES),
            take,
            options(replan, tmp_path / "cache", heartbeat_s=1.0),
            agents=agents,
            on_update=take.results.updates.append,
        )
        if how is signal.SIGSTOP:
            os.kill(agents["n1"].pid, signal.SIGCONT)  # else it is waited for, and killed
    three.check(take.results.outputs, FRAMES)
    check(result, ("n1",))
    assert replan.asked == [("n0", "n2")]
    told = [update.text for update in take.results.updates if not update.stage]
    assert "node 'n1' (started on this machine) was lost while running, after" in told[0]
    assert "continuing with n0, n2" in told[0]
    assert "streaming again after" in told[1]


def test_frames_in_batches_survive_the_loss_of_a_node(tmp_path: Path) -> None:
    """None is lost or comes twice, the last, incomplete batch among them."""
    batch = 7
    cluster = make_cluster(tmp_path, nodes=3, batch=batch)
    replan = Dealer(cluster, tmp_path / "again")
    with start_agents(cluster.nodes(), tmp_path / "cache") as agents:
        take = Strikes({40: (agents["n1"].pid, signal.SIGKILL)})
        result = cluster.run(
            RandomFrames(FRAMES), take, options(replan, tmp_path / "cache"), agents=agents
        )
    assert FRAMES % batch
    cluster.check(take.results.outputs, FRAMES)
    assert len(result.sent_s) == len(result.received_s) == FRAMES
    assert all(sent < got for sent, got in zip(result.sent_s, result.received_s, strict=True))
    (past,) = result.recoveries
    assert past.nodes == ("n1",)
    assert 40 < past.frame < FRAMES
    assert past.frame % batch == 0
    firings = math.ceil(FRAMES / batch) - past.frame // batch
    for node, stats in result.stats.items():
        assert stats.firings
        assert set(stats.firings) == {firings}, node


def test_daemons_are_killed_one_after_the_other_until_one_is_left(
    three: Cluster, tmp_path: Path
) -> None:
    replan = Dealer(three, tmp_path / "again")
    with daemons(three.names, tmp_path / "cache") as running:
        nodes = three.nodes({name: address for name, (address, _) in running.items()})
        pids = {name: pid for name, (_, pid) in running.items()}
        take = Strikes({20: (pids["n2"], signal.SIGKILL), 150: (pids["n0"], signal.SIGKILL)})
        options_ = options(replan, tmp_path / "cache")
        result = three.run(RandomFrames(FRAMES), take, options_, nodes=nodes)
    three.check(take.results.outputs, FRAMES)
    check(result, ("n2", "n0"))


def test_a_daemon_that_is_started_again_is_used_again(three: Cluster, tmp_path: Path) -> None:
    replan = Dealer(three, tmp_path / "again")
    take = Results([], [])
    begun: list[subprocess.Popen[bytes]] = []
    many = 100_000

    def streams_again() -> bool:
        told = [update.text for update in take.updates if not update.stage]
        return sum("streaming again" in text for text in told) == 2

    with daemons(three.names, tmp_path / "cache") as running:
        address, pid = running["n1"]

        def strike(frame: int, outputs: Mapping[str, np.ndarray]) -> None:
            take(frame, outputs)
            if frame == 20:
                os.kill(pid, signal.SIGKILL)
            elif frame == 60:
                begun.append(start_daemon("n1", address, tmp_path / "cache"))
            elif streams_again():
                raise EnoughError

        nodes = three.nodes({name: where for name, (where, _) in running.items()})
        going_on = options(replan, tmp_path)
        with pytest.raises(EnoughError):
            three.run(
                RandomFrames(many), strike, going_on, nodes=nodes, on_update=take.updates.append
            )
        for process in begun:
            stop(process)
    three.check(take.outputs, len(take.outputs))
    assert replan.asked == [("n0", "n2"), ("n0", "n1", "n2")]
    assert any("node 'n1' is back" in update.text for update in take.updates)


def test_a_node_without_a_part_stands_by_and_takes_over(three: Cluster, tmp_path: Path) -> None:
    two = make_cluster(tmp_path, nodes=2)
    replan = Dealer(two, tmp_path / "again")
    with daemons(three.names, tmp_path / "cache") as running:
        for address, _ in running.values():  # who still starts at the loss is not planned for
            wait_until_it_listens(address)
        nodes = three.nodes({name: address for name, (address, _) in running.items()})
        take = Strikes({20: (running["n0"][1], signal.SIGKILL)})
        options_ = options(replan, tmp_path / "cache")
        result = two.run(RandomFrames(FRAMES), take, options_, nodes=nodes)
    two.check(take.results.outputs, FRAMES)
    check(result, ("n0",))
    assert replan.asked == [("n1", "n2")]
    assert result.stats.keys() == {"n1", "n2"}


def test_if_the_others_cannot_hold_the_network_the_end_says_so_and_results_are_kept(
    three: Cluster, tmp_path: Path
) -> None:
    layers = len(read(three.model).network.layers)
    replan = Dealer(three, tmp_path / "again", most=layers // 2 - 1)
    with start_agents(three.nodes(), tmp_path / "cache") as agents:
        take = Strikes({20: (agents["n1"].pid, signal.SIGKILL)})
        with pytest.raises(RunFailedError) as failed:
            three.run(
                RandomFrames(FRAMES), take, options(replan, tmp_path / "cache"), agents=agents
            )
    assert "node 'n1' (started on this machine) was lost while running, after" in str(failed.value)
    assert f"the other nodes cannot continue: {layers} layers, and n0, n2 hold" in str(failed.value)
    assert len(take.results.outputs) > 20
    three.check(take.results.outputs, len(take.results.outputs))


def test_without_recovery_the_loss_of_a_node_ends_the_run(three: Cluster, tmp_path: Path) -> None:
    with start_agents(three.nodes(), tmp_path / "cache") as agents:
        take = Strikes({20: (agents["n1"].pid, signal.SIGKILL)})
        off = replace(options(Dealer(three, tmp_path), tmp_path / "cache"), replan=None)
        with pytest.raises(RunFailedError, match="node 'n1'"):
            three.run(RandomFrames(FRAMES), take, off, agents=agents)
