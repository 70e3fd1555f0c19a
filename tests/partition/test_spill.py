"""What stays outside a full cache: bytes, or whole layers as Villarrubia et al. (2025) found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from benchmarks.papers.segmentation import at_8_bits, write_synthetic
from cnn.network import Network
from partition.devices import CacheSpill, Device
from partition.planner import make_plan
from partition.pricing.spill import RESERVED_BYTES
from partition.strategies.base import Problem
from partition.strategies.contiguous.segm import SequentialBalanced, SequentialCount
from partition.strategies.contiguous.segments import segments
from tests.partition.networks import chain, partitioned
from tests.partition.strategy_contract import equal

MIB = 2**20
CACHE = 8 * MIB


def synthetic(filters: int, folder: Path) -> Network:
    return at_8_bits(cnn.read(write_synthetic(folder / "net.onnx", filters)).network)


def tpus(count: int, spill: CacheSpill) -> tuple[Device, ...]:
    return tuple(replace(d, cache_bytes=CACHE, cache_spill=spill) for d in equal(count))


def host_mib(problem: Problem, numbers: np.ndarray) -> list[float]:
    costs = problem.costs.evaluate(numbers[None])
    return [round(float(size) / MIB, 2) for size in costs.cache_overrun_bytes[0]]


def test_of_602_filters_one_layer_stays_with_the_host_by_the_papers_rule(tmp_path: Path) -> None:
    """Table 4: 3.13 MiB with the host, although 6.22 of 8 MiB are weights and no byte is over."""
    network = synthetic(602, tmp_path)
    found = {}
    for spill in ("bytes", "layers"):
        problem = Problem(network, tpus(4, spill))  # type: ignore[arg-type]
        numbers = problem.numbers(SequentialCount().solve(problem).assignment)
        found[spill] = host_mib(problem, numbers)
    assert found == {"bytes": [0, 0, 0, 0], "layers": [0, 0, 0, pytest.approx(3.13, rel=0.01)]}


def test_of_572_filters_both_layers_fit_beside_their_inputs(tmp_path: Path) -> None:
    problem = Problem(synthetic(572, tmp_path), tpus(4, "layers"))
    numbers = problem.numbers(SequentialCount().solve(problem).assignment)
    assert host_mib(problem, numbers) == [0, 0, 0, 0]


def test_on_one_device_layers_leave_it_one_after_the_other(tmp_path: Path) -> None:
    """The third drop of Table 2: of four large layers two are on the device, then one."""
    found = []
    for filters in (637, 674):
        problem = Problem(synthetic(filters, tmp_path), tpus(1, "layers"))
        found += host_mib(problem, np.zeros(5, dtype=int))
    assert found == pytest.approx([6.95, 11.69], rel=0.01)


def test_balanced_segments_move_a_layer_that_would_stay_with_the_host() -> None:
    """5.1 of 8 MiB do not fit beside an image of 3 MiB, and 7.4 MiB fit beside small inputs."""
    sizes = [round(size * MIB) for size in (2.5, 2.6, 2.4, 2.4)]
    network = at_8_bits(chain(1, 1, 1, 1, weights=sizes))
    image = replace(network.tensors[network.inputs[0]], shape=(1, 3 * MIB))
    network = replace(network, tensors={**network.tensors, image.name: image})
    problem = Problem(network, tpus(2, "layers"))
    solution = SequentialBalanced().solve(problem)
    numbers = problem.numbers(solution.assignment)
    assert numbers.tolist() == [0, 1, 1, 1]
    assert host_mib(problem, numbers) == [0, 0]
    assert host_mib(problem, np.array([0, 0, 1, 1])) == [2.6, 0]


Partitioned = tuple[Network, tuple[Device, ...], Mapping[str, str]]


@given(partitioned(), st.sampled_from((0, 300, 5000, 40000)))
@settings(max_examples=30)
def test_plans_and_populations_are_priced_alike(case: Partitioned, room: int) -> None:
    network, devices, assignment = case
    devices = tuple(
        replace(d, cache_bytes=RESERVED_BYTES + room, cache_spill="layers") for d in devices
    )
    problem = Problem(network, devices)
    costs = problem.costs.evaluate(problem.numbers(assignment)[None])
    plan = make_plan(network, "", devices, assignment, strategy="manual", explanation="")
    for number, device in enumerate(devices):
        fetched = costs.cache_overrun_bytes[0, number]
        kept = 0
        for layer in network.layers:  # the rule, in words
            size = network.weight_bytes((layer.name,))
            beside = max(RESERVED_BYTES, costs.received_bytes[0, number])
            fits = kept + size <= RESERVED_BYTES + room - beside
            kept += size if assignment[layer.name] == device.name and fits else 0
        own = [layer for layer, name in assignment.items() if name == device.name]
        each = sum(network.weight_bytes((layer,)) for layer in own)
        assert fetched == each - kept
        planned = sum(p.predicted_s for p in plan.phases if p.device == device.name)
        estimate = costs.compute_s[0, number] + costs.dividing_s[0, number]
        assert planned <= estimate * (1 + 1e-9)


@given(st.lists(st.sampled_from((0, 100, 4096, 10_000)), min_size=3, max_size=6), st.data())
@settings(max_examples=30)
def test_segments_fetch_what_the_cost_model_says(weights: list[int], data: st.DataObject) -> None:
    network = chain(*[1] * len(weights), weights=weights)
    cut = data.draw(st.integers(1, len(weights) - 1))
    devices = tuple(
        replace(device, cache_bytes=RESERVED_BYTES + 12_000, cache_spill="layers")
        for device in equal(2)
    )
    problem = Problem(network, devices)
    numbers = np.arange(len(weights)) >= cut
    found = problem.costs.evaluate(numbers[None].astype(int)).cache_overrun_bytes[0]
    table = segments(problem).uncached_bytes[0]
    assert found.tolist() == [table[0, cut], table[cut, -1]]
