"""Equal counts, exhaustive cuts and balanced cuts: the strategies of Villarrubia et al. (2025)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cnn.network import Network
from partition.devices import Device
from partition.planner import plan_solution
from partition.strategies.balancing import balanced_split
from partition.strategies.base import Problem, Solution, Strategy
from partition.strategies.chosen import objective_value
from partition.strategies.contiguous.segm import (
    SequentialBalanced,
    SequentialCount,
    SequentialProfiled,
    by_depth,
    equal_counts,
    level_sizes,
)
from partition.strategies.contiguous.segments import segments
from tests.partition.networks import chain, networks, residual
from tests.partition.strategy_contract import ContiguousContract, equal


def counts(solution: Solution, devices: tuple[Device, ...]) -> list[int]:
    given = list(solution.assignment.values())
    return [given.count(device.name) for device in devices]


class TestSequentialCount(ContiguousContract):
    strategy = SequentialCount()

    def test_five_layers_in_four_segments_are_one_one_one_two(self) -> None:
        solution = self.strategy.solve(Problem(chain(1, 1, 1, 1, 1), equal(4)))
        assert counts(solution, equal(4)) == [1, 1, 1, 2]
        assert solution.explanation.endswith("1-1-1-2")

    @pytest.mark.parametrize("devices", range(1, 8))
    def test_numbers_differ_by_one_at_most(self, devices: int) -> None:
        found = equal_counts(23, devices)
        assert sum(found) == 23
        assert found == sorted(found)
        assert found[-1] - found[0] <= 1

    def test_pins_are_met_with_counts_as_equal_as_can_be(self) -> None:
        network = chain(*[1] * 6)
        solution = self.strategy.solve(Problem(network, equal(2), {"l4": "d0", "l5": "d1"}))
        assert counts(solution, equal(2)) == [5, 1]
        assert "as nearly as pins" in solution.explanation


@pytest.mark.parametrize("strategy", [SequentialCount(), SequentialBalanced()])
def test_an_objective_that_plays_no_part_is_reported(strategy: Strategy) -> None:
    problem = Problem(residual(2), equal(2), objective="energy")
    assert "(energy plays no part)" in strategy.solve(problem).explanation


class TestSequentialProfiled(ContiguousContract):
    strategy = SequentialProfiled()

    def test_it_finds_what_trying_everything_by_hand_finds(self) -> None:
        network = chain(*[n << 24 for n in (9, 1, 1, 8, 2, 7)], weights=[1 << 10] * 6)
        devices = (Device("a"), Device("b", macs_per_s=1e10), Device("c", macs_per_s=3e10))
        for objective in ("period", "memory", "latency", "energy"):
            problem = Problem(network, devices, objective=objective)  # type: ignore[arg-type]
            every = [
                np.repeat(order, np.diff([0, *cuts, 6]))
                for order in itertools.permutations(range(3))
                for cuts in itertools.combinations_with_replacement(range(7), 2)
            ]
            least = objective_value(problem, problem.costs.evaluate(np.array(every))).min()
            found = problem.numbers(self.strategy.solve(problem).assignment)
            assert objective_value(problem, problem.costs.evaluate(found[None])) == (
                pytest.approx(least)
            )

    def test_it_says_how_many_it_tried_and_from_what(self) -> None:
        network = chain(1, 1, 1, 1, 1)
        explanation = self.strategy.solve(Problem(network, equal(3))).explanation
        assert "all 11 cuts by depth" in explanation  # 1 + 4 + 6
        assert "estimated seconds" in explanation
        measured = Problem(network, equal(3), layer_s=np.full((5, 3), 0.1))
        assert "measured seconds" in self.strategy.solve(measured).explanation

    def test_measured_seconds_decide(self) -> None:
        seconds = np.array([[1.0], [1.0], [1.0], [9.0]]).repeat(2, axis=1)
        solution = self.strategy.solve(Problem(chain(9, 9, 9, 1), equal(2), layer_s=seconds))
        assert counts(solution, equal(2)) == [3, 1]

    def test_too_many_to_try_end_in_a_dynamic_program_that_says_so(self) -> None:
        problem = Problem(residual(8), equal(4))
        hurried = SequentialProfiled(affordable=100).solve(problem)
        assert "dynamic programming" in hurried.explanation
        best = problem.costs.evaluate(
            np.array([problem.numbers(each.assignment) for each in (
                hurried, self.strategy.solve(problem))])
        ).period_s  # fmt: skip
        assert best[0] <= best[1] * 1.01 + 1e-12

    def test_orders_of_twenty_unlike_devices_are_not_even_counted(self) -> None:
        devices = tuple(Device(f"d{i}", macs_per_s=1e9 * (1 + i)) for i in range(20))
        assert "dynamic" in self.strategy.solve(Problem(chain(*[1] * 25), devices)).explanation


class TestSequentialProfiledInHaste(ContiguousContract):
    """With a dynamic program from the first cut on."""

    strategy = SequentialProfiled(affordable=0)


class TestSequentialBalanced(ContiguousContract):
    strategy = SequentialBalanced()

    def test_the_small_first_layer_joins_the_second(self) -> None:
        network = chain(1, 1, 1, 1, 1, weights=[10, 1000, 1000, 1000, 1000])
        solution = self.strategy.solve(Problem(network, equal(4)))
        assert counts(solution, equal(4)) == [2, 1, 1, 1]
        assert "by Algorithm 1" in solution.explanation

    @given(networks())
    @settings(max_examples=15)
    def test_no_cut_by_depth_has_a_lighter_heaviest_segment(self, network: Network) -> None:
        shared = {w for layer in network.layers for w in layer.weights}
        layers = [replace(layer, weights=(f"own {layer.name}",)) for layer in network.layers]
        own = {
            layer.name: max((network.weights[w].elements for w in layer.weights), default=1)
            for layer in network.layers
        }
        some = network.weights[next(iter(shared))] if shared else network.tensors["x0"]
        network = replace(
            network,
            layers=tuple(layers),
            weights={
                f"own {name}": replace(some, name=f"own {name}", shape=(n,))
                for name, n in own.items()
            },
        )
        problem = Problem(network, equal(3))
        deep = by_depth(problem)
        every = [
            deep.numbers(np.repeat(np.arange(3), np.diff([0, *cuts, deep.levels])))
            for cuts in itertools.combinations_with_replacement(range(deep.levels + 1), 2)
        ]
        found = problem.numbers(self.strategy.solve(problem).assignment)
        heaviest = problem.costs.evaluate(np.array([found, *every])).weight_bytes.max(axis=1)
        assert heaviest[0] == heaviest[1:].min()

    def test_a_segment_and_its_inputs_stay_in_the_cache_if_cuts_can_move_for_it(self) -> None:
        # Equal weights 3-3; but the second segment's inputs do not fit beside its weights.
        network = chain(*[1] * 6, elements=200, weights=[1000] * 6)
        room = tuple(Device(f"d{i}", cache_bytes=size) for i, size in enumerate((20000, 20000)))
        assert counts(self.strategy.solve(Problem(network, room)), room) == [3, 3]
        tight = tuple(replace(device, cache_bytes=12700) for device in room)
        solution = self.strategy.solve(Problem(network, tight))
        assert "cuts that moved" in solution.explanation

    def test_unequal_room_is_filled_in_proportion(self) -> None:
        network = chain(*[1] * 8, weights=[1000] * 8)
        devices = (Device("a", cache_bytes=3000), Device("b", cache_bytes=1000))
        assert counts(self.strategy.solve(Problem(network, devices)), devices) == [6, 2]

    def test_its_plan_holds_what_the_binary_search_promised(self) -> None:
        problem = Problem(residual(8), equal(4))
        solution = self.strategy.solve(problem)
        plan = plan_solution(problem, solution, self.strategy.name)
        deep = by_depth(problem)
        promised, _ = balanced_split(level_sizes(segments(deep.problem).at(deep.positions)), 4)
        assert max(part.weights_bytes for part in plan.memory.values()) == promised
