"""A real agent whose CPU quota changes between two launches, and one that stays as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.core.speeds import in_stream
from launcher.plan.profile.file import NodeTimes
from launcher.run.request import Request
from launcher.streaming.job import launch
from nodes.host.control_groups import group_folders
from nodes.protocol.messages import Deployed, Stats
from tests.launcher_runtime.clusters import free_port, start_daemon, stop, write_network
from tests.launcher_runtime.test_starting_daemons import Said

pytestmark = [pytest.mark.slow, pytest.mark.alone]

FIRST, LATER = 0.8, 0.2
"""Cores."""

FRAMES = 150


class Quota:
    """A control group with a quota, for one process."""

    def __init__(self) -> None:
        above = group_folders("cpu", Path("/proc/self"))
        if not above:
            pytest.skip("the control groups of this process are not visible")
        self.folder = above[0] / f"csdf-edge-quota-{os.getpid()}"
        try:
            self.folder.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")

    def set(self, cores: float) -> None:
        quota_us = int(cores * 20_000)
        try:
            if (self.folder / "cpu.cfs_quota_us").exists():
                (self.folder / "cpu.cfs_period_us").write_text("20000")
                (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us))
            else:
                (self.folder / "cpu.max").write_text(f"{quota_us} 20000")
        except OSError as error:
            pytest.skip(f"no quota can be set here: {error}")

    def hold(self, process: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(process))


@pytest.fixture
def quota() -> Iterator[Quota]:
    made = Quota()
    try:
        yield made
    finally:
        made.folder.rmdir()


@pytest.fixture
def cluster(tmp_path: Path, quota: Quota, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    write_network(tmp_path / "network.onnx", layers=8, channels=48)
    port = free_port()
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: network.onnx\nstrategy: sequential\nverify: false\n"
        f"nodes: [{{name: board, address: 'tcp://127.0.0.1:{port}'}}]\nframes: {FRAMES}\n"
    )
    quota.set(FIRST)
    agent = start_daemon("board", f"tcp://127.0.0.1:{port}", tmp_path / "agents")
    try:
        quota.hold(agent.pid)
        yield path
    finally:
        stop(agent)


def launched(cluster: Path) -> list[str]:
    """What a launch says."""
    said = Said()
    launch(Request(cluster, inputs=["random"]), said, started_s=0.0)
    return said.texts


def kept_s(folder: Path) -> tuple[float, ...]:
    """The times of subnets that are kept for later runs."""
    files = (folder / "kept" / "csdf-edge-profiles").glob("*.json")
    (text,) = (text for file in files if "mac_s" in (text := file.read_text()))
    times = NodeTimes.model_validate_json(text)
    assert times.mac_s is not None
    return tuple(subnet.seconds for subnet in times.subnets)


def test_a_board_with_another_quota_is_planned_by_its_own_figures_again(
    tmp_path: Path, cluster: Path, quota: Quota
) -> None:
    launched(cluster)
    (before_s,) = kept_s(tmp_path)
    said = launched(cluster)
    assert "times of 1 phase: 1 measured as it is" in said
    assert not any("has become" in text for text in said)
    quota.set(LATER)
    said = launched(cluster)
    (text,) = (text for text in said if "has become" in text)
    assert text.startswith("node board has become 4 times as slow")
    (after_s,) = kept_s(tmp_path)
    assert after_s / before_s == pytest.approx(FIRST / LATER, rel=0.3)


def test_what_a_phase_took_in_the_stream_is_what_the_next_launch_begins_with(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[Deployed | None] = []

    def noting(deployed: Deployed, stats: Stats | None) -> Deployed | None:
        took.append(in_stream(deployed, stats))
        return took[-1]

    monkeypatch.setattr("launcher.core.supervisor.in_stream", noting)
    launched(cluster)
    assert took[-1] is not None
    assert kept_s(tmp_path) == pytest.approx(took[-1].phase_s)
    said = launched(cluster)
    (planned,) = (text for text in said if text.startswith("planned"))
    assert "predicted from measured times" in planned
