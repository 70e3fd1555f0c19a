"""Pipelines of unlike devices: `two-stage` and `k-stage` of Velasco-Montero et al. (2023)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from partition.devices import Device
from partition.errors import PartitionError
from partition.objective import Objective
from partition.strategies.base import Problem
from partition.strategies.chosen import objective_value
from partition.strategies.contiguous.stages import (
    LEAST_GAIN,
    KStage,
    TwoStage,
    count_cuts,
    cut_vectors,
    device_orders,
)
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import StrategyContract, equal

GPU = Device("gpu", macs_per_s=1e9, busy_w=10.0, idle_w=0.0, wire_s_per_byte=1e-9)
CPU = Device("cpu", macs_per_s=4e8, busy_w=5.0, idle_w=0.0, wire_s_per_byte=1e-9)
NETWORK = chain(*[n * 10**8 for n in (4, 3, 1, 2, 3, 1, 5)], elements=1000)
OBJECTIVES: tuple[Objective, ...] = ("period", "memory", "latency", "energy")


def value(problem: Problem, rows: np.ndarray) -> np.ndarray:
    return objective_value(problem, problem.costs.evaluate(rows))


def runs(problem: Problem, assignment: dict[str, str]) -> list[str]:
    return [name for name, _ in itertools.groupby(assignment.values())]


class TestTwoStage(StrategyContract):
    strategy = TwoStage()

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_no_cut_of_no_pair_of_devices_is_better(self, objective: Objective) -> None:
        slow = replace(CPU, name="slow", macs_per_s=1e8, busy_w=1.0)
        problem = Problem(NETWORK, (GPU, CPU, slow), objective=objective)
        every = [
            np.repeat(order, [cut, 7 - cut])
            for order in itertools.permutations(range(3), 2)
            for cut in range(8)
        ]
        found = problem.numbers(self.strategy.solve(problem).assignment)
        assert value(problem, found[None]) == pytest.approx(value(problem, np.array(every)).min())

    def test_one_device_alone_responds_soonest(self) -> None:
        problem = Problem(NETWORK, (CPU, GPU), objective="latency")
        assert set(self.strategy.solve(problem).assignment.values()) == {"gpu"}

    def test_the_frugal_device_saves_energy_at_the_cost_of_the_period(self) -> None:
        frugal = replace(CPU, busy_w=1.0)
        fast, thrifty = (
            Problem(NETWORK, (GPU, frugal), objective=objective)
            for objective in ("period", "energy")
        )
        assert set(self.strategy.solve(fast).assignment.values()) == {"gpu", "cpu"}
        assert set(self.strategy.solve(thrifty).assignment.values()) == {"cpu"}

    def test_pins_to_three_devices_are_refused(self) -> None:
        pins = {"l0": "d0", "l1": "d1", "l2": "d2"}
        with pytest.raises(PartitionError, match="no two stages respect the pins"):
            self.strategy.solve(Problem(chain(1, 1, 1), equal(3), pins))

    def test_devices_of_one_core_are_not_used_together(self) -> None:
        alone = tuple(replace(d, name=d.name, host="box", host_cores=1) for d in (GPU, CPU))
        solution = self.strategy.solve(Problem(NETWORK, alone))
        assert set(solution.assignment.values()) == {"gpu"}


class TestKStage(StrategyContract):
    strategy = KStage()

    def test_a_device_may_get_the_first_and_the_last_stage(self) -> None:
        # The CPU is good at what stands at either end: measured seconds say so.
        seconds = np.array([[5.0, 1.0], [1.0, 9.0], [1.0, 9.0], [5.0, 1.0]])
        problem = Problem(chain(1, 1, 1, 1), (GPU, CPU), layer_s=seconds)
        solution = self.strategy.solve(problem)
        assert runs(problem, dict(solution.assignment)) == ["cpu", "gpu", "cpu"]
        assert solution.explanation.startswith("cpu → gpu → cpu")

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_it_is_no_worse_than_two_stages(self, objective: Objective) -> None:
        problem = Problem(residual(4), (GPU, CPU, replace(CPU, name="b")), objective=objective)
        rows = [
            problem.numbers(strategy.solve(problem).assignment)
            for strategy in (self.strategy, TwoStage())
        ]
        k, two = value(problem, np.array(rows))
        assert k <= two * (1 + LEAST_GAIN)

    def test_equal_devices_all_get_a_stage_as_long_as_that_gains(self) -> None:
        problem = Problem(residual(8), equal(4))
        found = self.strategy.solve(problem)
        assert len(set(found.assignment.values())) == 4
        hurried = KStage(affordable=1000).solve(problem)
        assert "each device once" in hurried.explanation
        rows = [problem.numbers(each.assignment) for each in (found, hurried)]
        best, quick = problem.costs.evaluate(np.array(rows)).period_s
        assert quick <= 1.02 * best

    def test_of_many_unlike_devices_the_fast_ones_are_taken(self) -> None:
        devices = tuple(Device(f"d{i}", macs_per_s=1e9 * (1 + i)) for i in range(14))
        problem = Problem(residual(8), devices)
        used = set(KStage(affordable=10**4).solve(problem).assignment.values())
        assert len(used) >= 5
        assert {"d13", "d12", "d11"} <= used

    def test_it_continues_until_memory_suffices(self) -> None:
        network = chain(*[1] * 6, weights=[4_000_000] * 6)
        solution = self.strategy.solve(Problem(network, equal(6, 100 * 10**6)))
        assert "nothing was found to fit" not in solution.explanation
        assert len(set(solution.assignment.values())) >= 3

    def test_pins_that_only_a_return_respects_are_respected(self) -> None:
        pins = {"l0": "d0", "l1": "d1", "l2": "d0"}
        problem = Problem(chain(1, 1, 1), equal(2), pins)
        assert dict(self.strategy.solve(problem).assignment) == pins


def test_there_are_as_many_cuts_as_their_binomial_says() -> None:
    for units, stages in itertools.product((1, 2, 5, 9), (1, 2, 3, 4)):
        found = np.concatenate([*cut_vectors(units, stages)] or [np.empty((0, stages - 1))])
        assert len(found) == count_cuts(units, stages)
        assert (np.diff(found, prepend=0, append=units, axis=1) > 0).all()


def test_alike_devices_are_tried_in_one_order_only() -> None:
    assert list(device_orders([[0, 1, 2]], 2, again=False)) == [(0, 1)]
    assert list(device_orders([[0], [1]], 2, again=False)) == [(0, 1), (1, 0)]
    assert list(device_orders([[0, 1]], 3, again=True)) == [(0, 1, 0)]
    assert len(list(device_orders([[0], [1], [2]], 3, again=True))) == 3 * 2 * 2
