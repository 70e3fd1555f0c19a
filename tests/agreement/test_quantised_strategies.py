"""Every strategy cuts quantised networks between 8-bit tensors, and no cut changes a result."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import cnn
from csdf.conversion.from_network import HOST
from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem
from tests.agreement.comparison import run
from tests.launcher import kinds
from tests.quick_searches import QUICK

DEVICES = (Device("a", macs_per_s=4e7), Device("b", macs_per_s=4e7), Device("c", macs_per_s=2e7))
"""Slow ones with fast links, so that it pays to divide a small network."""

BLOCKS = 2

PINNED = ("manual",)
"""Strategies that take the devices of all layers from the user."""


@cache
def model_of(kind: str, folder: Path) -> tuple[cnn.Model, Path]:
    path = kinds.write(folder / f"{kind}.onnx", kind, depth=BLOCKS)
    return cnn.read(path), path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantised")


def results(model: cnn.Model, plan: Plan, frame: Mapping[str, np.ndarray], place: Path) -> dict:
    """The tensors of all phases, each computed by an engine that fuses what it gets."""
    held = {name: frame[name.partition("@")[0]] for name in model.network.inputs}
    for phase in plan.phases:
        subnet = model.cut(phase.layers, phase.inputs, phase.outputs, place)
        given = {name: held[name] for name in phase.inputs}
        held.update(run(subnet.graph, given, phase.outputs))
    return held


def crossing(model: cnn.Model, plan: Plan) -> set[str]:
    """The types of what devices send to each other, except parts of the frame and of the result."""
    network = model.network
    ends = {name.partition("@")[0] for name in (*network.inputs, *network.outputs)}
    between = [x for x in plan.channels if HOST not in (x.source_device, x.target_device)]
    sent = [x.tensor for x in between if not x.is_local]
    return {x.dtype for x in sent if x.name.partition("[")[0].partition("@")[0] not in ends}


@pytest.mark.parametrize("kind", ["qdq", "qoperator"])
@pytest.mark.parametrize("name", QUICK)
def test_a_strategy_sends_8_bits_and_changes_no_bit(
    name: str, kind: str, folder: Path, tmp_path: Path
) -> None:
    model, path = model_of(kind, folder)
    layers = [layer.name for layer in model.network.layers]
    pins = {each: "abc"[3 * n // len(layers)] for n, each in enumerate(layers)}
    problem = Problem(model.network, DEVICES, pins if name in PINNED else {}, model=model)
    solution = QUICK[name].solve(problem)
    plan = plan_solution(problem, solution, name)
    cut = model.rewritten(solution.rewrites)
    assert len({phase.device for phase in plan.phases}) > 1
    assert crossing(cut, plan) <= {"uint8"}
    frame = {"image": kinds.frames()["noise"]}
    (expected,) = run(path, frame, ["scores"]).values()
    found = results(cut, plan, frame, tmp_path)
    for made in cut.network.outputs:
        np.testing.assert_array_equal(found[made], expected)
