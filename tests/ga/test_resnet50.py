"""Both searches on ResNet50, the network of the paper's Table 3 and of the demo."""

from __future__ import annotations

from functools import cache

import pytest

import cnn
from cnn.network import Network
from csdf.from_network import HOST
from ga.paper import Parameters, evolve
from ga.vertical import Vertical
from ga.vertical_paper import saving_percent
from partition.planner import make_plan
from partition.strategies.base import Problem
from tests.partition.strategy_contract import equal

pytestmark = pytest.mark.slow


@cache
def resnet50() -> Network:
    return cnn.read("onnx-wheel:resnet50").network


@pytest.mark.parametrize("count", range(2, 11))
def test_the_papers_search_saves_what_can_be_saved(count: int) -> None:
    problem = Problem(resnet50(), equal(count))
    evolution = evolve(problem, Parameters(), lambda *_: None)
    assert saving_percent(problem, evolution.best) == pytest.approx(100 * (1 - 1 / count), abs=0.2)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_search_is_fair_in_work_and_weights_and_moves_little(seed: int) -> None:
    network, devices = resnet50(), equal(4)
    problem = Problem(network, devices, seed=seed)
    solution = Vertical().solve(problem)
    plan = make_plan(network, "", devices, solution.assignment, strategy="vertical", explanation="")
    compute = {device.name: 0.0 for device in devices}
    for phase in plan.phases:
        compute[phase.device] += phase.predicted_s
    weights = [part.weights_bytes for part in plan.memory.values()]
    between_devices = sum(
        channel.tensor.bytes
        for channel in plan.channels
        if not channel.is_local and HOST not in (channel.source_device, channel.target_device)
    )
    assert sum(compute.values()) / 4 >= 0.95 * max(compute.values())
    assert max(weights) <= 1.12 * sum(weights) / 4
    assert between_devices <= 17e6
    assert len(plan.phases) <= 20
