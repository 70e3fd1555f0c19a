"""Search spaces of a sweep: the parameters of each genetic strategy, and the value of a search.

Every search of a sweep may price the same number of states, whatever its parameters: a larger
population has fewer generations, and annealing gets the states that NSGA-II does not spend. So a
sweep finds better parameters and not just more expensive ones. The number is that of the strategy's
default parameters times the sweep's `budget`, which also shortens the end of `vertical`: its
descent and the chains that minimise the period alone.

The same functions build a strategy from parameters of a sweep or of the user: with the parameters,
budget and seed of a trial, a search gives the result of that trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Protocol

import numpy as np
import optuna
from numpy.typing import NDArray

from ga import nsga, paper
from ga.auto import Auto
from ga.genes import genes
from ga.objectives import PREFERENCES, Objectives, Preference
from ga.paper import VerticalPaper
from ga.vertical import Effort, Vertical
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem, Solution, Strategy

Parameters = Mapping[str, float]
"""Name of a parameter → its value; whole numbers are ints."""

Watch = Callable[[float, float], None]
"""Gets the completed part of a search, in [0, 1], and its best value so far."""


class Space(Protocol):
    """The parameters of one strategy, and the value that a search minimises."""

    @property
    def name(self) -> str:
        """The name of the strategy."""
        ...

    @property
    def value_name(self) -> str:
        """The name of the value that is minimised."""
        ...

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """Return the default parameters of the strategy."""
        ...

    def suggest(self, trial: optuna.Trial) -> Parameters:
        """Return parameters to try."""
        ...

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """Return all settings of the strategy, including those that follow from `parameters`."""
        ...

    def search(
        self, problem: Problem, parameters: Parameters, budget: float, watch: Watch
    ) -> float:
        """Search once, with the problem's seed, and return the value of the chosen solution.

        Raises `PartitionError` as the strategy does.
        """
        ...

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """Return the strategy with these parameters, for this problem."""
        ...

    def gain(self, usual: float, best: float) -> float:
        """Return by which share of its costs `best` is better than `usual`."""
        ...


class VerticalSpace:
    """NSGA-II and annealing (`ga.vertical`): the exact score of the solution under the problem's
    preference (`ga.objectives`), a weighted sum of logarithms of costs.
    """

    name = "vertical"
    value_name = "score"

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """See `Space`."""
        effort = Effort()
        evolved = effort.nsga.individuals * effort.nsga.generations
        return {
            "individuals": effort.nsga.individuals,
            "evolved": min(evolved * budget / _states(problem, budget), _MOST_EVOLVED),
            "crossover": effort.nsga.crossover,
            "chains": effort.chains,
            "heat": effort.heat,
            "epoch": effort.epoch,
            "reliefs": effort.reliefs,
        }

    def suggest(self, trial: optuna.Trial) -> Parameters:
        """See `Space`; `evolved` is the part of the states that NSGA-II prices."""
        return {
            "individuals": trial.suggest_int("individuals", 16, 160, step=4),
            "evolved": trial.suggest_float("evolved", 0.0, _MOST_EVOLVED),
            "crossover": trial.suggest_float("crossover", 0.0, 1.0),
            "chains": trial.suggest_int("chains", 4, 256, log=True),
            "heat": trial.suggest_float("heat", 1e-3, 0.3, log=True),
            "epoch": trial.suggest_int("epoch", 20, 2000, log=True),
            "reliefs": trial.suggest_float("reliefs", 0.0, 1.0),
        }

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """See `Space`: fields of `ga.vertical.Effort` and `ga.nsga.Parameters`."""
        effort = self.effort(problem, parameters, budget)
        return {
            **asdict(effort.nsga),
            "chains": effort.chains,
            "steps": effort.most_steps,
            "heat": effort.heat,
            "epoch": effort.epoch,
            "reliefs": effort.reliefs,
        }

    def search(
        self, problem: Problem, parameters: Parameters, budget: float, watch: Watch
    ) -> float:
        """See `Space`."""
        effort = self.effort(problem, parameters, budget)
        solution = Vertical(effort=effort, watch=watch).solve(problem)
        exact = Objectives(problem, problem.costs, layer_beta_bytes(problem.network))
        priced = exact.price(problem.numbers(solution.assignment)[None])
        return float(exact.score(priced, PREFERENCES[problem.objective], smooth=False)[0])

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """See `Space`."""
        return Vertical(effort=self.effort(problem, parameters, budget))

    def gain(self, usual: float, best: float) -> float:
        """See `Space`."""
        return float(1 - np.exp(best - usual))

    def effort(self, problem: Problem, parameters: Parameters, budget: float) -> Effort:
        """Return the effort of `vertical`: with default parameters and budget 1, its default
        effort."""
        states, usual = _states(problem, budget), Effort()
        individuals, chains = int(parameters["individuals"]), int(parameters["chains"])
        generations = round(parameters["evolved"] * states / individuals)
        steps = max(1, (states - generations * individuals) // chains)
        return Effort(
            nsga.Parameters(individuals, generations, parameters["crossover"]),
            chains,
            least_steps=steps,
            most_steps=steps,
            fast_steps=max(1, round(usual.fast(problem.network, len(problem.devices)) * budget)),
            descent=max(1, round(usual.descent * budget)),
            heat=parameters["heat"],
            epoch=int(parameters["epoch"]),
            reliefs=parameters["reliefs"],
        )


class PaperSpace:
    """The genetic algorithm of Tang & Stefanov (2021) (`ga.paper`): φ of their Eq. 1, in bytes.

    As in the paper, memory limits are ignored.
    """

    name = "vertical-paper"
    value_name = "φ"

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        usual = asdict(paper.PaperParameters())
        usual["individuals"] = min(usual["individuals"], round(_evaluations(budget)))
        return {name: usual[name] for name in _PAPER}

    def suggest(self, trial: optuna.Trial) -> Parameters:
        """See `Space`."""
        return {
            "individuals": trial.suggest_int("individuals", 20, 20_000, log=True),
            "mutation": trial.suggest_float("mutation", 1e-3, 1.0, log=True),
            "crossover": trial.suggest_float("crossover", 0.0, 1.0),
            "tournament": trial.suggest_int("tournament", 2, 10),
            "seeded": trial.suggest_float("seeded", 0.0, 0.5),
            "spread": trial.suggest_float("spread", 0.02, 0.8, log=True),
        }

    def settings(
        self,
        problem: Problem,  # noqa: ARG002 - the budget does not depend on it
        parameters: Parameters,
        budget: float,
    ) -> Parameters:
        """See `Space`: fields of `ga.paper.PaperParameters`."""
        generations = max(1, round(_evaluations(budget) / parameters["individuals"]))
        return {**parameters, "generations": generations}

    def search(
        self, problem: Problem, parameters: Parameters, budget: float, watch: Watch
    ) -> float:
        """See `Space`."""
        given = self._given(problem, parameters, budget)

        def on_generation(done: int, _best: NDArray[np.intp], phi: float) -> None:
            watch(done / given.generations, phi)

        return paper.evolve(problem, given, on_generation).phi

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """See `Space`."""
        return VerticalPaper(self._given(problem, parameters, budget))

    def _given(
        self, problem: Problem, parameters: Parameters, budget: float
    ) -> paper.PaperParameters:
        settings = self.settings(problem, parameters, budget)
        return paper.PaperParameters(
            individuals=int(settings["individuals"]),
            generations=int(settings["generations"]),
            mutation=settings["mutation"],
            crossover=settings["crossover"],
            tournament=int(settings["tournament"]),
            seeded=settings["seeded"],
            spread=settings["spread"],
        )

    def gain(self, usual: float, best: float) -> float:
        """See `Space`."""
        return (usual - best) / usual if usual else 0.0


SPACES: Mapping[str, Space] = MappingProxyType(
    {space.name: space for space in (VerticalSpace(), PaperSpace())}
)
"""The search spaces by the name of the strategy; the first is the default."""

_MOST_EVOLVED = 0.9
_PAPER = ("individuals", "mutation", "crossover", "tournament", "seeded", "spread")


def _states(problem: Problem, budget: float) -> int:
    """Return the number of states that `vertical` may price: its default × `budget`."""
    effort = Effort()
    steps = effort.steps(genes(problem).network, len(problem.devices))
    usual = effort.nsga.individuals * effort.nsga.generations + effort.chains * steps
    return max(1000, round(usual * budget))


def _evaluations(budget: float) -> float:
    usual = paper.PaperParameters()
    return max(1000.0, usual.individuals * usual.generations * budget)


@dataclass(frozen=True)
class Tuned:
    """The strategy `name`, one of `ga.sweep.spaces.SPACES`, with `parameters`; the others have
    their defaults.

    For the `budget`, see `ga.sweep.study.Sweep`.
    """

    name: str
    parameters: Parameters = field(default_factory=dict)
    budget: float = 1.0

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`."""
        space = SPACES[self.name]
        every = {**space.usual(problem, self.budget), **self.parameters}
        return space.strategy(problem, every, self.budget).solve(problem)


def tuned_auto(parameters: Parameters, budget: float = 1.0) -> Auto:
    """Return `auto` with these parameters of its vertical search, and its defaults otherwise."""
    space = VerticalSpace()

    def vertical(problem: Problem, preference: Preference) -> Strategy:
        every = {**space.usual(problem, budget), **parameters}
        return Vertical(preference, space.effort(problem, every, budget))

    return Auto(vertical=vertical)


def as_yaml(tuned: Mapping[str, Mapping[str, float]]) -> str:
    """Return the section `ga` of `cluster.yaml`: strategy → its parameters, budget included."""
    lines = ["ga:"]
    for strategy, parameters in tuned.items():
        lines.append(f"  {strategy}:")
        lines += [f"    {name}: {_number(value)}" for name, value in parameters.items()]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """Format a number with all its digits and no exponent: YAML 1.1 reads 1e-05 as text."""
    if isinstance(value, int):
        return str(value)
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"
