"""Strategy `exact` on the networks of Yin et al., beside an optimum found in another way."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

import cnn
from cnn.network import Network
from partition.devices import Device
from partition.strategies.base import Problem, SearchProgress
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.strategy import Exact
from tests.partition.networks import residual
from tests.partition.strategy_contract import equal

MODELS = Path(__file__).parent.parent / "fixtures" / "models"


def downsets(network: Network) -> list[int]:
    """All sets of layers that hold whatever their members depend on, as bits; small ones first."""
    number = {layer.name: index for index, layer in enumerate(network.layers)}
    needed = [0] * len(number)
    for maker, reader, _ in network.edges:
        needed[number[reader]] |= 1 << number[maker]
    found, latest = [0], {0}
    while latest:
        larger = {
            known | 1 << layer
            for known in latest
            for layer, before in enumerate(needed)
            if not known >> layer & 1 and not before & ~known
        }
        found += sorted(larger)
        latest = larger
    return found


def least_largest_weights(network: Network, stages: int) -> int:
    """Of all contiguous partitions: a stage is what one downset has beyond another.

    A dynamic program over pairs of downsets, of which these networks have few; bytes.
    """
    sets = downsets(network)
    users: dict[str, list[int]] = {}
    for index, layer in enumerate(network.layers):
        for name in layer.weights:
            users.setdefault(name, []).append(index)
    count = len(network.layers)
    member = np.array([[known >> layer & 1 for layer in range(count)] for known in sets], bool)
    own = np.zeros(count, dtype=np.int64)
    held = np.zeros((len(sets), len(sets)), dtype=np.int64)
    for name, layers in users.items():
        size = network.weights[name].bytes
        if len(layers) == 1:
            own[layers[0]] += size
        else:
            for_one = [member[None, :, layer] & ~member[:, None, layer] for layer in layers]
            held += size * np.any(for_one, axis=0)
    weight = member @ own
    held += weight[None, :] - weight[:, None]
    larger = np.array([[not a & ~b for b in sets] for a in sets])
    between = np.where(larger, held, np.iinfo(np.int64).max)
    best = between[0]
    for _ in range(stages - 1):
        best = np.maximum(best[:, None], between).min(axis=0)
    return int(best[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["DenseNet201", pytest.param("ResNet152", marks=pytest.mark.further)]
)
def test_six_stages_are_proved_within_a_minute(name: str) -> None:
    network = cnn.read(MODELS / f"{name}.onnx").network
    devices = tuple(Device(f"d{i}", cache_bytes=32 << 20) for i in range(6))
    problem = Problem(network, devices, objective="memory")
    start_s = time.process_time()
    solution = Exact().solve(problem)
    assert time.process_time() - start_s < 60
    assert solution.optimal
    assert solution.explanation.count("(optimal)") == 3
    costs = problem.costs.evaluate(problem.numbers(solution.assignment)[None])
    assert costs.weight_bytes.max() == least_largest_weights(network, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stages", [3, *(pytest.param(number, marks=pytest.mark.further) for number in (2, 5, 8))]
)
def test_resnet50s_optima_are_those_of_the_dynamic_program(stages: int) -> None:
    network = cnn.read("onnx-wheel:resnet50").network
    solution = Exact().solve(Problem(network, equal(stages), objective="memory"))
    held = [0] * stages
    for layer, device in solution.assignment.items():
        held[int(device[1:])] += network.weight_bytes((layer,))
    assert solution.optimal
    assert max(held) == least_largest_weights(network, stages)


def test_ctrl_c_ends_the_search_at_once() -> None:
    def interrupt(progress: SearchProgress) -> None:
        raise KeyboardInterrupt

    problem = Problem(residual(16), equal(6), on_progress=interrupt)
    start_s = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        Exact("exact-vertical", Shape(contiguous=False)).solve(problem)
    assert time.process_time() - start_s < 10
