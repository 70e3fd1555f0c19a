"""Boards under a quota know how fast they are: they tell before a run what it will take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.readings import thread_called
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.streaming.job import launch
from nodes.execution.worker import THREAD_NAME

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.alone]

QUOTA = 0.2
CONFIG = LabConfig(
    name=f"q{os.getpid() % 10**7}",
    undisturbed=True,
    defaults=BoardConfig(cpu=QUOTA),
    devices=(DeviceConfig(name="a"), DeviceConfig(name="c", board="cpu")),
    cluster={"model": "onnx-wheel:squeezenet", "frames": 48, "strategy": "sequential"},
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    missing = machine.look(CONFIG).missing
    if missing:
        pytest.skip(f"boards cannot be emulated here: {'; '.join(missing)}")
    with Lab(CONFIG) as made:
        yield made


def computed_s(processes: tuple[int, ...], name: str) -> float:
    """For how long the thread of this name has had a CPU."""
    thread = thread_called(set(processes), name)
    (schedstat,) = Path("/proc").glob(f"[0-9]*/task/{thread}/schedstat")
    return int(schedstat.read_text().split()[0]) / 1e9


def test_what_is_predicted_is_what_the_quota_allows(lab: Lab) -> None:
    """Whole cores would be five times as fast. (By how much a core is faster or slower than a
    moment before is for its neighbours to say, so this is no measure of the prediction.)"""
    with open_progress() as progress:
        report = launch(Request(lab.cluster_file), progress, started_s=0.0).report
    assert report is not None
    assert report.period_predicted_s is not None
    assert report.period_measured_s is not None
    assert 0.5 < report.period_predicted_s / report.period_measured_s < 2.0
    assert report.agrees
    used = lab.status(0.0)["a"]
    executor_s = computed_s(used.processes, THREAD_NAME)
    assert used.used.slice_cpu_s == pytest.approx(executor_s, rel=0.05), "nobody else was in it"
