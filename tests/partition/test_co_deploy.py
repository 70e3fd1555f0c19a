"""Strategy `co-deploy`: several networks share devices as evenly as one would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cnn.network import Layer, Network, Tensor
from partition.devices import Device
from partition.planner import make_plan
from partition.strategies.base import Problem
from partition.strategies.co_deploy import CoDeploy, networks_of
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.exact.search import SolverEffort
from tests.partition.exhaustive import every_assignment
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import StrategyContract, equal


class TestCoDeploy(StrategyContract):
    strategy = CoDeploy((Sequential(),), SolverEffort(4.0, 8.0))


def beside(first: Network, second: Network) -> Network:
    """Two networks as one, called a and b, as `cnn.merge` names things."""

    def layer(prefix: str, own: Layer) -> Layer:
        return replace(
            own,
            name=f"{prefix}/{own.name}",
            inputs=tuple(f"{prefix}/{name}" for name in own.inputs),
            outputs=tuple(f"{prefix}/{name}" for name in own.outputs),
            weights=tuple(f"{prefix}/{name}" for name in own.weights),
        )

    def tensors(prefix: str, own: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"{prefix}/{n}": replace(t, name=f"{prefix}/{n}") for n, t in own.items()}

    parts = (("a", first), ("b", second))
    return Network(
        "a+b",
        tuple(layer(prefix, own) for prefix, net in parts for own in net.layers),
        {n: t for prefix, net in parts for n, t in tensors(prefix, dict(net.tensors)).items()},
        {n: t for prefix, net in parts for n, t in tensors(prefix, dict(net.weights)).items()},
        tuple(f"{prefix}/{name}" for prefix, net in parts for name in net.inputs),
        tuple(f"{prefix}/{name}" for prefix, net in parts for name in net.outputs),
    )


def test_networks_are_told_apart_by_what_connects_their_layers() -> None:
    parts = networks_of(beside(residual(2), chain(1, 1)))
    assert [len(part) for part in parts] == [len(residual(2).layers), 2]
    assert parts[1] == ("b/l0", "b/l1")
    assert len(networks_of(residual(3))) == 1


def test_a_small_problem_is_solved_exactly() -> None:
    network = beside(chain(3 * 10**9, 10**9), chain(2 * 10**9, 2 * 10**9, 10**9))
    problem = Problem(network, equal(3))
    solution = CoDeploy().solve(problem)
    every = problem.costs.evaluate(every_assignment(problem)).period_s.min()
    numbers = problem.numbers(solution.assignment)
    found = problem.costs.evaluate(numbers[None]).period_s[0]
    assert found == pytest.approx(every, rel=1e-3)
    assert solution.optimal or (solution.gap or 0) < 0.01
    assert "2 networks side by side: a on d" in solution.explanation


def test_one_balance_for_all_is_better_than_one_for_each() -> None:
    heavy = chain(*[4 * 10**8] * 12, weights=[10**5] * 12)
    light = chain(*[10**8] * 12, weights=[4 * 10**5] * 12)
    problem = Problem(beside(heavy, light), equal(4))
    together = CoDeploy((Sequential(),)).solve(problem)
    costs = problem.costs.evaluate(problem.numbers(together.assignment)[None])
    apart = [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6  # two devices for each network
    alone = problem.costs.evaluate(np.array([apart]))
    assert costs.period_s[0] < 0.7 * alone.period_s[0]
    assert costs.weight_bytes.max() <= costs.weight_bytes.sum() / 4 * 1.3


def test_what_it_finds_can_be_deployed() -> None:
    network = beside(residual(3), residual(2, seed=1))
    devices = (Device("big"), Device("small", macs_per_s=5e9))
    solution = CoDeploy((Sequential(),), SolverEffort(4.0, 8.0)).solve(Problem(network, devices))
    plan = make_plan(
        network, "", devices, solution.assignment, strategy="co-deploy", explanation=""
    )
    host = [channel for channel in plan.channels if channel.target_device == "@host"]
    assert {channel.tensor.name for channel in host} == set(network.outputs)


def test_the_bound_is_the_work_that_devices_can_share_at_best() -> None:
    """Total work ÷ devices where they are equal, even if the solver has no time to prove any."""
    network = beside(chain(*[10**9] * 9), chain(*[3 * 10**8] * 15))
    problem = Problem(network, equal(4))
    solution = CoDeploy((Sequential(),), SolverEffort(1e-6, 1.0)).solve(problem)
    (period_s,) = problem.costs.evaluate(problem.numbers(solution.assignment)[None]).period_s
    share_s = problem.costs.layer_s[:, 0].sum() / 4
    assert solution.gap == pytest.approx(1 - share_s / period_s)
    assert f"no assignment of whole layers has less than period {1e3 * share_s:.3f} ms" in (
        solution.explanation
    )
    assert "at least 0.000 ms" not in solution.explanation
    assert solution.optimal == (solution.gap == 0)
