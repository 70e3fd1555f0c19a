"""Individuals for DEAP's algorithms, and the pricing of whole populations as one array.

An individual is an assignment of genes to devices with a fitness. DEAP evaluates individuals
through the toolbox's `map`, which `price_together` replaces, because the cost model works on arrays
(https://deap.readthedocs.io, "Using Multiple Processors").

DEAP draws from the global generator of `random`; `seeded` seeds it for a run and restores it.
"""

from __future__ import annotations

import array
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from deap import base, creator, tools
from numpy.typing import NDArray

from ga.operators import Population

Evaluate = Callable[[Population], NDArray[np.float64]]
"""[individuals, genes] → fitness values [individuals, 1 + objectives], the excess first."""


class FeasibleFirst(base.Fitness):  # type: ignore[misc]
    """The values (bytes beyond memory limits, objectives …), compared by `ga.objectives`.

    DEAP compares values in lexicographic order where there is one objective, so the excess decides
    before it. Where there are several, an individual with a smaller excess dominates.
    """

    weights = (-1.0,)

    def __init__(self, values: Sequence[float] = ()) -> None:
        """Set the values; unlike DEAP's own, do not check the type of the weights every time."""
        if values:
            self.values = values

    def dominates(self, other: FeasibleFirst, obj: slice = slice(1, None)) -> bool:
        """Return whether this is better by the rule; `obj` selects the objectives to compare."""
        if self.wvalues[0] != other.wvalues[0]:
            return bool(self.wvalues[0] > other.wvalues[0])
        return bool(super().dominates(other, obj))


creator.create("OneObjective", FeasibleFirst, weights=(-1.0, -1.0))
creator.create("ThreeObjectives", FeasibleFirst, weights=(-1.0, -1.0, -1.0, -1.0))
creator.create("PaperIndividual", array.array, typecode="h", fitness=creator.OneObjective)
creator.create("Individual", array.array, typecode="h", fitness=creator.ThreeObjectives)

PaperIndividual: type[Any] = creator.PaperIndividual
"""Device numbers with the fitness (excess, φ)."""

Individual: type[Any] = creator.Individual
"""Device numbers with the fitness (excess, period, memory, bytes sent)."""


def new_toolbox(kind: type[Any], evaluate: Evaluate) -> base.Toolbox:
    """Return a toolbox for individuals of this kind: `population`, `evaluate`, `map`, `clone`."""
    toolbox = base.Toolbox()
    toolbox.register("population", population_of, kind)
    toolbox.register("evaluate", evaluate)
    toolbox.register("map", price_together)
    toolbox.register("clone", clone)
    return toolbox


def population_of(kind: type[Any], rows: Population) -> list[Any]:
    """Return an individual for each of `rows` [individuals, genes], without fitness."""
    return [kind(row.tobytes()) for row in rows]


def genes_of(individuals: Sequence[Any]) -> Population:
    """Return the genes of individuals: int16 [individuals, genes]."""
    joined = np.frombuffer(b"".join(individuals), dtype=np.int16)
    return joined.reshape(len(individuals), -1).copy()


def clone(individual: Any) -> Any:
    """Return a copy with the same fitness, without calling the constructors.

    The paper's algorithm makes half a million copies.
    """
    kind: Any = type(individual)
    fitness: Any = type(individual.fitness)
    copied = kind.__new__(kind, individual)
    copied.fitness = fitness.__new__(fitness)
    copied.fitness.wvalues = individual.fitness.wvalues
    return copied


def price_together(evaluate: Evaluate, individuals: Sequence[Any]) -> list[list[float]]:
    """Apply `evaluate` to all individuals as one array; the `map` of the toolbox."""
    return evaluate(genes_of(individuals)).tolist() if individuals else []


def price(toolbox: base.Toolbox, individuals: Sequence[Any]) -> int:
    """Price the individuals without a fitness, and return their number."""
    invalid = [individual for individual in individuals if not individual.fitness.valid]
    found = toolbox.map(toolbox.evaluate, invalid)
    for individual, values in zip(invalid, found, strict=True):
        individual.fitness.values = values
    return len(invalid)


Register = Callable[[base.Toolbox], None]
"""Registers a caller's operators in a toolbox, after ours: `select`, `mate` or `mutate`, with the
arguments and results that DEAP gives them. Genes are device numbers."""


def pin(individuals: Sequence[Any], pinned: NDArray[np.integer]) -> None:
    """Set pinned genes, in place; `pinned` [genes] are device numbers, −1 for free genes."""
    decided = [(gene, int(device)) for gene, device in enumerate(pinned) if device >= 0]
    for individual in individuals:
        for gene, device in decided:
            individual[gene] = device


@contextmanager
def seeded(rng: np.random.Generator) -> Iterator[None]:
    """Seed the global generator of `random` from `rng`, and restore its state at the end."""
    state = random.getstate()
    random.seed(int(rng.integers(2**63)))
    try:
        yield
    finally:
        random.setstate(state)


def records(logbook: tools.Logbook) -> tuple[Mapping[str, float], ...]:
    """Return a logbook as one mapping per generation, for JSON."""
    return tuple({name: float(value) for name, value in row.items()} for row in logbook)
