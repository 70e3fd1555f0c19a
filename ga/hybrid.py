"""Hybrid: layers that hold the period or the memory are split, then any part goes to any device.

Vertical partitioning stops gaining where a single layer is more than a device's fair share; here
such a layer is divided, by channels or by rows, and only such a layer.

1. **Units** (`partition.units`) are formed in a few ways: split by channels only, or by rows where
   weights are small, fused more or less.
2. **Annealing** over states (`ga.shares`) decides at once what is split, how, and where it goes; it
   starts from runs and necklaces (`ga.share_seeds`).
3. The best states are carried out, and priced exactly as any plan is. The best of them is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from cnn.rewrites import Bands
from ga import annealing, share_seeds
from ga.fairness import fair_memory
from ga.share_moves import Moves
from ga.shares import Rates, Shares, States
from ga.splitting import Split, carry_out
from ga.unit_rows import UnitRows, unit_rows
from partition.cost import Costs
from partition.paper_equations import beta_bytes, layer_beta_bytes
from partition.rewriting import model_of
from partition.strategies.base import Objective, Problem, Rewritable, SearchProgress, Solution
from partition.traffic import Floats
from partition.units import find_units

RATES: Mapping[Objective, Rates] = {
    "period": Rates(time=1.0, memory=0.7, traffic=0.03, parts=0.01),
    "memory": Rates(time=0.2, memory=1.0, traffic=0.01, parts=0.01),
    "latency": Rates(time=1.0, memory=0.1, traffic=0.1, parts=0.2),
    "energy": Rates(time=1.0, memory=0.1, traffic=0.2, parts=0.05),
}
"""Exchange rates by objective."""

FUSED = (None, 0.05, 0.1)
"""Ways to form units: by channels only (None), or by rows too, and fused where a tensor is larger
than this part of a device's fair share of Eq. 2."""

START = 0.02
"""The temperature at which annealing starts: a relative worsening."""

EPOCH = 50
"""Steps after which the worst chains restart from the best."""

FINENESS = 0.05
"""Grains are about this part of a device's fair load."""


@dataclass(frozen=True, slots=True)
class Effort:
    """`chains` of annealing take `work` / (chains × units × devices) steps each, within bounds; of
    each way to form units, the `finalists` best states are carried out and priced."""

    chains: int = 48
    work: float = 12e6
    least_steps: int = 200
    most_steps: int = 1500
    finalists: int = 10

    def steps(self, rows: UnitRows) -> int:
        """Annealing steps for units and devices of this number."""
        cost = self.chains * rows.layer_s.size
        return int(np.clip(self.work / cost, self.least_steps, self.most_steps))


class Hybrid:
    """See the module's docstring."""

    name = "hybrid"

    def __init__(self, effort: Effort | None = None) -> None:
        self._effort = effort or Effort()

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; pinned layers are not split."""
        model = model_of(problem, self.name)
        if len(problem.devices) == 1:
            problem.on_progress(SearchProgress(1, 1, "nothing to choose"))
            numbers = np.zeros(len(problem.network.layers), dtype=np.intp)
            return Solution(problem.assignment(numbers), "one device has every layer, whole")
        fair = fair_memory(problem.devices)
        found: list[_Finalist] = []
        ways = _ways(problem, model)
        for number, rows in enumerate(ways):
            best = f"period {found[0].costs.period_s[0] * 1000:.1f} ms" if found else "splitting"
            watched = partial(_watch, problem, number, len(ways), best)
            states = self._search(problem, rows, fair, watched)
            splits = (carry_out(problem, model, rows, state) for state in states)
            found += [_finalist(problem, split, fair) for split in splits]
            found.sort(key=lambda finalist: finalist.rank)
        return _solution(problem, found[0])

    def _search(
        self, problem: Problem, rows: UnitRows, fair: Floats, on_step: Callable[[int, int], None]
    ) -> States:
        """The best states of one way to form units, best first."""
        effort = self._effort
        rng = np.random.default_rng(problem.seed)
        shares = Shares(problem, rows, fair)
        score = partial(shares.score, rates=RATES[problem.objective])
        first = share_seeds.seeds(rng, rows, fair)
        ranked = first[np.argsort(score(first), kind="stable")]
        starts = ranked[np.arange(effort.chains) % len(ranked)]
        steps = effort.steps(rows)
        schedule = annealing.Schedule(steps, start=START, epoch=EPOCH)
        found = annealing.anneal(
            rng, starts, Moves(rows), score, schedule, lambda done: on_step(done, steps)
        )
        unique = np.unique(np.concatenate([found, first]), axis=0)
        return np.asarray(unique[np.argsort(score(unique), kind="stable")][: effort.finalists])


@dataclass(frozen=True)
class _Finalist:
    """A split that was priced exactly; the smallest `rank` wins."""

    split: Split
    costs: Costs
    beta_bytes: Floats
    rank: tuple[float, float]


def _ways(problem: Problem, model: Rewritable) -> list[UnitRows]:
    """Different ways to form units, as arrays."""
    fair_share = float(layer_beta_bytes(problem.network).sum()) / len(problem.devices)
    found = dict.fromkeys(
        find_units(problem, model, None if part is None else part * fair_share) for part in FUSED
    )
    return [unit_rows(problem, model, units, FINENESS) for units in found]


def _watch(problem: Problem, way: int, ways: int, best: str, done: int, steps: int) -> None:
    if done % 50 == 0 or done == steps:
        problem.on_progress(SearchProgress(way * steps + done, ways * steps, best))


def _finalist(problem: Problem, split: Split, fair: Floats) -> _Finalist:
    rates = RATES[problem.objective]
    network = split.problem.network
    population = split.numbers[None]
    costs = split.problem.costs.evaluate(population)
    beta = beta_bytes(layer_beta_bytes(network), population, len(problem.devices))[0]
    match problem.objective:
        case "latency":
            time = costs.latency_s[0]
        case "energy":
            time = costs.energy_j[0]
        case _:
            time = (costs.period_s[0] * costs.compute_s.max()) ** 0.5
    ends = {*network.inputs, *network.outputs}
    traffic = costs.wire_bytes[0] + sum(network.tensors[name].bytes for name in ends)
    terms = np.log([time, (beta / fair).max(), traffic, costs.phases.sum()])
    weights = [rates.time, rates.memory, rates.traffic, rates.parts]
    return _Finalist(split, costs, beta, (float(costs.overrun_bytes[0]), float(terms @ weights)))


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
