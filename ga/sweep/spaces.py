"""Search spaces of a sweep: the parameters of each genetic strategy, and the cost of a solution.

Every search of a sweep may price the same number of states, whatever its parameters: a larger
population has fewer generations, and annealing gets the states that NSGA-II does not spend. So a
sweep finds better parameters and not just more expensive ones. The number is that of the strategy's
default parameters times the sweep's `budget`, which also shortens the end of `vertical`: its
descent and the chains that minimise the period alone.

The space of `auto` consists of the spaces of the strategies that it tries.

The same functions build a strategy from parameters of a sweep or of the user, so a search with the
parameters, budget and seed of a trial gives the result of that trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Protocol

import optuna

from ga import nsga, paper
from ga.auto import Auto
from ga.genes import genes
from ga.hybrid.strategy import Hybrid, HybridEffort
from ga.objectives import PREFERENCES, Objectives, Preference
from ga.paper import VerticalPaper
from ga.runs.search import RunEffort
from ga.runs.strategy import Runs
from ga.strategies import find_strategy
from ga.sweep.costs import Figures, logarithm, plan_figures
from ga.vertical import Effort, Vertical
from partition.objective import WITHIN_PERIOD
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes, phi
from partition.strategies.base import Problem, Solution, Strategy

Parameters = Mapping[str, float]
"""Name of a parameter → its value; whole numbers are ints."""

Sections = Mapping[str, Parameters]
"""The key `ga` of `cluster.yaml`: strategy → its parameters, which may include its budget."""


class Space(Protocol):
    """The parameters of one strategy, and the cost that its searches minimise."""

    @property
    def name(self) -> str:
        """The name of the strategy."""
        ...

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """Return the default parameters of the strategy."""
        ...

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:
        """Return parameters to try; in the trial, their names begin with `prefix`."""
        ...

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """Return all settings of the strategy, including those that follow from `parameters`."""
        ...

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """Return the strategy with these parameters, for this problem."""
        ...

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """Return the figures of a solution (`ga.sweep.costs`).

        Raises `PartitionError` for a solution that fits no plan.
        """
        ...

    def sections(self, parameters: Parameters) -> Sections:
        """Return the sections of `cluster.yaml` that give the strategy these parameters."""
        ...


class VerticalSpace:
    """NSGA-II and annealing (`ga.vertical`): the exact score of the solution under the problem's
    preference (`ga.objectives`), a weighted sum of logarithms of costs.
    """

    name = "vertical"

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

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:  # noqa: ARG002
        """See `Space`; `evolved` is the part of the states that NSGA-II prices."""
        return {
            "individuals": trial.suggest_int(f"{prefix}individuals", 16, 160, step=4),
            "evolved": trial.suggest_float(f"{prefix}evolved", 0.0, _MOST_EVOLVED),
            "crossover": trial.suggest_float(f"{prefix}crossover", 0.0, 1.0),
            "chains": trial.suggest_int(f"{prefix}chains", 4, 256, log=True),
            "heat": trial.suggest_float(f"{prefix}heat", 1e-3, 0.3, log=True),
            "epoch": trial.suggest_int(f"{prefix}epoch", 20, 2000, log=True),
            "reliefs": trial.suggest_float(f"{prefix}reliefs", 0.0, 1.0),
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

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """See `Space`."""
        return Vertical(effort=self.effort(problem, parameters, budget))

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        exact = Objectives(problem, problem.costs, layer_beta_bytes(problem.network))
        priced = exact.price(problem.numbers(solution.assignment)[None])
        return (float(exact.score(priced, PREFERENCES[problem.objective], smooth=False)[0]),)

    def sections(self, parameters: Parameters) -> Sections:
        """See `Space`."""
        return {self.name: parameters}

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

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        usual = asdict(paper.PaperParameters())
        usual["individuals"] = min(usual["individuals"], round(_evaluations(budget)))
        return {name: usual[name] for name in _PAPER}

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return {
            "individuals": trial.suggest_int(f"{prefix}individuals", 20, 20_000, log=True),
            "mutation": trial.suggest_float(f"{prefix}mutation", 1e-3, 1.0, log=True),
            "crossover": trial.suggest_float(f"{prefix}crossover", 0.0, 1.0),
            "tournament": trial.suggest_int(f"{prefix}tournament", 2, 10),
            "seeded": trial.suggest_float(f"{prefix}seeded", 0.0, 0.5),
            "spread": trial.suggest_float(f"{prefix}spread", 0.02, 0.8, log=True),
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

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """See `Space`."""
        return VerticalPaper(self._given(problem, parameters, budget))

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        numbers = problem.numbers(solution.assignment)[None]
        held = beta_bytes(layer_beta_bytes(problem.network), numbers, len(problem.devices))
        return (logarithm(float(phi(held)[0])),)

    def sections(self, parameters: Parameters) -> Sections:
        """See `Space`."""
        return {self.name: parameters}

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


class RunsSpace:
    """The search over runs (`ga.runs`): the costs of the solution's plan."""

    name = "runs"

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return self._usual()

    def _usual(self) -> Parameters:
        effort = RunEffort()
        return {
            "chains": effort.chains,
            "rounds": effort.rounds,
            "individuals": effort.nsga.individuals,
            "heat": effort.heat,
        }

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:  # noqa: ARG002
        """See `Space`; `chains` are a multiple of the number of allowances."""
        return {
            "chains": trial.suggest_int(f"{prefix}chains", 48, 720, step=12),
            "rounds": trial.suggest_int(f"{prefix}rounds", 2, 16),
            "individuals": trial.suggest_int(f"{prefix}individuals", 16, 160, step=4),
            "heat": trial.suggest_float(f"{prefix}heat", 1e-2, 1.0, log=True),
        }

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """See `Space`; `steps` are those of a round, where layers stay whole."""
        effort = self.effort(parameters, budget)
        steps = effort.steps(len(genes(problem).network.tensors), len(problem.devices))
        return {**parameters, "generations": effort.nsga.generations, "steps": steps}

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:  # noqa: ARG002
        """See `Space`."""
        return Runs(self.effort(parameters, budget))

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        return plan_figures(problem, solution)

    def sections(self, parameters: Parameters) -> Sections:
        """See `Space`."""
        return {self.name: parameters}

    def effort(self, parameters: Parameters, budget: float) -> RunEffort:
        """Return the effort of `runs`: with default parameters and budget 1, its default effort.

        All chains together take the usual number of steps × `budget`, whatever their number, and
        NSGA-II prices as many states.
        """
        usual, given = RunEffort(), {**self._usual(), **parameters}
        chains, rounds = int(given["chains"]), int(given["rounds"])
        individuals = int(given["individuals"])
        share = budget * usual.chains * usual.rounds / (chains * rounds)
        bred = usual.nsga.individuals * usual.nsga.generations * (usual.rounds - 1) * budget
        return RunEffort(
            chains,
            rounds,
            work=usual.work * budget,
            least_steps=max(1, round(usual.least_steps * share)),
            steps_per_tensor=usual.steps_per_tensor * share,
            nsga=nsga.Parameters(
                individuals, max(1, round(bred / (individuals * max(1, rounds - 1))))
            ),
            exact=max(_LEAST_PLANS, round(usual.exact * budget)),
            heat=given["heat"],
        )


class HybridSpace:
    """The splitting of layers (`ga.hybrid`): the costs of the solution's plan."""

    name = "hybrid"

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return self._usual()

    def _usual(self) -> Parameters:
        effort = HybridEffort()
        return {
            "chains": effort.chains,
            "heat": effort.heat,
            "epoch": effort.epoch,
            "fineness": effort.fineness,
        }

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return {
            "chains": trial.suggest_int(f"{prefix}chains", 8, 192, log=True),
            "heat": trial.suggest_float(f"{prefix}heat", 1e-3, 0.3, log=True),
            "epoch": trial.suggest_int(f"{prefix}epoch", 5, 500, log=True),
            "fineness": trial.suggest_float(f"{prefix}fineness", 0.02, 0.2, log=True),
        }

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return {**parameters, "most_steps": self.effort(parameters, budget).most_steps}

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:  # noqa: ARG002
        """See `Space`."""
        return Hybrid(self.effort(parameters, budget))

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        return plan_figures(problem, solution)

    def sections(self, parameters: Parameters) -> Sections:
        """See `Space`."""
        return {self.name: parameters}

    def effort(self, parameters: Parameters, budget: float) -> HybridEffort:
        """Return the effort of `hybrid`: with default parameters and budget 1, its default
        effort. All chains together take the usual number of steps × `budget`."""
        usual, given = HybridEffort(), {**self._usual(), **parameters}
        chains = int(given["chains"])
        share = budget * usual.chains / chains
        return HybridEffort(
            chains,
            work=usual.work * budget,
            least_steps=max(1, round(usual.least_steps * share)),
            most_steps=max(1, round(usual.most_steps * share)),
            finalists=max(_LEAST_PLANS, round(usual.finalists * budget)),
            heat=given["heat"],
            epoch=int(given["epoch"]),
            fineness=given["fineness"],
        )


class AutoSpace:
    """The searches that `auto` tries, each with its own parameters: the costs of the chosen plan.

    A parameter's name begins with the strategy, as in `runs.chains`.
    """

    name = "auto"

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """See `Space`."""
        return {
            f"{part.name}.{name}": value
            for part in _parts(problem)
            for name, value in part.usual(problem, budget).items()
        }

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:
        """See `Space`."""
        return {
            f"{part.name}.{name}": value
            for part in _parts(problem)
            for name, value in part.suggest(trial, problem, f"{prefix}{part.name}.").items()
        }

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """See `Space`."""
        own = self.sections(parameters)
        return {
            f"{part.name}.{name}": value
            for part in _parts(problem)
            if part.name in own
            for name, value in part.settings(problem, own[part.name], budget).items()
        }

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:  # noqa: ARG002
        """See `Space`."""
        own = self.sections(parameters)
        return tuned_auto({name: {**own.get(name, {}), "budget": budget} for name in AUTO_PARTS})

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        return plan_figures(problem, solution)

    def sections(self, parameters: Parameters) -> Sections:
        """See `Space`: the sections of the strategies that `auto` tries."""
        found: dict[str, dict[str, float]] = {}
        for name, value in parameters.items():
            strategy, _, own = name.partition(".")
            found.setdefault(strategy, {})[own] = value
        return found


_VERTICAL, _RUNS, _HYBRID = VerticalSpace(), RunsSpace(), HybridSpace()

SPACES: Mapping[str, Space] = MappingProxyType(
    {space.name: space for space in (_VERTICAL, PaperSpace(), AutoSpace(), _RUNS, _HYBRID)}
)
"""The search spaces by the name of the strategy; the first is the default."""

AUTO_PARTS = (_VERTICAL.name, _RUNS.name, _HYBRID.name)
"""The strategies with parameters that `auto` tries."""

_MOST_EVOLVED = 0.9
_LEAST_PLANS = 4
_PAPER = ("individuals", "mutation", "crossover", "tournament", "seeded", "spread")


def _parts(problem: Problem) -> tuple[Space, ...]:
    """Return the spaces of the searches that `auto` may try on a problem."""
    parts: list[Space] = [_VERTICAL]
    if problem.objective in WITHIN_PERIOD:
        parts.append(_RUNS)
    if problem.model is not None and problem.objective not in ("latency", "energy"):
        parts.append(_HYBRID)
    return tuple(parts)


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
    """The strategy `name`, one of `ga.sweep.spaces.SPACES` but `auto`, with `parameters`; the
    others have their defaults.

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


def tuned(name: str, sections: Sections) -> Strategy:
    """Return the strategy called `name` with the parameters and budgets in `sections`.

    Raises `PartitionError` if there is no such strategy.
    """
    if name == AutoSpace.name and any(part in sections for part in AUTO_PARTS):
        return tuned_auto(sections)
    if name in SPACES and name in sections:
        return Tuned(name, *_divided(sections[name]))
    return find_strategy(name)


def tuned_auto(sections: Sections) -> Auto:
    """Return `auto` with these parameters and budgets of the strategies that it tries."""

    def vertical(problem: Problem, preference: Preference) -> Strategy:
        if _VERTICAL.name not in sections:
            return Vertical(preference)
        parameters, budget = _divided(sections[_VERTICAL.name])
        every = {**_VERTICAL.usual(problem, budget), **parameters}
        return Vertical(preference, _VERTICAL.effort(problem, every, budget))

    runs, runs_budget = _divided(sections.get(_RUNS.name, {}))
    hybrid, hybrid_budget = _divided(sections.get(_HYBRID.name, {}))
    return Auto(
        splitting=Hybrid(_HYBRID.effort(hybrid, hybrid_budget)),
        vertical=vertical,
        runs=lambda known: Runs(_RUNS.effort(runs, runs_budget), known),
    )


def _divided(section: Parameters) -> tuple[Parameters, float]:
    """Return the parameters of a section, and its budget."""
    own = {name: value for name, value in section.items() if name != "budget"}
    return own, section.get("budget", 1.0)


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
