"""Subnets that were not measured are foreseen from those that were.

Each measured subnet is foreseen by a fit without it and without those that share half of its
layers (those in both ÷ those in either). `tests/fixtures/profiles/resnet50.json` says where it was
measured. Errors are root mean squares of logarithms.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cnn
from cnn.network import Network
from partition.devices import Device
from partition.measured.profiles import NodeProfile, Profile, SubnetTime, measured_costs
from partition.planner import make_plan
from partition.pricing.compute_time import layer_work
from tests.partition.networks import residual

MEASURED = Path(__file__).parent.parent / "fixtures" / "profiles" / "resnet50.json"
OUTLIER = 1.35

Subnets = Sequence[SubnetTime]


def subnet(layers: Sequence[str], seconds: float) -> SubnetTime:
    return SubnetTime(tuple(layers), (), (), "", seconds)


def predicted_s(network: Network, node: NodeProfile, subnets: Subnets) -> dict[SubnetTime, float]:
    """What a plan would say that each of these takes, after the measurements in `node`."""
    names = ("a", "b", "c")
    devices = tuple(Device(name) for name in names)
    profile = Profile(dict.fromkeys(names, node))
    devices, layer_s = measured_costs(network, devices, profile)
    found = {}
    for each in subnets:
        assignment, name = {}, "a"
        for layer in network.layers:
            inside = layer.name in each.layers
            name = "b" if inside else "c" if name == "b" else name
            assignment[layer.name] = name
        plan = make_plan(
            network, "", devices, assignment, strategy="", explanation="", layer_s=layer_s
        )
        (phase,) = (phase for phase in plan.phases if phase.device == "b")
        found[each] = phase.predicted_s
    return found


def alike(one: SubnetTime, other: SubnetTime) -> bool:
    both, either = set(one.layers) & set(other.layers), set(one.layers) | set(other.layers)
    return len(both) >= len(either) / 2


def foreseen(network: Network, node: NodeProfile, truth: dict[SubnetTime, float]) -> float:
    """The error over all subnets of `truth`, each left out with those that are alike."""
    errors = []
    for each, seconds in truth.items():
        others = tuple(other for other in node.subnets if not alike(each, other))
        without = NodeProfile(node.layer_s, others)
        errors.append(np.log(predicted_s(network, without, [each])[each] / seconds))
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.fixture(scope="module")
def network() -> Network:
    return cnn.read("onnx-wheel:resnet50").network


@pytest.fixture(scope="module")
def board() -> NodeProfile:
    data: dict[str, Any] = json.loads(MEASURED.read_text())
    subnets = tuple(subnet(each["layers"], each["seconds"]) for each in data["subnets"])
    return NodeProfile(data["layer_s"], subnets)


def test_subnets_of_a_board_are_foreseen(network: Network, board: NodeProfile) -> None:
    truth = {each: each.seconds for each in board.subnets}
    assert foreseen(network, board, truth) < 0.03


def test_one_subnet_that_took_too_long_spoils_little(network: Network, board: NodeProfile) -> None:
    slowed = board.subnets[7]
    others = tuple(each for each in board.subnets if each != slowed)
    wrong = subnet(slowed.layers, OUTLIER * slowed.seconds)
    truth = {each: each.seconds for each in others}
    assert foreseen(network, NodeProfile(board.layer_s, (*others, wrong)), truth) < 0.03


def test_a_few_subnets_tell_of_the_others(network: Network, board: NodeProfile) -> None:
    errors: list[float] = []
    for start in range(4):
        few, others = board.subnets[start::6], set(board.subnets) - set(board.subnets[start::6])
        found = predicted_s(network, NodeProfile(board.layer_s, few), [*others])
        errors += [np.log(found[each] / each.seconds) for each in others]
    assert np.sqrt(np.mean(np.square(errors))) < 0.035


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.further) for n in (1, 2))])
def test_a_board_of_known_figures_is_foreseen(seed: int) -> None:
    """A simulated board: a run costs 2 % of the whole, layers deviate by 10 %, are 15 % off and 1.3
    times too slow alone, and measured subnets are 3 % off, one of them 35 %."""
    rng, network = np.random.default_rng(seed), residual()
    names = [layer.name for layer in network.layers]
    figures = np.array([1e-10, 3e-10, 1e-10]) * np.exp(rng.normal(0, 0.3, 3))
    layer_s = layer_work(network) @ figures * np.exp(rng.normal(0, 0.1, len(names)))
    run_s = 0.02 * layer_s.sum()
    spans = [sorted(rng.choice(len(names) + 1, 2, replace=False)) for _ in range(40)]
    ends = [(a, b) for a, b in spans if b - a > 3 and layer_s[a:b].sum() > run_s]
    truth, measured = {}, []
    for index, (a, b) in enumerate(ends):
        seconds = float(layer_s[a:b].sum() + run_s)
        off = OUTLIER if index == 0 else float(np.exp(rng.normal(0, 0.03)))
        measured.append(subnet(names[a:b], seconds * off))
        truth[measured[-1]] = seconds
    alone = dict(zip(names, 1.3 * layer_s * np.exp(rng.normal(0, 0.15, len(names))), strict=True))
    assert foreseen(network, NodeProfile(alone, tuple(measured)), truth) < 0.05
