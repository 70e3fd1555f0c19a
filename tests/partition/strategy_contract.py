"""What every strategy must do, as a class of tests that each strategy's own test class inherits."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

import numpy as np
import pytest

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError
from partition.planner import plan_solution
from partition.strategies.base import (
    OnProgress,
    Problem,
    Rewritable,
    SearchProgress,
    Solution,
    Strategy,
    ignore_progress,
)
from tests.partition import networks

MB = 10**6


def equal(count: int, memory_bytes: int | None = None) -> tuple[Device, ...]:
    return tuple(Device(f"d{i}", memory_bytes) for i in range(count))


class StrategyContract:
    """Inherit and define `strategy`; a strategy that needs pins completes them in `pins`.

    Strategies that rewrite the network inherit `RewritingContract`, whose networks have models.
    """

    strategy: Strategy

    def pins(self, network: Network, devices: tuple[Device, ...]) -> Mapping[str, str]:
        """Pins without which the strategy has nothing to say; contiguous, one run per device."""
        return {}

    def chain(self, *macs: int) -> Network:
        """l0 → l1 → …, with about this much work."""
        return networks.chain(*macs)

    def residual(self, blocks: int) -> Network:
        """A residual network in miniature."""
        return networks.residual(blocks)

    def model(self, network: Network) -> Rewritable | None:
        """The model of a network that `chain` or `residual` has made."""
        return None

    def problem(
        self,
        network: Network,
        devices: tuple[Device, ...],
        pins: Mapping[str, str] | None = None,
        seed: int = 0,
        on_progress: OnProgress = ignore_progress,
    ) -> Problem:
        """A problem with the pins that the strategy needs."""
        given = {**self.pins(network, devices), **(pins or {})}
        return Problem(network, devices, given, seed, on_progress, model=self.model(network))

    def solve(
        self,
        network: Network,
        devices: tuple[Device, ...],
        pins: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> Solution:
        """Solve, check what holds for every solution, and plan it."""
        problem = self.problem(network, devices, pins, seed)
        solution = self.strategy.solve(problem)
        names = {device.name for device in devices}
        rewritten = network
        if solution.rewrites:
            assert problem.model is not None
            rewritten = problem.model.rewritten(solution.rewrites).network
            assert solution.network == rewritten
        assert list(solution.assignment) == [layer.name for layer in rewritten.layers]
        assert set(solution.assignment.values()) <= names
        assert all(solution.assignment[layer] == x for layer, x in problem.pins.items())
        assert solution.explanation
        plan = plan_solution(problem, solution, self.strategy.name)
        assert plan.assignment == solution.assignment
        assert plan.rewrites == solution.rewrites
        return solution

    def test_every_layer_gets_a_known_device(self) -> None:
        self.solve(self.residual(4), equal(3))

    def test_one_device_gets_everything(self) -> None:
        assert set(self.solve(self.chain(5, 5, 5), equal(1)).assignment.values()) == {"d0"}

    def test_one_layer_is_a_network(self) -> None:
        self.solve(self.chain(5), equal(3))

    def test_more_devices_than_layers_is_fine(self) -> None:
        self.solve(self.chain(10**9, 10**9), equal(6))

    def test_pins_are_respected(self) -> None:
        network = self.chain(*[10**9] * 6)
        self.solve(network, equal(3), {"l0": "d2", "l3": "d1"})

    def test_the_same_seed_gives_the_same_assignment(self) -> None:
        network = self.residual(3)
        random.seed(1)
        np.random.seed(1)
        first = self.solve(network, equal(3), seed=7)
        random.seed(2)
        np.random.seed(2)
        assert self.solve(network, equal(3), seed=7) == first

    def test_global_random_generators_are_left_alone(self) -> None:
        random.seed(3)
        expected = random.getstate()
        self.solve(self.residual(2), equal(2))
        assert random.getstate() == expected

    def test_unequal_devices_are_used_as_they_come(self) -> None:
        devices = (Device("slow", macs_per_s=1e9), Device("fast", 10**9, macs_per_s=8e9))
        self.solve(self.residual(3), devices)

    def test_memory_limits_are_respected_where_they_can_be(self) -> None:
        network = networks.chain(*[10**6] * 8, weights=[5 * MB] * 8)
        roomy, small = Device("roomy", 250 * MB), Device("small", 91 * MB)
        # 160 MB of weights: at most one layer fits beside the engine on the small device.
        self.solve(network, (small, roomy))

    def test_progress_is_reported_to_its_end(self) -> None:
        seen: list[SearchProgress] = []
        self.strategy.solve(self.problem(self.residual(2), equal(2), on_progress=seen.append))
        assert seen
        assert [step.done for step in seen] == sorted(step.done for step in seen)
        assert all(0 <= step.done <= step.total for step in seen)
        assert seen[-1].done == seen[-1].total or "optimal" in seen[-1].best

    def test_impossible_pins_end_in_a_sentence(self) -> None:
        network = self.chain(1, 1)
        with pytest.raises(PartitionError, match="'ghost'"):
            self.strategy.solve(self.problem(network, equal(2), {"l0": "ghost"}))


class ContiguousContract(StrategyContract):
    """What every strategy must do that gives each device one run of layers at most."""

    def test_pins_that_interleave_are_refused(self) -> None:
        pins = {"l0": "d0", "l1": "d1", "l2": "d0"}
        with pytest.raises(PartitionError, match="no contiguous cut respects these pins: 'l0'"):
            self.strategy.solve(Problem(networks.chain(1, 1, 1), equal(2), pins))

    def test_an_overfull_cut_is_admitted(self) -> None:
        network = networks.chain(1, 1, weights=[10**8, 10**8])
        solution = self.strategy.solve(Problem(network, equal(2, 100 * MB)))
        assert re.search(
            "(no contiguous cut|no cut by depth|none) was found to fit", solution.explanation
        )
