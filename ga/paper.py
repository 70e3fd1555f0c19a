"""The strategies `vertical-paper` and `vertical-paper-seeded`: the genetic algorithm of Tang &
Stefanov (2021), §4.2.

A chromosome has one gene per layer, the number of its device. Two parents exchange the genes
between two points, a single gene mutates, and the algorithm minimises φ (Eq. 1), the sum of the
differences of all pairs of devices in Eq. 2's memory. Population, generations and mutation rate are
the paper's. Where the paper says "standard", the choices here are tournaments of three, crossover
of nine pairs in ten, and survival of the best individual. `vertical-paper` begins with random
individuals, as the paper does.

Longest processing time first alone balances large networks better than these generations do. In
`vertical-paper-seeded`, it assigns a share of the first population (`SEEDED`). For large networks
that strategy returns this assignment, which no generation improves.

DEAP's `varAnd`, `cxTwoPoint`, `HallOfFame`, `Statistics` and `Logbook` run it. Fitness values and
tournaments are computed for a whole generation at once.

φ depends on memory alone: speeds, links and limits play no part. If the result exceeds a device's
memory limit, the algorithm runs again, with everything that exceeds a limit ranked last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ga import operators
from ga.operators import Population
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes, phi, phi_lower_bound
from partition.strategies.balancing import longest_first
from partition.strategies.base import Problem, SearchProgress, Solution

if TYPE_CHECKING:
    from deap import base

    from ga.checkpoint import Checkpoint
    from ga.individuals import Register

Excess = Callable[[Population], NDArray[np.float64]]
"""[individuals, genes] → the excess over the devices' memory limits, in bytes: [individuals]."""


SEEDED = 0.02
"""The share of the first population of `vertical-paper-seeded` that longest processing time first
assigns."""


@dataclass(frozen=True, slots=True)
class PaperParameters:
    """The parameters of the algorithm, with the paper's values where it gives them.

    `seeded` is the share of the first population that longest processing time first assigns;
    `spread` is how far its sizes are randomised (see `partition.strategies.balancing`).
    `stop_when_optimal` ends the search once φ has reached a lower bound.
    """

    individuals: int = 5000
    generations: int = 100
    mutation: float = 0.05
    crossover: float = 0.9
    tournament: int = 3
    seeded: float = 0.0
    spread: float = 0.2
    stop_when_optimal: bool = True


@dataclass(frozen=True, slots=True)
class Evolution:
    """The result of a run.

    `best` is the best individual (device number per layer), `phi` its φ in bytes, and `phi_bound` a
    lower bound on φ. `logbook` is DEAP's: a record per generation with the least and the mean φ.
    """

    best: NDArray[np.intp]
    phi: float
    phi_bound: float
    generations: int
    logbook: tuple[Mapping[str, float], ...]

    @property
    def is_optimal(self) -> bool:
        """Whether it is proved that no assignment has a smaller φ."""
        return self.phi <= self.phi_bound


def evolve(
    problem: Problem,
    parameters: PaperParameters,
    on_generation: Callable[[int, NDArray[np.intp], float], None],
    excess: Excess | None = None,
    register: Register | None = None,
    checkpoint: str | Path | None = None,
) -> Evolution:
    """Run the algorithm; `on_generation` gets (generations done, best so far, its φ).

    With `excess`, an assignment that exceeds memory limits is worse than any that does not
    (`ga.objectives`). Without it, limits play no part, as in the paper. `register` may replace
    operators of the toolbox. The evolution continues from the file `checkpoint` if it exists, also
    for more generations, and is kept there; see `ga.checkpoint` for the errors.
    """
    from deap import algorithms, tools  # noqa: PLC0415 (takes 0.1 s to import)

    from ga import individuals  # noqa: PLC0415

    rng = np.random.default_rng(problem.seed)
    beta = layer_beta_bytes(problem.network)
    bound = phi_lower_bound(beta, len(problem.devices))
    toolbox = _toolbox(rng, problem, parameters, beta, excess)
    if register is not None:
        register(toolbox)
    statistics = tools.Statistics(lambda individual: individual.fitness.values[1])
    statistics.register("least", np.min)
    statistics.register("mean", np.mean)
    logbook = tools.Logbook()
    elite = tools.HallOfFame(1)
    crossover = parameters.crossover if len(beta) > 1 else 0.0
    with individuals.seeded(rng):
        file = None if checkpoint is None else _checkpoint(checkpoint, problem, parameters, beta)
        kept = None if file is None else file.read(rng, individuals.PaperIndividual)
        if kept is None:
            population = toolbox.population(_first_population(rng, problem, parameters, beta))
            generation = 0
        else:
            population = kept.population[1:]
            elite.update(kept.population[:1])
            logbook.extend(kept.records[:-1])
            generation = kept.generation
        while True:
            evaluations = individuals.price(toolbox, population)
            if kept is not None:
                evaluations, kept = int(kept.records[-1]["evaluations"]), None
            elite.update(population)
            best, least = np.array(elite[0], dtype=np.intp), elite[0].fitness.values[1]
            found = statistics.compile(population)
            logbook.record(generation=generation, evaluations=evaluations, **found)
            on_generation(generation, best, least)
            optimal = parameters.stop_when_optimal and least <= bound
            ends = generation >= parameters.generations or optimal
            if file is not None and (ends or generation % file.every == 0):
                file.write(rng, [elite[0], *population], individuals.records(logbook))
            if ends:
                rows = individuals.records(logbook)
                return Evolution(best, least, bound, generation, rows)
            chosen = toolbox.select(population)
            population = algorithms.varAnd(chosen, toolbox, crossover, parameters.mutation)
            if register is not None:
                individuals.pin(population, problem.pinned)
            population[0] = toolbox.clone(elite[0])
            generation += 1


def _checkpoint(
    path: str | Path, problem: Problem, parameters: PaperParameters, beta: NDArray[np.float64]
) -> Checkpoint:
    from ga.checkpoint import Checkpoint, search_of  # noqa: PLC0415 (imports DEAP)

    about = asdict(parameters)
    del about["generations"]
    return Checkpoint(Path(path), search_of(problem, beta, problem.pinned, **about))


def _toolbox(
    rng: np.random.Generator,
    problem: Problem,
    parameters: PaperParameters,
    beta: NDArray[np.float64],
    excess: Excess | None,
) -> base.Toolbox:
    from deap import tools  # noqa: PLC0415

    from ga import individuals  # noqa: PLC0415

    devices = len(problem.devices)
    free = np.flatnonzero(problem.pinned < 0)

    def evaluate(population: Population) -> NDArray[np.float64]:
        values = phi(beta_bytes(beta, population, devices))
        over = np.zeros_like(values) if excess is None else excess(population)
        return np.column_stack([over, values])

    toolbox: Any = individuals.new_toolbox(individuals.PaperIndividual, evaluate)
    toolbox.register("select", operators.tournaments, rng, size=parameters.tournament)
    toolbox.register("mate", tools.cxTwoPoint)
    toolbox.register("mutate", operators.change_one_gene, rng, free=free, devices=devices)
    return toolbox


def _first_population(
    rng: np.random.Generator,
    problem: Problem,
    parameters: PaperParameters,
    beta: NDArray[np.float64],
) -> Population:
    devices, pinned = len(problem.devices), problem.pinned
    drawn = operators.random_population(rng, parameters.individuals, pinned, devices)
    seeds = round(parameters.seeded * parameters.individuals)
    if seeds:
        sizes = np.repeat(beta[:, None], devices, axis=1)
        drawn[:seeds] = longest_first(rng, seeds, sizes, pinned, parameters.spread)
    return drawn


class VerticalPaper:
    """The strategies `vertical-paper` and `vertical-paper-seeded`; see the module's docstring."""

    def __init__(
        self,
        parameters: PaperParameters | None = None,
        name: str = "vertical-paper",
        register: Register | None = None,
        checkpoint: str | Path | None = None,
    ) -> None:
        """For `register` and `checkpoint` see `evolve`."""
        self.name = name
        self._parameters = parameters or PaperParameters()
        self._register = register
        self._checkpoint = checkpoint

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`."""

        def excess(population: Population) -> NDArray[np.float64]:
            return problem.costs.evaluate(population).overrun_bytes

        evolution = self._evolve(problem, self._parameters)
        limited = ""
        if excess(evolution.best[None].astype(np.int16))[0] > 0:
            parameters = replace(self._parameters, stop_when_optimal=False)
            evolution = self._evolve(problem, parameters, excess)
            limited = ", among assignments within the memory limits if there are any"
        return Solution(
            problem.assignment(evolution.best),
            f"Eq. 1 of Tang & Stefanov (2021){limited}: Eq. 2 saves "
            f"{saving_percent(problem, evolution.best):.2f} % of memory per device; "
            + _how(evolution, seeded=self._parameters.seeded > 0),
            generations=evolution.logbook,
        )

    def _evolve(
        self,
        problem: Problem,
        parameters: PaperParameters,
        excess: Excess | None = None,
    ) -> Evolution:
        def on_generation(done: int, best: NDArray[np.intp], _: float) -> None:
            saving = saving_percent(problem, best)
            problem.on_progress(
                SearchProgress(done, parameters.generations, f"Eq. 2 saves {saving:.2f} %")
            )

        checkpoint = self._checkpoint if excess is None else None
        return evolve(problem, parameters, on_generation, excess, self._register, checkpoint)


def saving_percent(problem: Problem, numbers: NDArray[np.integer]) -> float:
    """Return the paper's memory saving per device, in per cent: 100 (1 − max β / total β)."""
    beta = beta_bytes(layer_beta_bytes(problem.network), numbers[None], len(problem.devices))[0]
    return float(100 * (1 - beta.max() / beta.sum())) if beta.sum() else 0.0


def _how(evolution: Evolution, *, seeded: bool) -> str:
    done, first = evolution.generations, evolution.logbook[0]["least"]
    start = "the best of longest-first and random assignments" if seeded else "the best at random"
    proved = ", proved optimal" if evolution.is_optimal else ""
    if evolution.phi < first:
        how = f"{done} generations lowered φ from {first:.6g} ({start}) to {evolution.phi:.6g}"
    else:
        how = f"{start}, which {done} generations did not improve"
    return how + proved
