"""What one device alone is: all commands name the same figures for one plan, on unlike devices."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cnn.model import Model, read
from launcher.commands import front, solve
from launcher.commands.compare import perform as compare
from launcher.commands.options import CompareOptions, FrontOptions, SolveOptions
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.streaming.job import launch
from partition.alone import beside_idle_bytes, fullest_bytes, plan_alone
from partition.devices import Device
from partition.strategies.base import Problem
from tests.launcher.models import write_branches, write_classifier

SAID = re.compile(
    r"the fullest device holds .* in addition to its idle agent, (-?\d+)% less than one"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    write_classifier(folder / "net.onnx")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return read(write_branches(tmp_path_factory.mktemp("model") / "branches.onnx"))


@st.composite
def unlike_nodes(draw: st.DrawFn) -> str:
    lines = []
    for number in range(draw(st.integers(2, 4))):
        keys = [f"name: b{number}, address: 'tcp://192.0.2.{number + 1}:5500'"]
        keys.append(f"macs_per_s: {draw(st.sampled_from(['2G', '20G', '25G', '400G']))}")
        keys.append(f"engine: {draw(st.sampled_from(['auto', 'openvino', 'tvm']))}")
        if draw(st.booleans()):
            keys.append("device: gpu, link: 100Mbit/s")
        lines.append(f"{{{', '.join(keys)}}}")
    return ", ".join(lines)


def written(folder: Path, nodes: str, strategy: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: net.onnx\ninsecure: true\nnodes: [{nodes}]\nstrategy: {strategy}\n"
        "ga: {vertical: {budget: 0.01}}\n"
    )
    return path


@settings(max_examples=6, deadline=None, phases=[Phase.generate])
@given(nodes=unlike_nodes(), strategy=st.sampled_from(["vertical", "sequential", "k-stage"]))
def test_solve_front_and_launch_name_the_same_figures_for_one_plan(
    folder: Path, nodes: str, strategy: str
) -> None:
    cluster = written(folder, nodes, strategy)
    solved = solve.perform(SolveOptions(cluster=cluster, objective="both"))
    shown, points = solved.as_json(), front.perform(FrontOptions(cluster=cluster))
    offered = points.as_json()
    assert shown["alone"] == offered["alone"]
    for point, figures in zip(points.points, offered["points"], strict=True):
        if point.plan.assignment == solved.plan.assignment:
            assert_same_figures(shown, figures)
            assert figures["speedup"] == pytest.approx(
                shown["alone"]["period_s"] / shown["period_s"]
            )
    with open_progress() as progress:
        request = Request(target=cluster, plan_only=True)
        planned = launch(request, progress, started_s=time.monotonic()).plan
    assert planned is not None
    assert (planned.assignment, planned.memory) == (solved.plan.assignment, solved.plan.memory)
    said = SAID.search(planned.explanation)
    if said is not None:
        whole = beside_idle_bytes(solved.alone)
        assert int(said[1]) == round(100 * (1 - beside_idle_bytes(planned) / whole))


def assert_same_figures(shown: dict[str, Any], figures: dict[str, Any]) -> None:
    for key in ("period_s", "latency_s", "memory_saving_percent", "phases", "bytes_per_frame"):
        assert figures[key] == pytest.approx(shown[key], rel=1e-9), key
    assert figures["memory_bytes"] == max(each["memory_bytes"] for each in shown["devices"])


def test_auto_names_the_saving_against_the_same_device(folder: Path) -> None:
    nodes = (
        "{name: slow, address: 'tcp://192.0.2.1:1', macs_per_s: 10G, engine: openvino}, "
        "{name: fast, address: 'tcp://192.0.2.2:1', macs_per_s: 30G, engine: tvm}"
    )
    solved = solve.perform(SolveOptions(cluster=written(folder, nodes, "auto"), objective="both"))
    said = SAID.search(solved.plan.explanation)
    assert said is not None, solved.plan.explanation
    whole = beside_idle_bytes(solved.alone)
    assert int(said[1]) == round(100 * (1 - beside_idle_bytes(solved.plan) / whole))
    assert solved.alone.phases[0].device == "fast"


def test_compare_names_what_solve_names(folder: Path) -> None:
    path = str(folder / "net.onnx")
    (row,) = compare(CompareOptions(path, devices="3", strategies="sequential")).rows
    solved = solve.perform(SolveOptions(path, devices=3, strategy="sequential")).as_json()
    shown = row.as_json()
    same = ("alone", "memory_saving_percent", "memory_eq2_saving_percent", "speedup_bound")
    assert {key: shown[key] for key in same} == {key: solved[key] for key in same}


@given(
    speeds=st.lists(st.sampled_from([1e9, 2e10, 3e10]), min_size=1, max_size=5),
    measured=st.booleans(),
)
def test_one_device_alone_is_the_fastest_whatever_its_place(
    model: Model, speeds: list[float], measured: bool
) -> None:
    """Also where measured times alone tell devices apart."""
    count = len(speeds)
    problem = Problem(
        model.network,
        tuple(
            Device(f"d{n}", macs_per_s=1e10 if measured else speed, memory_bytes=10**9)
            for n, speed in enumerate(speeds)
        ),
    )
    if measured:
        layers = len(model.network.layers)
        seconds = np.tile([1e6 / speed for speed in speeds], (layers, 1))
        problem = replace(problem, layer_s=seconds)
    alone = plan_alone(problem)
    device = alone.phases[0].device
    assert speeds[int(device.removeprefix("d"))] == max(speeds)
    turned = replace(
        problem,
        devices=problem.devices[::-1],
        layer_s=None if problem.layer_s is None else problem.layer_s[:, ::-1],
    )
    other = plan_alone(turned)
    assert (other.period_s, fullest_bytes(other)) == (alone.period_s, fullest_bytes(alone))
    assert len(alone.devices) == count
