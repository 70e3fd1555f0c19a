"""Best contiguous cuts: the dynamic program against trying everything."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Network
from partition.devices import Device
from partition.objective import Objective
from partition.strategies.base import Problem
from partition.strategies.chosen import objective_value
from partition.strategies.contiguous import cuts as dynamic_program
from partition.strategies.contiguous import segments
from partition.strategies.contiguous.cuts import best_cuts
from partition.strategies.contiguous.sequential import NEXT_PERIOD, Sequential, contiguous_cut
from tests.partition.networks import chain, device_sets, networks


def every_cut(problem: Problem) -> np.ndarray:
    """All contiguous assignments, every order of the devices, some of them left out."""
    layers, devices = len(problem.network.layers), len(problem.devices)
    found = []
    for order in itertools.permutations(range(devices)):
        for cuts in itertools.combinations_with_replacement(range(layers + 1), devices - 1):
            sizes = np.diff([0, *cuts, layers])
            found.append(np.repeat(order, sizes))
    return np.unique(found, axis=0)


@given(st.lists(st.sampled_from((1, 2, 8, 64)), min_size=1, max_size=6), device_sets(3))
@settings(max_examples=30)
def test_no_cut_of_a_chain_has_a_shorter_period(
    macs: list[int], devices: tuple[Device, ...]
) -> None:
    alone = [Device(d.name, None, d.macs_per_s, d.link_bytes_per_s) for d in devices]
    problem = Problem(chain(*[count << 20 for count in macs], elements=64), tuple(alone))
    numbers, _ = contiguous_cut(problem, tolerance=0.0)
    found = problem.costs.evaluate(numbers[None]).period_s[0]
    assert found == pytest.approx(problem.costs.evaluate(every_cut(problem)).period_s.min())


@pytest.mark.parametrize("objective", ["memory", "latency", "energy"])
@given(st.lists(st.sampled_from((1, 8, 64, 200)), min_size=1, max_size=6), device_sets(3))
@settings(max_examples=15)
def test_no_cut_of_a_chain_is_better_by_any_objective(
    objective: Objective, macs: list[int], devices: tuple[Device, ...]
) -> None:
    alone = tuple(replace(device, host=None, memory_bytes=200 * 10**6) for device in devices)
    network = chain(*[n << 18 for n in macs], elements=64, weights=[n << 15 for n in macs])
    problem = Problem(network, alone, objective=objective)
    numbers = problem.numbers(Sequential().solve(problem).assignment)
    found = objective_value(problem, problem.costs.evaluate(numbers[None]))[0]
    least = objective_value(problem, problem.costs.evaluate(every_cut(problem))).min()
    tolerance = {"memory": 0.01, "latency": 1e-9, "energy": NEXT_PERIOD - 1}[objective]
    assert found <= least * (1 + tolerance)


@given(networks(6), device_sets(3), st.booleans())
@settings(max_examples=30)
def test_the_best_value_is_that_of_the_best_cut(
    network: Network, devices: tuple[Device, ...], total: bool
) -> None:
    problem = Problem(network, devices)
    priced = segments.segments(problem)
    values = np.where(priced.allowed, priced.seconds + priced.received_bytes, np.inf)
    found = best_cuts(priced.kinds, values, total=total)
    kind_of = {n: kind for kind, members in enumerate(priced.kinds) for n in members}
    combine = sum if total else max

    def value(numbers: np.ndarray) -> float:
        runs = [list(run) for _, run in itertools.groupby(range(len(numbers)), numbers.__getitem__)]
        parts = [values[kind_of[int(numbers[run[0]])], run[0], run[-1] + 1] for run in runs]
        return float(combine(parts))

    assert found is not None
    assert found[0] == pytest.approx(min(value(numbers) for numbers in every_cut(problem)))
    assert value(found[1]) == pytest.approx(found[0])


def test_the_fast_device_gets_the_heavy_end_wherever_it_is_listed() -> None:
    network = chain(*[10**8] * 2, *[10**9] * 4)
    slow, fast = Device("slow", macs_per_s=1e8), Device("fast", macs_per_s=4e9)
    for devices in ((slow, fast), (fast, slow)):
        problem = Problem(network, devices)
        numbers, _ = contiguous_cut(problem, tolerance=0.0)
        assert problem.devices[numbers[-1]].name == "fast"


def test_too_many_different_devices_are_used_in_the_users_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dynamic_program, "MAX_WORK", 0.0)
    devices = tuple(Device(f"d{i}", macs_per_s=1e9 * (i + 1)) for i in range(4))
    numbers, _ = contiguous_cut(Problem(chain(*[10**9] * 10), devices))
    assert numbers.tolist() == sorted(numbers.tolist())
    assert set(numbers.tolist()) == {0, 1, 2, 3}
