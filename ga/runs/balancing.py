"""Balances the load of plans by dividing layers at the ends of runs.

Whole layers leave devices unevenly loaded: the largest of ResNet50 is a third of what each of ten
devices computes, and the busiest of them is about 4 % busier than their mean. A part of a layer at
the end of a run can be given to the device of the next run, which then needs what both read.

**States** [units, devices] say how many grains of each unit a device computes, as in the hybrid
strategy, with units split by channels only. **Moves** give grains to the device of a neighbouring
unit: one move relieves a busy or full device, the other shifts the same load along a path of
neighbours, from a busy device to one with time left, so that those between keep their load.
**Prices** are exact, since every state becomes a plan: what parts cost in bytes, channels and
layers that join them is more than the differences that are sought. So annealing takes few steps,
from good plans, and all that are on the front of period and memory are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ga import local_search
from ga.both import Columns, columns, tensor_bytes
from ga.hybrid.shares import States
from ga.hybrid.strategy import carry_out
from ga.hybrid.unit_rows import unit_rows
from ga.objectives import smooth_maximum
from ga.runs.search import STEEPNESS, TIME
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import plan_solution
from partition.prediction.memory_budget import room_bytes
from partition.prediction.timing import loads
from partition.pricing.traffic import Floats
from partition.pricing.units import Unit, block_of, find_units
from partition.strategies.base import Problem, Rewritable, Solution

if TYPE_CHECKING:
    import networkx as nx

FINENESS = 0.03
"""The size of a grain, about, as a part of a device's fair load."""

EVEN = 1.01
"""The multiple of the period of evenly loaded devices up to which a plan is balanced enough."""

HEAT = 0.01
"""The initial temperature of annealing."""

PATHS = 0.5
"""The share of moves along a path, and, of the others, of those that relieve a busy device instead
of a full one."""

SHARPNESS = 40.0
"""How clearly moves prefer busy or full devices: one that is 1 / `SHARPNESS` less busy than another
is chosen e times less often."""

LITTLE = 0.01
"""The least part of a device's fair load that is worth a part of its own."""

SHIFTED = 0.05
"""The mean load that a move to a neighbour shifts, as a part of a device's fair load."""


@dataclass(frozen=True)
class Balanced:
    """A solution with its plan, and the figures by which it is compared."""

    solution: Solution
    plan: Plan
    figures: Columns


@dataclass(frozen=True, slots=True)
class _Price:
    """A state's score, and the busy seconds and the held share of the room: [devices]."""

    score: float
    busy_s: Floats
    held: Floats


_UNFIT = _Price(math.inf, np.zeros(0), np.zeros(0))


def even_period_s(problem: Problem, plan: Plan) -> float:
    """Return the period if the devices' loads were shared out evenly, in seconds."""
    rates = 1 / np.maximum(problem.costs.layer_s.sum(axis=0), np.finfo(float).tiny)
    return float(_busy_s(problem, plan) @ rates / rates.sum())


def is_uneven(problem: Problem, plan: Plan) -> bool:
    """Return whether uneven loads, and not a link or shared cores, determine a plan's period."""
    busiest_s = float(_busy_s(problem, plan).max())
    is_bound = busiest_s > plan.period_s * 0.999
    return is_bound and busiest_s > EVEN * even_period_s(problem, plan)


def _busy_s(problem: Problem, plan: Plan) -> Floats:
    load = loads(problem.devices, plan.phases, plan.channels, plan.dealing)
    return np.array([load[device.name].busy_s for device in problem.devices])


def balanced(
    problem: Problem,
    model: Rewritable,
    starts: Sequence[Plan],
    steps: int,
    on_step: Callable[[int], None],
) -> list[Balanced]:
    """Return plans near `starts` that no other one found betters in period and memory.

    `starts` are plans of whole layers. Each is the first state of a chain of `steps` plans.
    """
    balancer = _Balancer(problem, model, starts)
    local_search.anneal(
        np.random.default_rng(problem.seed),
        balancer.first,
        balancer.moved,
        balancer.scores,
        local_search.CoolingSchedule(steps, HEAT, epoch=steps + 1),
        on_step,
    )
    return balancer.front


class _Balancer:
    def __init__(self, problem: Problem, model: Rewritable, starts: Sequence[Plan]) -> None:
        self._problem = problem
        self._model = model
        self._rows = unit_rows(problem, model, _units(problem, model, starts), FINENESS)
        self._grain_s = self._rows.layer_s / self._rows.grains[:, None]
        self._even_s = min(even_period_s(problem, plan) for plan in starts)
        self._room = room_bytes(problem.devices)
        self._is_limited = any(device.memory_bytes is not None for device in problem.devices)
        self._prices: dict[bytes, _Price] = {}
        self.front: list[Balanced] = []
        self.first: States = np.stack([self._state(plan.assignment) for plan in starts])

    def _state(self, assignment: Mapping[str, str]) -> NDArray[np.int16]:
        number = {device.name: place for place, device in enumerate(self._problem.devices)}
        state = np.zeros((len(self._rows.units), len(number)), dtype=np.int16)
        for place, unit in enumerate(self._rows.units):
            state[place, number[assignment[unit.layers[0]]]] = self._rows.grains[place]
        return state

    def scores(self, states: States) -> Floats:
        """Return a score for each state; smaller is better."""
        return np.array([self._price(state).score for state in states])

    def _price(self, state: NDArray[np.int16]) -> _Price:
        key = state.tobytes()
        if key not in self._prices:
            self._prices[key] = self._priced(state)
        return self._prices[key]

    def _priced(self, state: NDArray[np.int16]) -> _Price:
        problem = self._problem
        split = carry_out(problem, self._model, self._rows, state)
        network = split.problem.network if split.rewrites else None
        assignment = split.problem.assignment(split.numbers)
        solution = Solution(assignment, "", split.rewrites, network)
        try:
            plan = plan_solution(problem, solution, model_digest="", strategy="runs")
        except PartitionError:  # it does not fit
            return _UNFIT
        self._keep(Balanced(solution, plan, columns(problem, plan)))
        busy_s = _busy_s(problem, plan)
        held = [self._held(plan, device.name) for device in problem.devices] / self._room
        late = math.log(plan.period_s / self._even_s)
        mean_late = np.maximum(np.log(np.maximum(busy_s, 1e-300) / self._even_s), 0.0).mean()
        score = (
            math.log(smooth_maximum(held, axis=0))
            + STEEPNESS * (max(late, 0.0) + mean_late)
            + TIME * late
        )
        return _Price(float(score), busy_s, held)

    def _held(self, plan: Plan, device: str) -> float:
        memory = plan.memory[device]
        return tensor_bytes(memory) + (memory.engine_bytes if self._is_limited else 0)

    def _keep(self, found: Balanced) -> None:
        if not any(_is_as_good(other.figures, found.figures) for other in self.front):
            better = (each for each in self.front if not _is_as_good(found.figures, each.figures))
            self.front = [*better, found]

    def moved(self, rng: np.random.Generator, states: States) -> States:
        """Return states in which each has made one random move, or stays."""
        return np.stack([self._moved(rng, state) for state in states])

    def _moved(self, rng: np.random.Generator, state: NDArray[np.int16]) -> NDArray[np.int16]:
        beside = self._beside(rng, state)
        if not beside:
            return state
        path, mean_s = self._path(rng, self._price(state), beside)
        shifted_s = rng.exponential(mean_s)
        moved = state.copy()
        for giver, taker in itertools.pairwise(path):
            units = [unit for unit in beside.edges[giver, taker]["units"] if moved[unit, giver]]
            if units:
                self._give(moved, units[rng.integers(len(units))], giver, taker, shifted_s)
        return moved

    def _path(
        self, rng: np.random.Generator, price: _Price, beside: nx.DiGraph
    ) -> tuple[list[int], float]:
        """Return devices of which each is to give load to the next, and the mean of this load in
        seconds."""
        import networkx as nx  # noqa: PLC0415 (slow to import)

        busy_s = price.busy_s
        if rng.random() < PATHS:
            source = _drawn(rng, busy_s / busy_s.max(), beside)
            target = _drawn(rng, -busy_s / busy_s.max(), beside)
            mean_s = max((busy_s[source] - busy_s[target]) / 2, LITTLE / 2 * self._even_s)
            if not nx.has_path(beside, source, target):
                return [source], mean_s
            return nx.shortest_path(beside, source, target, weight="weight"), mean_s
        load = busy_s if rng.random() < PATHS else price.held
        source = _drawn(rng, load / load.max(), beside)
        near = sorted(beside.successors(source))
        return [source, near[rng.integers(len(near))]] if near else [source], SHIFTED * self._even_s

    def _beside(self, rng: np.random.Generator, state: NDArray[np.int16]) -> nx.DiGraph:
        """Return the graph of devices with an edge to each device that has a part of the same or of
        a neighbouring unit; `units` are those of which it may take grains."""
        import networkx as nx  # noqa: PLC0415 (slow to import)

        holders = [np.flatnonzero(grains) for grains in state]
        beside = nx.DiGraph()
        for unit, pinned in enumerate(self._rows.pinned):
            if pinned >= 0:
                continue
            near = {int(other) for each in holders[max(0, unit - 1) : unit + 2] for other in each}
            for giver in map(int, holders[unit]):
                for taker in sorted(near - {giver}):
                    if not beside.has_edge(giver, taker):
                        beside.add_edge(giver, taker, units=[], weight=1 + rng.random())
                    beside.edges[giver, taker]["units"].append(unit)
        return beside

    def _give(
        self, state: NDArray[np.int16], unit: int, giver: int, taker: int, shifted_s: float
    ) -> None:
        grain_s = max(float(self._grain_s[unit, giver]), 1e-300)
        held = int(state[unit, giver])
        grains = int(np.clip(round(min(shifted_s / grain_s, held)), 1, held))
        if (held - grains) * grain_s < LITTLE * self._even_s:
            grains = held
        state[unit, giver] -= grains
        state[unit, taker] += grains


def _is_as_good(one: Columns, other: Columns) -> bool:
    return (
        one.period_s <= other.period_s
        and one.memory <= other.memory
        and one.tensors <= other.tensors
    )


def _drawn(rng: np.random.Generator, load: Floats, beside: nx.DiGraph) -> int:
    """Return a random device of `beside`, mostly one with a large `load` [devices]."""
    devices = sorted(beside.nodes)
    odds = np.exp(SHARPNESS * (load[devices] - load[devices].max()))
    return int(rng.choice(devices, p=odds / odds.sum()))


def _units(problem: Problem, model: Rewritable, starts: Sequence[Plan]) -> tuple[Unit, ...]:
    """Return units by channels, so small that each start has all layers of a unit on one device."""
    found = [
        part for unit in find_units(problem, model, None) for part in _together(unit.layers, starts)
    ]
    place = {layer.name: number for number, layer in enumerate(problem.network.layers)}
    found.sort(key=lambda layers: place[layers[-1]])
    channels = model.slice_channels()
    divisible = {
        layers: channels[layers[0]]
        for layers in found
        if layers[0] in channels and layers[0] not in problem.pins
    }
    return tuple(
        Unit(layers, divisible[layers], block=block_of(divisible[layers]))
        if layers in divisible
        else Unit(layers)
        for layers in found
    )


def _together(layers: Sequence[str], starts: Sequence[Plan]) -> Iterator[tuple[str, ...]]:
    part: list[str] = []
    for layer in layers:
        if part and any(plan.assignment[layer] != plan.assignment[part[-1]] for plan in starts):
            yield tuple(part)
            part = []
        part.append(layer)
    yield tuple(part)
