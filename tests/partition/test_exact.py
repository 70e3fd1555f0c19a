"""Strategy `exact`: what it calls optimal is, by enumeration of everything there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.objective import Objective
from partition.pricing.memory_budget import least_engine_bytes
from partition.strategies.base import Problem, Solution
from partition.strategies.chosen import objective_value
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Placement, Shape
from partition.strategies.exact.search import PublishedOrder, SolverEffort, goals
from partition.strategies.exact.strategy import Exact
from partition.strategies.exact.terms import SHARE_UNIT, terms_of
from tests.partition.exhaustive import (
    enlarged,
    every_assignment,
    lexicographic,
)
from tests.partition.networks import chain, device_sets, networks, residual
from tests.partition.strategy_contract import MB, StrategyContract, equal

CONTIGUOUS, VERTICAL = Shape(contiguous=True), Shape(contiguous=False)


class TestExact(StrategyContract):
    strategy = Exact()


class TestExactVertical(StrategyContract):
    strategy = Exact("exact-vertical", VERTICAL, SolverEffort(4.0, 8.0))


class TestExactPaper(StrategyContract):
    strategy = Exact("exact-paper", Shape(siblings=True), published="123")


@st.composite
def problems(draw: st.DrawFn, objective: Objective, *, linear: bool = True) -> Problem:
    """A small problem with unequal devices and pins. `linear`: the cost model has no terms that
    depend on the phases, and no link is slower than all the rest by orders of magnitude."""
    network, devices = draw(networks(max_layers=6)), draw(device_sets(max_devices=3))
    if linear:
        devices = tuple(_linear(d) for d in devices)
    names = [device.name for device in devices]
    pinned = draw(st.lists(st.sampled_from(network.layers), max_size=2, unique=True))
    pins = {layer.name: draw(st.sampled_from(names)) for layer in pinned}
    return Problem(network, devices, pins, objective=objective)


def solved(problem: Problem, shape: Shape) -> tuple[Solution, np.ndarray, np.ndarray]:
    """The solution, its device numbers, and all assignments of that shape."""
    every = every_assignment(problem, contiguous=shape.contiguous, siblings=shape.siblings)
    if not len(every):
        with pytest.raises(PartitionError, match=r"respects these pins|stay together"):
            Exact("exact", shape).solve(problem)
        assume(False)
    solution = Exact("exact", shape).solve(problem)
    numbers = problem.numbers(solution.assignment)
    assert numbers.tolist() in every.tolist()
    return solution, numbers, every


SHAPES = st.builds(Shape, contiguous=st.booleans(), siblings=st.booleans())


@given(problems("memory"), SHAPES, st.sampled_from((None, 0, 4096, 65536)))
@settings(max_examples=15)
def test_memory_is_the_lexicographic_optimum(
    problem: Problem, shape: Shape, cache_bytes: int | None
) -> None:
    devices = tuple(
        replace(device, host=None, cache_bytes=cache_bytes) for device in problem.devices
    )
    problem = replace(problem, devices=devices)
    solution, numbers, every = solved(problem, shape)
    assert solution.optimal
    assert solution.gap == 0
    (value,) = lexicographic(problem.costs.evaluate(numbers[None]))
    assert value == min(lexicographic(problem.costs.evaluate(every)))


def published(problem: Problem, rows: np.ndarray) -> np.ndarray:
    """Columns ①, ② and ③ of Yin et al. for each row of device numbers, as they define them."""
    devices, layers = range(len(problem.devices)), problem.network.layers
    number = {layer.name: index for index, layer in enumerate(layers)}
    found = []
    for row in rows:
        own = [{layer.name for layer in layers if row[number[layer.name]] == d} for d in devices]
        held = [problem.network.weight_bytes(tuple(names)) for names in own]  # Eq. 5
        rooms = [device.cache_bytes for device in problem.devices]
        beyond = [
            0 if room is None else max(size - room, 0)
            for size, room in zip(held, rooms, strict=True)
        ]  # Eq. 8
        come = [
            sum(
                problem.network.tensors[tensor].bytes
                for maker, reader, tensor in problem.network.edges
                if reader in names and maker not in names
            )
            for names in own
        ]  # Eq. 9 and 10: every edge
        found.append((max(held), sum(beyond), max(come)))
    return np.array(found, dtype=float)


@given(
    problems("memory"),
    SHAPES,
    st.sampled_from((0, 4096, 65536)),
    st.sampled_from(("13", "123", "213")),
)
@settings(max_examples=15)
def test_the_published_goals_are_minimised_in_their_order(
    problem: Problem, shape: Shape, cache_bytes: int, order: PublishedOrder
) -> None:
    devices = tuple(
        replace(device, host=None, cache_bytes=cache_bytes) for device in problem.devices
    )
    problem = replace(problem, devices=devices)
    every = every_assignment(problem, contiguous=shape.contiguous, siblings=shape.siblings)
    assume(len(every))
    solution = Exact("exact-paper", shape, published=order).solve(problem)
    columns = [int(digit) - 1 for digit in order]
    (value,) = published(problem, problem.numbers(solution.assignment)[None])[:, columns].tolist()
    assert value == min(published(problem, every)[:, columns].tolist())
    assert solution.optimal


def test_a_stage_that_reads_a_tensor_twice_pays_twice_by_the_published_rule() -> None:
    """Yin et al., Eq. 9: the sum is over edges; on our wire the tensor travels once."""
    tensors = {name: Tensor(name, (1, 100), "uint8") for name in ("x", "a", "b", "c", "y")}
    layers = (
        Layer("first", "Relu", ("x",), ("a",), (), 1),
        Layer("left", "Relu", ("a",), ("b",), (), 1),
        Layer("right", "Relu", ("a",), ("c",), (), 1),
        Layer("join", "Add", ("b", "c"), ("y",), (), 1),
    )
    network = Network("fork", layers, tensors, {}, ("x",), ("y",))
    problem = Problem(network, equal(2))
    row = np.array([[0, 1, 1, 1]])
    assert terms_of(problem).largest_communication(row).tolist() == [200]
    assert problem.costs.evaluate(row).received_bytes[0, 1] == 100


@given(problems("period"), SHAPES)
@settings(max_examples=15)
def test_the_period_is_the_shortest(problem: Problem, shape: Shape) -> None:
    problem = _apart(problem, shape)
    solution, numbers, every = solved(problem, shape)
    assert solution.optimal
    value = problem.costs.evaluate(numbers[None]).period_s[0]
    assert value == pytest.approx(problem.costs.evaluate(every).period_s.min(), rel=1e-4)


@pytest.mark.slow
@given(problems("latency"), SHAPES)
@settings(max_examples=10)
def test_the_latency_is_the_shortest(problem: Problem, shape: Shape) -> None:
    problem = _apart(problem, shape)
    solution, numbers, every = solved(problem, shape)
    assert solution.optimal
    value = objective_value(problem, problem.costs.evaluate(numbers[None]))[0]
    least = objective_value(problem, problem.costs.evaluate(every)).min()
    assert value == pytest.approx(least, rel=1e-4)


@pytest.mark.slow
@given(problems("energy"), SHAPES)
@settings(max_examples=10)
def test_the_energy_is_the_least(problem: Problem, shape: Shape) -> None:
    problem = _apart(problem, shape)
    solution, numbers, every = solved(problem, shape)
    value = problem.costs.evaluate(numbers[None]).energy_j[0]
    least = problem.costs.evaluate(every).energy_j.min()
    assert solution.gap is not None
    assert value * (1 - solution.gap) <= least * (1 + 1e-9)
    assert value == pytest.approx(least, rel=2e-3)


@pytest.mark.slow
@given(problems("period", linear=False), SHAPES)
@settings(max_examples=15)
def test_no_solution_beats_the_bound_and_what_is_called_optimal_is(
    problem: Problem, shape: Shape
) -> None:
    problem = _apart(problem, shape)
    solution, numbers, every = solved(problem, shape)
    value = problem.costs.evaluate(numbers[None]).period_s[0]
    least = problem.costs.evaluate(every).period_s.min()
    assert solution.gap is not None
    assert value * (1 - solution.gap) <= least * (1 + 1e-9)
    if solution.optimal:
        assert value == pytest.approx(least, rel=1e-4)


@pytest.mark.slow
@given(problems("memory"), st.booleans(), st.lists(st.integers(66, 90), min_size=3, max_size=3))
@settings(max_examples=15)
def test_limits_are_kept_where_they_can_be(
    problem: Problem, contiguous: bool, limits: list[int]
) -> None:
    devices = tuple(
        replace(device, host=None, memory_bytes=limit * MB)
        for device, limit in zip(problem.devices, limits, strict=False)
    )
    network = enlarged(problem.network, 128)
    problem = replace(problem, network=network, devices=devices, slack_frames=0)
    every = every_assignment(problem, contiguous=contiguous)
    costs = problem.costs.evaluate(every) if len(every) else None
    strategy = Exact("exact", Shape(contiguous))
    if costs is None or not (costs.overrun_bytes <= 0).any():
        try:
            solution = strategy.solve(problem)
        except PartitionError:
            return
        numbers = problem.numbers(solution.assignment)
        assert "no solution was found that fits" in solution.explanation
        assert problem.costs.evaluate(numbers[None]).overrun_bytes[0] > 0
        return
    solution = strategy.solve(problem)
    numbers = problem.numbers(solution.assignment)
    assert problem.costs.evaluate(numbers[None]).overrun_bytes[0] == 0
    room = np.array(terms_of(problem).rooms) / SHARE_UNIT
    shares = (costs.weight_bytes / room).max(axis=1)
    value = float(shares[every.tolist().index(numbers.tolist())])
    assert solution.gap is not None
    assert value * (1 - solution.gap) <= shares[costs.overrun_bytes <= 0].min() * (1 + 1e-9)


def test_a_bound_allows_for_shares_that_were_rounded_up() -> None:
    devices = tuple(Device(f"d{n}", memory_bytes=size * MB) for n, size in enumerate((83, 71, 67)))
    problem = Problem(chain(1, 1, 1, weights=(7, 5, 3)), devices, objective="memory")
    terms = terms_of(problem)
    goal, *_ = goals(terms, LoadVariables(Placement(terms, VERTICAL)))
    for room in terms.rooms:
        for weights in range(1, terms.weights + 1):
            quantity = weights * terms.weight_unit * SHARE_UNIT / room
            assert goal.lower_bound(terms.share(weights, room)) <= max(quantity, goal.least)


def test_limits_between_the_least_and_what_is_searched_are_no_bug() -> None:
    """One frame at one end of each channel would fit, two at both ends do not."""
    network = chain(1, 1, 1, elements=2 * MB)
    engine = least_engine_bytes([Device("d")])
    devices = tuple(Device(f"d{n}", memory_bytes=engine + 30 * MB) for n in range(2))
    with pytest.raises(DoesNotFitError, match="two frames at each end"):
        Exact().solve(Problem(network, devices, objective="memory"))


def diamond() -> Network:
    """A stem, two heavy layers that read it, and a head that reads both."""
    layers = (
        Layer("stem", "Conv", ("x",), ("a",)),
        Layer("left", "Conv", ("a",), ("b",), ("v",), 10**6),
        Layer("right", "Conv", ("a",), ("c",), ("w",), 10**6),
        Layer("head", "Add", ("b", "c"), ("y",)),
    )
    tensors = {name: Tensor(name, (1, 64), "float32") for name in "xabcy"}
    weights = {name: Tensor(name, (MB,), "float32") for name in "vw"}
    return Network("diamond", layers, tensors, weights, ("x",), ("y",))


def test_children_of_one_layer_stay_together_if_asked() -> None:
    problem = Problem(diamond(), equal(2), objective="memory")
    parted = Exact().solve(problem).assignment
    together = Exact("exact-siblings", Shape(siblings=True)).solve(problem).assignment
    assert parted["left"] != parted["right"]
    assert together["left"] == together["right"]


def test_the_explanation_tells_every_goal_and_whether_it_was_reached() -> None:
    devices = tuple(replace(device, cache_bytes=MB // 2) for device in equal(3))
    solution = Exact().solve(Problem(residual(4), devices, objective="memory"))
    assert "contiguous stages by constraint programming: largest weights" in solution.explanation
    assert "weights beyond the caches" in solution.explanation
    assert solution.explanation.count("(optimal)") == 3


def test_a_search_that_is_cut_short_tells_how_far_it_may_be() -> None:
    problem = Problem(residual(16), equal(5))
    solution = Exact("exact-vertical", VERTICAL, SolverEffort(0.05, 5.0)).solve(problem)
    numbers = problem.numbers(solution.assignment)
    value = problem.costs.evaluate(numbers[None]).period_s[0]
    assert not solution.optimal
    assert solution.gap is not None
    assert solution.gap > 0
    assert value * (1 - solution.gap) >= problem.costs.layer_s[:, 0].sum() / 5 * 0.99
    assert "(at least" in solution.explanation


def test_other_strategies_contribute_starts() -> None:
    problem = Problem(residual(16), equal(4))
    quick = SolverEffort(0.02, 5.0)
    alone = Exact("exact-vertical", VERTICAL, quick).solve(problem)
    given = Exact("exact-vertical", VERTICAL, quick, others=(Fixed(alone),)).solve(problem)
    costs = problem.costs.evaluate(
        np.array([problem.numbers(found.assignment) for found in (alone, given)])
    )
    assert costs.period_s[1] <= costs.period_s[0]


@pytest.mark.parametrize(
    ("pins", "devices", "sentence"),
    [
        ({"l0": "d1", "l1": "d0", "l2": "d1"}, equal(2), "no contiguous partition respects"),
        ({}, equal(2, 58 * MB), "has 35.600 MB of weights, and all devices together have room"),
        ({}, equal(6, 61 * MB)[1:], None),
        ({}, equal(2, 127 * MB // 2), "no contiguous partition of network 'example'"),
        ({}, equal(7, 54 * MB)[1:], "layer 'l0' alone has 12.800 MB of weights"),
        (
            {"l0": "d0", "l1": "d0", "l2": "d0"},
            (*equal(1, 66 * MB), Device("big", 200 * MB)),
            "the devices' memory holds no partition that respects these pins: 'l0' to 'd0'",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_constraint_that_excludes_it(
    pins: dict[str, str], devices: tuple[Device, ...], sentence: str | None
) -> None:
    heavy, light = 16 * MB // 5, 5 * MB // 4
    network = chain(*[10**6] * 4, elements=2**14, weights=[heavy, heavy, light, light])
    problem = Problem(network, devices, pins)
    if sentence is None:
        assert Exact().solve(problem).assignment
        return
    with pytest.raises(PartitionError, match=sentence):
        Exact().solve(problem)


def test_runs_may_cost_far_more_than_layers() -> None:
    devices = tuple(replace(device, run_s=100.0) for device in equal(2))
    problem = Problem(chain(10**6, 10**6), devices, {"l0": "d0", "l1": "d1"})
    assert Exact().solve(problem).assignment == problem.pins


def test_siblings_that_are_pinned_apart_are_refused() -> None:
    pins = {"left": "d0", "right": "d1"}
    with pytest.raises(
        PartitionError,
        match="must stay together: 'left' to 'd0', 'right' to 'd1'",
    ):
        Exact("exact-siblings", Shape(siblings=True)).solve(Problem(diamond(), equal(2), pins))


def _linear(device: Device) -> Device:
    link = max(device.link_bytes_per_s, 2.0**20)
    costs = {"firing_s": 0.0, "run_s": 0.0, "cut_s_per_byte": 0.0}
    return replace(device, link_bytes_per_s=link, **costs)


class Fixed:
    """A strategy that has been there before."""

    name = "fixed"

    def __init__(self, solution: Solution) -> None:
        self._solution = solution

    def solve(self, problem: Problem) -> Solution:
        return self._solution


def _apart(problem: Problem, shape: Shape) -> Problem:
    """Devices that share machines come in the user's order, which is not what is enumerated."""
    if not shape.contiguous:
        return problem
    return replace(problem, devices=tuple(replace(d, host=None) for d in problem.devices))
