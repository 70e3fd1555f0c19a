"""A laboratory of three boards, and what a board's bounds and faults look like from outside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from launcher.config.access import Access
from launcher.config.run import RunConfig
from launcher.errors import BadInputError, RunFailedError
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.run.runtime import RunOptions
from launcher.streaming.job import launch
from tests.lab.boards import SPIN, comes_to, left_of, program, receives, sends
from tests.launcher_runtime.clusters import (
    Cluster,
    RandomFrames,
    make_cluster,
    results,
    write_network,
)

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.alone]

NAME = f"t{os.getpid() % 10**7}"
MBIT = 125e3

CONFIG = LabConfig(
    name=NAME,
    undisturbed=True,
    defaults=BoardConfig(cpu=0.5),
    devices=(
        DeviceConfig(name="n0", link=100 * MBIT, memory=200_000_000),
        DeviceConfig(name="n1", link=20 * MBIT, board="cpu"),
        DeviceConfig(name="n2", disk=32_000_000),
    ),
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    missing = machine.look(CONFIG).missing
    if missing:
        pytest.skip(f"boards cannot be emulated here: {'; '.join(missing)}")
    folder = tmp_path_factory.mktemp("lab")
    write_network(folder / "small.onnx")
    model = str(folder / "small.onnx")
    cluster = {"model": model, "strategy": "sequential-count", "frames": 16}
    with Lab(CONFIG.model_copy(update={"cluster": cluster})) as made:
        yield made
    assert left_of(NAME) == set()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return make_cluster(tmp_path_factory.mktemp("cluster"), 3)


def test_launch_runs_on_it_and_agrees_with_the_whole_model(lab: Lab) -> None:
    before = lab.status(0.0)
    with open_progress() as progress:
        report = launch(Request(lab.cluster_file), progress, started_s=0.0).report
    assert report is not None
    assert report.agreement is not None
    assert report.agrees
    after = lab.status(0.0)
    for node in report.nodes:
        told, was, now = node.received_bytes, before[node.name].link, after[node.name].link
        assert now.received_bytes - was.received_bytes >= told > 0, "it came over the link"


def test_links_have_their_rates_in_both_directions(lab: Lab) -> None:
    receives(lab, "n0", 100 * MBIT)
    sends(lab, "n0", 100 * MBIT)
    sends(lab, "n1", 20 * MBIT)


def test_a_link_is_slow_until_it_is_restored(lab: Lab) -> None:
    lab.slow("n1", 5 * MBIT)
    try:
        receives(lab, "n1", 5 * MBIT)
    finally:
        lab.restore("n1")
    receives(lab, "n1", 20 * MBIT)


@pytest.mark.parametrize("device", ["n0", "n1"], ids=["accelerator board", "CPU board"])
def test_a_slice_is_its_quota_and_can_be_starved(lab: Lab, device: str) -> None:
    try:
        with program(lab, device, SPIN):
            lab.starve(device, 0.15)
            comes_to(0.15, lambda: lab.status(0.5)[device].cpu_use)
            lab.starve(device, 0.05)
            comes_to(0.05, lambda: lab.status(0.5)[device].cpu_use)
    finally:
        lab.restore(device)
    assert lab.status(0.0)[device].used.cpu_quota == 0.5


def test_on_an_accelerator_board_only_the_executor_is_in_the_slice(lab: Lab) -> None:
    before = lab.status(0.0)["n0"].used
    with lab.popen("n0", (sys.executable, "-c", SPIN)) as busy:
        try:
            comes_to(1.0, lambda: lab.status(0.5)["n0"].other_cpu_use)
        finally:
            busy.kill()
    after = lab.status(0.0)["n0"].used
    in_slice_s, beside_s = (
        after.slice_cpu_s - before.slice_cpu_s,
        after.other_cpu_s - before.other_cpu_s,
    )
    assert in_slice_s < 0.1 * beside_s


def test_a_process_that_exceeds_the_memory_is_killed_and_the_agent_is_not(lab: Lab) -> None:
    eater = lab.popen("n0", (sys.executable, "-c", "bytearray(300_000_000)"))
    assert eater.wait(60) == -9
    seen = lab.status(0.0)["n0"]
    assert seen.alive
    assert seen.used.oom_kills == 1
    assert 199e6 < seen.used.memory_peak_bytes <= 200e6


def test_a_paused_board_does_nothing(lab: Lab) -> None:
    with program(lab, "n0", SPIN):
        lab.pause("n0")
        try:
            seen = lab.status(0.3)["n0"]
        finally:
            lab.resume("n0")
        assert seen.stopped
        assert seen.cpu_use < 0.001  # its threads stop one after the other
        comes_to(0.5, lambda: lab.status(0.5)["n0"].cpu_use)


def test_a_cut_board_is_lost_and_found(lab: Lab, cluster: Cluster) -> None:
    def take(frame: int, _: Mapping[str, np.ndarray]) -> None:
        if frame == 3:
            lab.cut("n1")

    options = RunOptions(RunConfig(silence_timeout_s=1.5, lease_s=2.0))
    nodes = cluster.nodes(lab.addresses, Access(insecure=True))
    with pytest.raises(RunFailedError, match=r"node 'n1' at tcp://.* was lost"):
        cluster.run(RandomFrames(10**6), take, options, nodes=nodes)
    assert not lab.status(0.0)["n1"].link.up
    lab.restore("n1")
    lab.kill("n1")  # it may still hold the lease of the launcher that it does not hear
    assert not lab.status(0.0)["n1"].alive
    lab.restart("n1")
    taken = results()
    cluster.run(RandomFrames(5), taken, RunOptions(), nodes=nodes)
    cluster.check(taken.outputs, 5)


def test_all_agents_restart_while_another_program_on_a_board_continues(lab: Lab) -> None:
    before = {device.name: set(device.processes) for device in lab.status(0.0).devices}
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    with lab.popen("n0", argv) as stays:
        lab.renew(keep={stays.pid})
        after = {device.name: set(device.processes) for device in lab.status(0.0).devices}
        stays.kill()
    assert stays.pid in after["n0"]
    assert all(after[name] - {stays.pid} for name in before)
    assert not any(after[name] & before[name] for name in before)


def test_a_full_disk_is_reported_and_holds_again_once_it_is_free(lab: Lab, tmp_path: Path) -> None:
    other = make_cluster(tmp_path, 3, layers=9)  # of which the boards have no subnets yet
    nodes = other.nodes(lab.addresses, Access(insecure=True))
    assert lab.fill_disk("n2") > 20_000_000
    try:
        with pytest.raises((RunFailedError, BadInputError), match="n2") as error:
            other.run(RandomFrames(2), results(), RunOptions(), nodes=nodes)
    finally:
        lab.free_disk("n2")
    assert "space" in str(error.value)
    taken = results()
    other.run(RandomFrames(2), taken, RunOptions(), nodes=nodes)
    assert len(taken.outputs) == 2


def test_what_a_laboratory_cannot_do_is_said(lab: Lab) -> None:
    with pytest.raises(BadInputError, match="no device 'n7'; there are n0, n1, n2"):
        lab.pause("n7")
    with pytest.raises(BadInputError, match="'n0' has no disk of its own"):
        lab.fill_disk("n0")
    with pytest.raises(BadInputError, match="'n0' runs: kill it first"):
        lab.restart("n0")
    with pytest.raises(BadInputError, match="is there already"):
        Lab(CONFIG).up()
    assert lab.status(0.0)["n0"].alive, "the second attempt has not removed the first"
