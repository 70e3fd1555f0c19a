"""The hybrid strategy: splits layers that limit period or memory, and assigns parts to any device.

Vertical partitioning stops gaining where a single layer is more than a device's fair share. This
strategy divides such layers, and only such layers, by channels or by rows.

1. **Units** (`partition.strategies.units`) are formed in a few ways: split by channels only, or by
   rows where weights are small, fused more or less.
2. **Annealing** over states (`ga.hybrid.shares`) decides what is split, how, and where it goes. It
   starts from runs and necklaces (`ga.hybrid.moves`).
3. The best states are converted to rewrites and a device for every part, and priced exactly as any
   plan is.
4. The best one calibrates the estimates, and the search continues near it, until neither improves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Bands, Rewrite, part_name
from ga import local_search
from ga.hybrid import moves, unit_rows
from ga.hybrid.moves import Moves
from ga.hybrid.shares import Shares, States, Weights
from ga.hybrid.unit_rows import UnitRows
from partition.objective import Objective
from partition.pricing.cost import Costs
from partition.pricing.memory_budget import fair_memory
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import (
    Problem,
    Rewritable,
    SearchProgress,
    Solution,
    apply_rewrites,
    required_model,
)


@dataclass(frozen=True)
class Split:
    """A problem after `rewrites`, and a device for each of its layers: `numbers` [layers]."""

    rewrites: tuple[Rewrite, ...]
    problem: Problem
    numbers: NDArray[np.intp]


def carry_out(
    problem: Problem, model: Rewritable, rows: UnitRows, state: NDArray[np.int16]
) -> Split:
    """Split the units of `state` [units, devices] and assign every part to its device.

    The sizes of parts are in proportion to their grains, and their order is that of the devices. A
    device whose grains are less than a channel or a row gets no part.
    """
    rewrites: list[Rewrite] = []
    device: dict[str, int] = {}
    for unit, grains in zip(rows.units, state, strict=True):
        holders = np.flatnonzero(grains)
        if len(holders) > 1:
            sizes = unit.divide(grains[holders].astype(float).tolist())
            holders = holders[np.array(sizes) > 0]
            if len(holders) > 1:
                rewrites += unit.rewrites([size for size in sizes if size])
        for layer in unit.layers:
            for number, holder in enumerate(holders, start=1):
                device[part_name(layer, number, len(holders))] = int(holder)
    split = apply_rewrites(problem, model, rewrites) if rewrites else problem
    return Split(tuple(rewrites), split, _placed(split.network, device))


def _placed(network: Network, device: Mapping[str, int]) -> NDArray[np.intp]:
    """Return a device for each layer: that of `device` for the layers it names.

    A layer that rewrites have added goes to the device of all that it reads, so that only its
    output travels; if there is no such device, it goes to a reader's device.
    """
    known = dict(device)
    added = [layer for layer in network.layers if layer.name not in known]
    for layer in added:
        makers = {known.get(network.producer.get(tensor, "")) for tensor in layer.inputs}
        if len(makers) == 1:
            (maker,) = makers
            if maker is not None:
                known[layer.name] = maker
    for layer in reversed(added):
        known.setdefault(layer.name, _reader(network, known, layer))
    return np.array([known[layer.name] for layer in network.layers], dtype=np.intp)


def _reader(network: Network, known: Mapping[str, int], layer: Layer) -> int:
    readers = (name for tensor in layer.outputs for name in network.consumers[tensor])
    found = next((known[name] for name in readers if name in known), None)
    if found is not None:
        return found
    makers = (network.producer.get(tensor, "") for tensor in layer.inputs)
    return next((known[name] for name in makers if name in known), 0)


_BALANCED = Weights(time=1.15, memory=1.0, traffic=0.03, parts=0.01)

WEIGHTS: Mapping[Objective, Weights] = {
    "both": _BALANCED,
    "paper": _BALANCED,
    "period": _BALANCED,
    "memory": Weights(time=0.2, memory=1.0, traffic=0.01, parts=0.01),
    "latency": Weights(time=1.0, memory=0.1, traffic=0.1, parts=0.2),
    "energy": Weights(time=1.0, memory=0.1, traffic=0.2, parts=0.05),
}
"""The weights of the costs, by objective."""

NEAR = 0.05
"""By how much a way of forming units may be worse than the best to be refined (relative)."""

START = 0.02
"""The initial temperature of annealing: a relative worsening."""

EPOCH = 50
"""The number of steps after which the worst chains restart from the best."""

FINENESS = 0.05
"""The size of a grain, about, as a part of a device's fair load."""


@dataclass(frozen=True, slots=True)
class HybridEffort:
    """The effort of the search.

    Each of the `chains` of annealing takes `work` / (chains × units × devices) steps, within
    bounds. The `finalists` best states of each way of forming units are rewritten and priced. The
    best ways are refined at most `refinements` times. Annealing starts at the temperature `heat`,
    its worst chains restart after every `epoch` steps, and a grain is about the share `fineness` of
    a device's fair load.
    """

    chains: int = 48
    work: float = 40e6
    least_steps: int = 200
    most_steps: int = 1500
    finalists: int = 10
    refinements: int = 4
    heat: float = START
    epoch: int = EPOCH
    fineness: float = FINENESS

    def steps(self, rows: UnitRows) -> int:
        """Return the number of annealing steps for these units and devices."""
        cost = self.chains * rows.layer_s.size
        return int(np.clip(self.work / cost, self.least_steps, self.most_steps))


class Hybrid:
    """See the module's docstring."""

    name = "hybrid"

    def __init__(self, effort: HybridEffort | None = None) -> None:
        self._effort = effort or HybridEffort()

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; pinned layers are not split."""
        model = required_model(problem, self.name)
        if len(problem.devices) == 1:
            problem.on_progress(SearchProgress(1, 1, "nothing to choose"))
            numbers = np.zeros(len(problem.network.layers), dtype=np.intp)
            return Solution(problem.assignment(numbers), "one device has every layer, whole")
        effort = self._effort
        rows = unit_rows.ways(problem, model, effort.fineness)
        ways = [_Way(problem, model, each, effort) for each in rows]
        progress = _CountedSteps(problem, sum(way.steps for way in ways), self._effort.refinements)
        found = [way.search(progress) for way in ways]
        if problem.objective in ("latency", "energy"):  # estimates leave these out
            found[0] = min(found[0], ways[0].alone(), key=lambda finalist: finalist.rank)
        leading = min(finalist.rank for finalist in found)
        for number, way in enumerate(ways):
            if found[number].is_near(leading):
                found[number] = self._refined(way, found[number], progress)
        progress.end()
        return _solution(problem, min(found, key=lambda finalist: finalist.rank))

    def _refined(self, way: _Way, best: _Finalist, progress: _CountedSteps) -> _Finalist:
        for _ in range(self._effort.refinements):
            better = way.refine(best, progress)
            if better.rank >= best.rank:
                break
            best = better
        return best


@dataclass(frozen=True)
class _Finalist:
    """A state that was rewritten and priced exactly; the smallest `rank` is best."""

    state: States
    split: Split
    costs: Costs
    beta_bytes: Floats
    rank: tuple[float, float]

    def is_near(self, leading: tuple[float, float]) -> bool:
        """Return whether a small improvement would beat the `leading` rank."""
        return self.rank <= (leading[0], leading[1] + NEAR)


class _Way:
    """The search over one way of forming units."""

    def __init__(
        self, problem: Problem, model: Rewritable, rows: UnitRows, effort: HybridEffort
    ) -> None:
        self._problem = problem
        self._model = model
        self._rows = rows
        self._effort = effort
        self._fair = fair_memory(problem.devices)
        self._rng = np.random.default_rng(problem.seed)
        self._shares = Shares(problem, rows, self._fair)
        self._moves = Moves(rows)
        self.steps = effort.steps(rows)

    def search(self, progress: _CountedSteps) -> _Finalist:
        """Return the best state that annealing finds from runs and necklaces."""
        first = moves.seeds(self._rng, self._rows, self._fair)
        ranked = first[np.argsort(self._score(first), kind="stable")]
        starts = ranked[np.arange(self._effort.chains) % len(ranked)]
        schedule = local_search.CoolingSchedule(self.steps, self._effort.heat, self._effort.epoch)
        return self._best(starts, first, schedule, progress)

    def alone(self) -> _Finalist:
        """Return the best state with all that is not pinned, unsplit, on one device."""
        rows = self._rows
        grains = np.asarray(rows.grains)
        states = np.zeros((len(self._fair), len(grains), len(self._fair)), dtype=np.int16)
        for device, state in enumerate(states):
            units = np.arange(len(grains))
            state[units, np.where(rows.pinned >= 0, rows.pinned, device)] = grains
        return min(map(self._finalist, states), key=lambda finalist: finalist.rank)

    def refine(self, best: _Finalist, progress: _CountedSteps) -> _Finalist:
        """Return the best state near `best`, by estimates that `best` calibrates."""
        truth = best.costs
        self._shares.calibrate(best.state, truth.compute_s[0], truth.busy_s[0], best.beta_bytes)
        starts = np.repeat(best.state[None], self._effort.chains, axis=0)
        schedule = local_search.CoolingSchedule(
            max(1, self.steps // 4), self._effort.heat / 4, self._effort.epoch
        )
        return self._best(starts, starts[:0], schedule, progress)

    def _best(
        self,
        starts: States,
        others: States,
        schedule: local_search.CoolingSchedule,
        progress: _CountedSteps,
    ) -> _Finalist:
        found = local_search.anneal(
            self._rng, starts, self._moves, self._score, schedule, progress.step
        )
        states = np.unique(np.concatenate([found, others]), axis=0)
        ranked = states[np.argsort(self._score(states), kind="stable")]
        return min(
            map(self._finalist, ranked[: self._effort.finalists]), key=lambda each: each.rank
        )

    def _score(self, states: States) -> Floats:
        return self._shares.score(states, WEIGHTS[self._problem.objective])

    def _finalist(self, state: States) -> _Finalist:
        split = carry_out(self._problem, self._model, self._rows, state)
        population = split.numbers[None]
        costs = split.problem.costs.evaluate(population)
        layer_beta = layer_beta_bytes(split.problem.network)
        beta = beta_bytes(layer_beta, population, len(self._fair))[0]
        score = _exact_score(split.problem, costs, float((beta / self._fair).max()))
        return _Finalist(state, split, costs, beta, (float(costs.overrun_bytes[0]), score))


class _CountedSteps:
    """Reports steps; at the end it skips refinements that were unnecessary."""

    def __init__(self, problem: Problem, steps: int, refinements: int) -> None:
        self._report = problem.on_progress
        self._total = steps + refinements * steps // 4
        self._done = 0

    def step(self, _: int) -> None:
        """Count one more step of annealing."""
        self._done += 1
        if self._done % 50 == 0:
            done = min(self._done, self._total)
            self._report(SearchProgress(done, self._total, "what to split and where"))

    def end(self) -> None:
        """Report the end of the search."""
        self._report(SearchProgress(self._total, self._total, "done"))


def _exact_score(problem: Problem, costs: Costs, memory_bytes: float) -> float:
    """Return the score as `Shares.score`, from the exact costs of one assignment, with phases in
    place of parts."""
    weights = WEIGHTS[problem.objective]
    match problem.objective:
        case "latency":
            time = costs.latency_s[0]
        case "energy":
            time = costs.energy_j[0]
        case _:
            time = (costs.period_s[0] * costs.compute_s.max()) ** 0.5
    traffic = costs.wire_bytes[0] + problem.network.ends_bytes
    terms = np.log([time, memory_bytes, traffic, costs.phases.sum()])
    return float(terms @ [weights.time, weights.memory, weights.traffic, weights.parts])


def _solution(problem: Problem, best: _Finalist) -> Solution:
    split, costs = best.split, best.costs
    network = split.problem.network
    layers = len({layer.part_of for layer in network.layers} - {""})
    bands = sum(isinstance(rewrite, Bands) for rewrite in split.rewrites)
    ideal = 1 / (1 / problem.costs.layer_s.sum(axis=0)).sum()
    eq2 = float(layer_beta_bytes(problem.network).sum())
    explanation = (
        f"{layers} of {len(problem.network.layers)} layers split ({bands} runs of them by rows, "
        f"the others by channels), any part on any device: {ideal / costs.compute_s.max():.0%} of "
        f"perfect balance in work, {1 - best.beta_bytes.max() / eq2:.1%} less memory per device by "
        "Eq. 2 than on one"
    )
    if costs.overrun_bytes[0] > 0:
        explanation += "; no solution was found that fits every device's memory"
    return Solution(
        split.problem.assignment(split.numbers),
        explanation,
        split.rewrites,
        network if split.rewrites else None,
    )
