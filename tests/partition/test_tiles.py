"""The first layers in bands of rows, band i on device i."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnn
from cnn.network import Network
from cnn.rewrite.rewrites import Bands
from partition.devices import Device
from partition.pricing.cost import CostModel
from partition.strategies.base import Problem, apply_rewrites
from partition.strategies.rows.tiles import TOLERANCE, Tiles
from partition.strategies.rows.tilings import MOST_STOPS, LoadEstimate, Tilings, equal_times
from tests.partition.rewriting_contract import RewritingContract, chain_model, residual_model
from tests.partition.strategy_contract import MB, equal

times = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 10)), min_size=1, max_size=8)


@given(times)
def test_shares_end_at_the_same_time(drawn: list[tuple[float, float]]) -> None:
    fixed, whole = np.array(drawn).T
    shares = equal_times(fixed, whole)
    assert shares.sum() == pytest.approx(1)
    ends = (fixed + shares * whole)[shares > 0]
    assert ends == pytest.approx(np.full(len(ends), ends[0]))
    assert (fixed[shares == 0] >= ends[0] - 1e-9).all()


def slow(count: int) -> tuple[Device, ...]:
    """Devices beside whose computing firings and the wire hardly count."""
    return tuple(Device(f"d{i}", macs_per_s=1e8, memory_bytes_per_s=1e9) for i in range(count))


def banded(solution_rewrites: tuple[object, ...]) -> Bands:
    (rewrite,) = solution_rewrites
    assert isinstance(rewrite, Bands)
    return rewrite


class TestTiles(RewritingContract):
    strategy = Tiles()

    def test_the_first_layers_are_in_bands_on_all_devices(self) -> None:
        network = self.chain(*[10**9] * 5)
        solution = self.solve(network, slow(3))
        bands = banded(solution.rewrites)
        assert bands.layers[0] == "l0"
        assert len(bands.rows) == 3
        for layer in bands.layers:
            parts = [solution.assignment[f"{layer}[{number}/3]"] for number in (1, 2, 3)]
            assert parts == ["d0", "d1", "d2"]

    def test_rows_follow_speed(self) -> None:
        devices = tuple(
            Device(name, macs_per_s=speed, memory_bytes_per_s=speed / 2)
            for name, speed in (("slow", 1e9), ("fast", 3e9))
        )
        problem = self.problem(self.residual(2), devices)
        assert problem.model is not None
        tilings = Tilings(problem, problem.model)
        (tiling,) = tilings.at(tilings.stops[-1])
        slow, fast = tiling.rows
        assert 2 <= fast / slow <= 4

    def test_a_device_that_computes_the_rest_gets_fewer_rows(self) -> None:
        problem = self.problem(self.residual(4), equal(3))
        assert problem.model is not None
        tilings = Tilings(problem, problem.model)
        tiling = next(tilings.at(tilings.stops[1]))
        rest = set(tiling.numbers[tiling.stop :].tolist())
        assert len(rest) == 1
        assert tiling.rows[rest.pop()] < max(tiling.rows)

    def test_it_beats_contiguous_cuts_where_these_are_uneven(self) -> None:
        """Three equal layers on two devices: 2 : 1 by cuts, nearly even by tiles."""
        network = self.chain(*[10**9] * 3)
        solution = self.solve(network, slow(2))
        assert solution.network is not None
        tiled = Problem(solution.network, slow(2))
        costs = tiled.costs.evaluate(tiled.numbers(solution.assignment)[None])
        assert costs.period_s[0] < 0.56 * CostModel(network, slow(2)).layer_s[:, 0].sum()

    def test_tiles_stop_before_a_pinned_layer(self) -> None:
        network = self.residual(3)
        solution = self.solve(network, equal(3), {"l6": "d1"})
        names = list(network.layer)
        assert names.index(banded(solution.rewrites).layers[-1]) < names.index("l6")

    def test_pins_that_no_cut_respects_are_kept(self) -> None:
        pins = {"l4": "d1", "l5": "d0", "l6": "d1"}
        solution = self.solve(self.chain(*[10**9] * 8), slow(2), pins)
        assert {name: solution.assignment[name] for name in pins} == pins
        assert banded(solution.rewrites)

    def test_where_nothing_can_be_tiled_there_are_cuts(self) -> None:
        network = self.residual(2)
        pins = {layer.name: "d1" for layer in network.layers}
        solution = self.solve(network, equal(2), pins)
        assert not solution.rewrites
        assert "no layers at the beginning can be computed in bands" in solution.explanation

    def test_the_input_goes_to_one_device_that_passes_rows_on(self) -> None:
        assert len(self.cutting_devices(self.chain(*[10**9] * 4), slow(4))) == 1

    def test_over_slow_links_each_device_gets_the_input_itself(self) -> None:
        """What is the bottleneck would be the link of a device that passes rows on."""
        devices = tuple(Device(f"d{i}", link_bytes_per_s=1e6, macs_per_s=1e9) for i in range(4))
        assert len(self.cutting_devices(self.residual(2), devices)) > 1

    def cutting_devices(self, network: Network, devices: tuple[Device, ...]) -> set[str]:
        """Who cuts rows out of the network's input."""
        solution = self.solve(network, devices)
        assert solution.network is not None
        cuts = [layer.name for layer in solution.network.layers if layer.operator == "Slice"]
        return {solution.assignment[name] for name in cuts}

    @pytest.mark.parametrize("objective", ["memory", "latency", "energy"])
    def test_every_objective_is_honoured(self, objective: str) -> None:
        model = residual_model(4)
        problem = Problem(model.network, equal(3, 400 * MB), objective=objective, model=model)
        by_period = Problem(model.network, equal(3, 400 * MB), model=model)
        assert value(problem) <= value(by_period, objective) * (1 + TOLERANCE)


def value(problem: Problem, objective: str = "") -> float:
    """What `tiles` reaches for one objective when it works for the problem's."""
    solution = Tiles().solve(problem)
    assert solution.network is not None
    tiled = Problem(solution.network, problem.devices)
    costs = tiled.costs.evaluate(tiled.numbers(solution.assignment)[None])
    return float(
        {
            "memory": costs.memory_bytes.max(),
            "latency": costs.latency_s[0],
            "energy": costs.energy_j[0],
        }[objective or problem.objective]
    )


@cache
def squeezenet() -> cnn.Model:
    return cnn.read("onnx-wheel:squeezenet")


def test_tiles_stop_where_one_tensor_passes_and_not_before_a_rectifier() -> None:
    model = squeezenet()
    tilings = Tilings(Problem(model.network, equal(2), model=model), model)
    operators = [model.network.layers[stop - 1].operator for stop in tilings.stops]
    assert set(operators) <= {"Relu", "MaxPool", "Concat"}
    assert tilings.start == 0
    assert len(tilings.stops) <= MOST_STOPS


def test_the_estimate_is_close_to_the_cost_model() -> None:
    model = chain_model(4, is_heavy=True)
    problem = Problem(model.network, equal(3), model=model)
    tiling = next(Tilings(problem, model).at(3))
    tiled = apply_rewrites(problem, model, [tiling.bands(problem)])
    numbers = [int(tiling.numbers[-1])] * len(tiled.network.layers)
    for row, layer in enumerate(tiled.network.layers):
        if layer.name.endswith("/3]"):
            numbers[row] = int(layer.name[-4]) - 1
    costs = tiled.costs.evaluate(np.array([numbers]))
    # The first device also cuts rows out for the others, which is decided later. The estimate takes
    # a part of the rows for the same part of a layer's time, although every part reads all weights.
    assert tiling.loads.busy_s[1:] == pytest.approx(costs.busy_s[0, 1:], rel=0.02)


def test_what_is_not_tiled_is_loaded_on_its_device() -> None:
    model = chain_model(4, is_heavy=True)
    problem = Problem(model.network, equal(2), model=model)
    numbers = np.array([0, 0, 1, 0])
    seconds = problem.costs.layer_s[:, 0]
    found = LoadEstimate(problem).untiled_s(numbers, slice(0, 2))
    assert found == pytest.approx([seconds[3], seconds[2]])
