"""The default strategy: any layer on any device, weighing time, memory and bytes together.

1. **Seeds**: contiguous cuts (`partition.strategies.sequential`) at several tolerances, which move
   few bytes, and longest-processing-time assignments by time and by weights, which balance best.
2. **NSGA-II** (`ga.nsga`) over the four objectives of `ga.objectives` combines them.
3. **Annealing** (`ga.annealing`) improves the best of its population by moving runs of layers over
   boundaries, towards the preference.
4. Of the Pareto front of everything found, within the memory limits if anything is, the solution
   that `Preference` ranks first is taken.

The search is over genes (`ga.genes`); its effort is counted in steps, not seconds, so that a seed
determines the result on any machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ga import annealing, nsga, seeding
from ga.genes import Genes, genes
from ga.objectives import Objectives, Preference
from ga.operators import Population, move_run
from partition.cost import Costs
from partition.errors import PartitionError
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.sequential import contiguous_cut

TOLERANCES = (0.0, 0.05, 0.2)
"""How much longer than the shortest period the cuts among the seeds may be to save bytes."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is searched. Annealing takes `work` / (chains × tensors × (devices + 3)) steps, as
    that product is what a step costs, but no fewer and no more than the bounds.
    """

    nsga: nsga.Parameters = field(default_factory=nsga.Parameters)
    chains: int = 64
    work: float = 45e6
    least_steps: int = 100
    most_steps: int = 1000

    def steps(self, grouped: Genes, devices: int) -> int:
        """Annealing steps for a network of this size."""
        cost = self.chains * len(grouped.network.tensors) * (devices + 3)
        return int(np.clip(self.work / cost, self.least_steps, self.most_steps))


class Vertical:
    """See the module's docstring."""

    name = "vertical"

    def __init__(self, preference: Preference | None = None, effort: Effort | None = None) -> None:
        self._preference = preference or Preference()
        self._effort = effort or Effort()

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; what does not fit with spare frames is searched without them."""
        solution, fits = self._solve(problem)
        if not fits and problem.slack_frames:
            solution, _ = self._solve(replace(problem, slack_frames=0))
        return solution

    def _solve(self, problem: Problem) -> tuple[Solution, bool]:
        grouped = genes(problem)
        if len(problem.devices) == 1 or (grouped.pinned >= 0).all():
            problem.on_progress(SearchProgress(1, 1, "nothing to choose"))
            numbers = np.maximum(problem.pinned, 0)
            return Solution(problem.assignment(numbers), "no layer has a choice of device"), True
        found = np.unique(self._search(problem, grouped), axis=0)
        layers = grouped.layers(found)
        costs = problem.costs.evaluate(layers)
        objectives = Objectives(problem)(costs)
        score = self._preference.score(objectives)
        chosen = int(score.argmin())
        fits = costs.overrun_bytes[chosen] <= 0
        explanation = self._explanation(problem, grouped, costs, chosen, _front_size(objectives))
        if not fits:
            explanation += "; no solution was found that fits every device's memory"
        elif problem.slack_frames == 0:
            explanation += "; channels have no spare frame, for want of memory"
        return Solution(problem.assignment(layers[chosen]), explanation), bool(fits)

    def _search(self, problem: Problem, grouped: Genes) -> Population:
        devices, effort = len(problem.devices), self._effort
        rng = np.random.default_rng(problem.seed)
        objectives = Objectives(problem)
        steps = effort.steps(grouped, devices)
        total = effort.nsga.generations + steps

        def evaluate(population: Population) -> NDArray[np.float64]:
            return objectives(grouped.costs.evaluate(population))

        def score(population: Population) -> NDArray[np.float64]:
            return self._preference.score(evaluate(population))

        def on_generation(done: int, values: NDArray[np.float64]) -> None:
            least = values[:, 0].min() * 1000
            problem.on_progress(SearchProgress(done, total, f"time {least:.1f} ms"))

        def on_step(done: int) -> None:
            if done % 10 == 0 or done == steps:
                progress = SearchProgress(effort.nsga.generations + done, total, "refining")
                problem.on_progress(progress)

        seeds = _seeds(rng, problem, grouped)
        population = nsga.evolve(
            rng, seeds, grouped.pinned, devices, evaluate, effort.nsga, on_generation
        )
        ranked = population[np.argsort(score(population), kind="stable")]
        starts = ranked[np.arange(effort.chains) % max(1, effort.chains // 4) % len(ranked)]
        schedule = annealing.Schedule(steps)
        move = partial(move_run, pinned=grouped.pinned, devices=devices)
        refined = annealing.anneal(rng, starts, move, score, schedule, on_step)
        return np.concatenate([seeds, population, refined])

    def _explanation(
        self, problem: Problem, grouped: Genes, costs: Costs, chosen: int, front: int
    ) -> str:
        ideal = 1 / (1 / problem.costs.layer_s.sum(axis=0)).sum()
        balance = ideal / max(costs.compute_s[chosen].max(), ideal)
        weights = costs.weight_bytes[chosen]
        heaviest = len(weights) * weights.max() / weights.sum() if weights.any() else 1.0
        rates = self._preference
        return (
            f"NSGA-II and annealing over {grouped.count} groups of layers; from a front of {front} "
            f"solutions the best compromise (time {rates.time:g}, memory {rates.memory:g}, "
            f"bytes {rates.traffic:g}, phases {rates.phases:g}): {balance:.0%} of perfect balance "
            f"in work, heaviest weights {heaviest:.2f} times the fair share"
        )


def _seeds(rng: np.random.Generator, problem: Problem, grouped: Genes) -> Population:
    network, devices = grouped.network, len(problem.devices)
    weights = np.array([network.weight_bytes((layer.name,)) for layer in network.layers], float)
    by_weight = np.repeat(weights[:, None], devices, axis=1)
    seeds = [
        seeding.longest_first(rng, 2, grouped.costs.layer_s, grouped.pinned, spread=0.2),
        seeding.longest_first(rng, 2, by_weight, grouped.pinned, spread=0.2),
    ]
    for tolerance in TOLERANCES:
        try:
            cut, _ = contiguous_cut(problem, tolerance)
        except PartitionError:  # pins that no contiguous cut respects
            break
        seeds.append(grouped.of(cut)[None])
    return np.concatenate(seeds)


def _front_size(objectives: NDArray[np.float64]) -> int:
    """Number of solutions that no other beats in one objective without losing in another."""
    no_worse = (objectives[:, None] <= objectives[None]).all(axis=2)
    better = (objectives[:, None] < objectives[None]).any(axis=2)
    return int((~(no_worse & better).any(axis=0)).sum())
