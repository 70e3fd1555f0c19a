"""The vertical strategy: any layer on any device, by annealing from what NSGA-II found.

The search assigns genes, groups of layers (`ga.genes`):

1. **Seeds** are contiguous cuts at several tolerances, which move few bytes, cuts that balance
   memory, and longest-processing-time assignments by time, weights and Eq. 2, which balance best.
2. **NSGA-II** (`ga.nsga`) combines them over the three objectives of `ga.objectives`.
3. **Annealing** (`ga.local_search`) improves the best of its population towards the problem's
   preference, and **descent** the best of what annealing has found.
4. A few more chains improve the fastest assignments layer by layer, towards the period alone.

The solution is the assignment that the preference ranks first, among those within the memory limits
if there are any. The Pareto front of everything found is returned with it, and an optimality gap
that follows from lower bounds (`partition.strategies.bounds`).

NSGA-II prices a thirtieth of all states, and annealing finds the solution: without any generation
its score is the same within the noise of seeds. NSGA-II adds the front. The explanation says which
of them found the solution.

Effort is counted in steps, not seconds, so a seed determines the result on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from ga import local_search, nsga
from ga.genes import Genes, genes
from ga.local_search import descend
from ga.nsga import front_of
from ga.objectives import BY_EQ2, FASTEST, PREFERENCES, Objectives, Preference
from ga.operators import RELIEFS, Population, move_run, shift_or_relieve
from ga.seeds import cuts, shares
from partition.objective import PERIOD_FIRST, WITHIN_PERIOD
from partition.pricing.cost import Costs
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.balancing import longest_first
from partition.strategies.base import Problem, SearchProgress, Solution, without_choice
from partition.strategies.bounds import gap_of
from partition.strategies.chosen import objective_value

if TYPE_CHECKING:
    from ga.checkpoint import Checkpoint
    from ga.individuals import Register

HEAT = 0.03
"""The initial temperature of annealing: a worsening by 3 % is kept with probability 1/e."""

FAST_HEAT = 0.005
"""The same for chains that minimise the period alone, from states that are good already."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of the search.

    Annealing takes `work` / (chains × tensors × (devices + 3)) steps, because that product is the
    cost of a step, within `least_steps` and `most_steps`. It starts from temperature `heat`. Its
    worst chains restart after every `epoch` steps; the share `reliefs` of its moves relieves a
    fullest device. `fast_chains` minimise the period alone, for `fast_steps` or, by default, for as
    many steps as follow from `work`.

    The best `descents` states then descend up to `descent` steps. Each step prices as many
    neighbours as `descent_work` allows, counted in the same way.
    """

    nsga: nsga.Parameters = field(default_factory=nsga.Parameters)
    chains: int = 64
    work: float = 90e6
    least_steps: int = 100
    most_steps: int = 2000
    fast_chains: int = 16
    fast_steps: int | None = None
    descents: int = 8
    descent: int = 40
    descent_work: float = 200e6
    heat: float = HEAT
    epoch: int = 400
    reliefs: float = RELIEFS

    def steps(self, network: Network, devices: int) -> int:
        """Return the number of annealing steps for a network of this size."""
        most = self.work / (self.chains * _cost(network, devices))
        return int(np.clip(most, self.least_steps, self.most_steps))

    def fast(self, network: Network, devices: int) -> int:
        """Return the number of steps of the chains that minimise the period alone."""
        return self.steps(network, devices) if self.fast_steps is None else self.fast_steps

    def neighbours(self, network: Network, devices: int) -> int:
        """Return how many of a state's neighbours a step of a descent prices."""
        steps = max(1, self.descents * self.descent)
        return max(1, int(self.descent_work / (steps * _cost(network, devices))))


def _cost(network: Network, devices: int) -> int:
    """Return the cost of pricing a state, relative to states of other networks."""
    return len(network.tensors) * (devices + 3)


class Vertical:
    """See the module's docstring."""

    name = "vertical"

    def __init__(
        self,
        preference: Preference | None = None,
        effort: Effort | None = None,
        register: Register | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        """`preference` replaces that of the problem's objective; `register` may replace operators
        of NSGA-II's toolbox. NSGA-II continues from the file `checkpoint` if it exists, also for
        more generations, and is kept there; see `ga.checkpoint` for the errors."""
        self._preference = preference
        self._effort = effort or Effort()
        self._register = register
        self._checkpoint = checkpoint

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; if nothing fits, the search repeats without spare frames."""
        solution, fits = self._solve(problem)
        if not fits and problem.slack_frames:
            again = Vertical(self._preference, self._effort, self._register)
            solution, _ = again._solve(replace(problem, slack_frames=0))
        return solution

    def _solve(self, problem: Problem) -> tuple[Solution, bool]:
        if not problem.has_choice:
            return without_choice(problem), True
        grouped = genes(problem)
        preference = self._preference or PREFERENCES[problem.objective]
        found, generations = self._search(problem, grouped, preference)
        finders = {name: grouped.layers(population) for name, population in found.items()}
        exact = Objectives(problem, problem.costs, layer_beta_bytes(problem.network))
        fastest = self._fastest(problem, exact, np.concatenate([*finders.values()]))
        finders["annealing towards the period"] = fastest.astype(np.intp)
        layers = np.unique(np.concatenate([*finders.values()]), axis=0)
        priced = exact.price(layers)
        chosen = int(exact.score(priced, preference, smooth=False).argmin())
        fits = bool(priced.costs.overrun_bytes[chosen] <= 0)
        front = front_of(problem, layers, priced)
        gap = gap_of(problem, float(objective_value(problem, priced.costs)[chosen]))
        finder = next(
            name for name, own in finders.items() if (own == layers[chosen]).all(axis=1).any()
        )
        explanation = (
            f"found by {finder}, over {grouped.count} groups of layers ({self._states(grouped)}); "
            + _explanation(problem, priced.costs, chosen, len(front))
        )
        bounded = "period" if problem.objective in PERIOD_FIRST else problem.objective
        explanation += f"; no assignment improves on its {bounded} by more than {gap:.1%}"
        if not fits:
            explanation += "; no solution was found that fits every device's memory"
        elif problem.slack_frames == 0:
            explanation += "; channels have no spare frame, for want of memory"
        assignment = problem.assignment(layers[chosen])
        solution = Solution(
            assignment,
            explanation,
            optimal=False,
            gap=gap,
            front=front,
            generations=generations,
        )
        return solution, fits

    def _states(self, grouped: Genes) -> str:
        effort, devices = self._effort, grouped.costs.layer_s.shape[1]
        bred = effort.nsga.individuals * effort.nsga.generations
        annealed = effort.chains * effort.steps(grouped.network, devices)
        annealed += effort.fast_chains * effort.fast(grouped.network, devices)
        return f"NSGA-II priced {bred:,} states, annealing {annealed:,}"

    def _search(
        self, problem: Problem, grouped: Genes, preference: Preference
    ) -> tuple[Mapping[str, Population], tuple[Mapping[str, float], ...]]:
        """Return what each part of the search has found, in its order, and the record of each
        generation."""
        devices, effort = len(problem.devices), self._effort
        rng = np.random.default_rng(problem.seed)
        objectives = Objectives(
            problem, grouped.costs, grouped.sums(layer_beta_bytes(problem.network))
        )
        steps = effort.steps(grouped.network, devices)
        total = effort.nsga.generations + steps

        def evaluate(population: Population) -> NDArray[np.float64]:
            return objectives.price(population).fitness

        def score(population: Population) -> NDArray[np.float64]:
            return objectives.score(objectives.price(population), preference, smooth=True)

        def on_generation(done: int, least_period_s: float) -> None:
            shown = f"period {least_period_s * 1000:.1f} ms"
            problem.on_progress(SearchProgress(done, total, shown))

        def on_step(done: int) -> None:
            if done % 10 == 0 or done == steps:
                progress = SearchProgress(effort.nsga.generations + done, total, "refining")
                problem.on_progress(progress)

        seeds = _seeds(rng, problem, grouped)
        evolved = nsga.evolve(
            rng,
            seeds,
            grouped.pinned,
            devices,
            evaluate,
            effort.nsga,
            on_generation,
            register=self._register,
            checkpoint=self._kept_in(problem, grouped),
        )
        ranked = np.concatenate([seeds, evolved.population])
        ranked = ranked[np.argsort(score(ranked), kind="stable")]
        starts = ranked[np.arange(effort.chains) % max(1, effort.chains // 4) % len(ranked)]
        schedule = local_search.CoolingSchedule(steps, effort.heat, effort.epoch)
        sizes = _sizes(problem, grouped)
        move = partial(
            shift_or_relieve,
            pinned=grouped.pinned,
            devices=devices,
            sizes=sizes,
            reliefs=effort.reliefs,
        )
        refined = local_search.anneal(rng, starts, move, score, schedule, on_step)
        leading = refined[np.argsort(score(refined), kind="stable")]
        leading = leading[np.sort(np.unique(leading, axis=0, return_index=True)[1])]
        neighbours = effort.neighbours(grouped.network, devices)
        relieved = [
            descend(rng, state, grouped.pinned, sizes, score, effort.descent, neighbours)
            for state in leading[: effort.descents]
        ]
        found = {
            "a rule that seeds the search": seeds,
            "NSGA-II": evolved.population,
            "annealing": refined,
            "descent": np.array(relieved),
        }
        return found, evolved.generations

    def _kept_in(self, problem: Problem, grouped: Genes) -> Checkpoint | None:
        """Return where NSGA-II is kept; a repetition without spare frames is another search."""
        if self._checkpoint is None:
            return None
        from ga.checkpoint import Checkpoint, search_of  # noqa: PLC0415 (imports DEAP)

        about = asdict(self._effort.nsga)
        del about["generations"]
        about |= {"objective": problem.objective, "slack_frames": problem.slack_frames}
        sizes = np.concatenate([grouped.costs.layer_s.ravel(), grouped.weight_bytes.ravel()])
        search = search_of(problem, sizes, grouped.pinned, **about)
        return Checkpoint(Path(self._checkpoint), search)

    def _fastest(
        self, problem: Problem, objectives: Objectives, found: NDArray[np.intp]
    ) -> Population:
        """Improve the fastest of the assignments `found` [individuals, layers] layer by layer."""
        effort, devices = self._effort, len(problem.devices)

        def score(population: Population) -> NDArray[np.float64]:
            return objectives.score(objectives.price(population), FASTEST, smooth=True)

        ranked = np.unique(found, axis=0).astype(np.int16)
        ranked = ranked[np.argsort(score(ranked), kind="stable")]
        starts = ranked[
            np.arange(effort.fast_chains) % max(1, effort.fast_chains // 4) % len(ranked)
        ]
        return local_search.anneal(
            np.random.default_rng(problem.seed),
            starts,
            partial(move_run, pinned=problem.pinned, devices=devices),
            score,
            local_search.CoolingSchedule(
                effort.fast(problem.network, devices), FAST_HEAT, effort.epoch
            ),
            lambda _: None,
        )


def _sizes(problem: Problem, grouped: Genes) -> NDArray[np.float64]:
    """Return the shares of time and of the memory that the objective balances."""
    weights = grouped.weight_bytes
    if problem.objective in BY_EQ2 or not weights.any():
        weights = grouped.sums(layer_beta_bytes(problem.network))
    return shares(problem, grouped, weights)


def _explanation(problem: Problem, costs: Costs, chosen: int, front: int) -> str:
    ideal = 1 / (1 / problem.costs.layer_s.sum(axis=0)).sum()
    balance = ideal / max(costs.compute_s[chosen].max(), ideal)
    weights = costs.weight_bytes[chosen]
    heaviest = len(weights) * weights.max() / weights.sum() if weights.any() else 1.0
    costs_first = "period and memory" if problem.objective in WITHIN_PERIOD else problem.objective
    return (
        f"from a front of {front} solutions the best compromise for {costs_first}: {balance:.0%} "
        f"of perfect balance in work, heaviest weights {heaviest:.2f} times the fair share"
    )


def _seeds(rng: np.random.Generator, problem: Problem, grouped: Genes) -> Population:
    beta = grouped.sums(layer_beta_bytes(problem.network))
    dealt = [
        longest_first(
            rng,
            2,
            np.broadcast_to(size, (grouped.count, len(problem.devices))),
            grouped.pinned,
            spread=0.2,
        )
        for size in (grouped.costs.layer_s, grouped.weight_bytes[:, None], beta[:, None])
    ]
    return np.concatenate([*dealt, *(cut[None] for cut in cuts(problem, grouped))])
