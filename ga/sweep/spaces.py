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
from typing import Any

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


@dataclass(frozen=True)
class Range:
    """The values that a sweep tries for a parameter: whole numbers if `low` is one.

    They are multiples of `step` from `low` on, or, with `log`, as likely on a logarithmic scale.
    """

    low: float
    high: float
    step: int = 1
    log: bool = False

    def suggest(self, trial: optuna.Trial, name: str) -> float:
        """Return a value of the parameter `name` to try."""
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, step=self.step, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


class Space:
    """The parameters of one strategy, and the cost that its searches minimise.

    Unless a space says otherwise, it minimises the costs of the solution's plan.
    """

    name: str
    """The name of the strategy."""
    ranges: Mapping[str, Range] = MappingProxyType({})

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """Return the default parameters of the strategy."""
        raise NotImplementedError

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> Parameters:  # noqa: ARG002
        """Return parameters to try; in the trial, their names begin with `prefix`."""
        return {name: own.suggest(trial, prefix + name) for name, own in self.ranges.items()}

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """Return all settings of the strategy, including those that follow from `parameters`."""
        raise NotImplementedError

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:
        """Return the strategy with these parameters, for this problem."""
        raise NotImplementedError

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """Return the figures of a solution (`ga.sweep.costs`).

        Raises `PartitionError` for a solution that fits no plan.
        """
        return plan_figures(problem, solution)

    def sections(self, parameters: Parameters) -> Sections:
        """Return the sections of `cluster.yaml` that give the strategy these parameters."""
        return {self.name: parameters}


class VerticalSpace(Space):
    """NSGA-II and annealing (`ga.vertical`): the exact score of the solution under the problem's
    preference (`ga.objectives`), a weighted sum of logarithms of costs.
    """

    name = "vertical"
    ranges = MappingProxyType(
        {
            "individuals": Range(16, 160, step=4),
            "evolved": Range(0.0, 0.9),
            "crossover": Range(0.0, 1.0),
            "chains": Range(4, 256, log=True),
            "heat": Range(1e-3, 0.3, log=True),
            "epoch": Range(20, 2000, log=True),
            "reliefs": Range(0.0, 1.0),
        }
    )
    """`evolved` is the part of the states that NSGA-II prices."""

    def usual(self, problem: Problem, budget: float) -> Parameters:
        """See `Space`."""
        effort = Effort()
        bred = effort.nsga.individuals * effort.nsga.generations
        evolved = min(bred * budget / _states(problem, budget), self.ranges["evolved"].high)
        usual = {**asdict(effort), **asdict(effort.nsga), "evolved": evolved}
        return {name: usual[name] for name in self.ranges}

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


class PaperSpace(Space):
    """The genetic algorithm of Tang & Stefanov (2021) (`ga.paper`): φ of their Eq. 1, in bytes.

    As in the paper, memory limits are ignored.
    """

    name = "vertical-paper"
    ranges = MappingProxyType(
        {
            "individuals": Range(20, 20_000, log=True),
            "mutation": Range(1e-3, 1.0, log=True),
            "crossover": Range(0.0, 1.0),
            "tournament": Range(2, 10),
            "seeded": Range(0.0, 0.5),
            "spread": Range(0.02, 0.8, log=True),
        }
    )

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        usual = asdict(paper.PaperParameters())
        usual["individuals"] = min(usual["individuals"], round(_evaluations(budget)))
        return {name: usual[name] for name in self.ranges}

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
        settings: dict[str, Any] = {**self.settings(problem, parameters, budget)}
        whole = ("individuals", "generations", "tournament")
        settings |= {name: int(settings[name]) for name in whole}
        return VerticalPaper(paper.PaperParameters(**settings))

    def figures(self, problem: Problem, solution: Solution) -> Figures:
        """See `Space`."""
        numbers = problem.numbers(solution.assignment)[None]
        held = beta_bytes(layer_beta_bytes(problem.network), numbers, len(problem.devices))
        return (logarithm(float(phi(held)[0])),)


class RunsSpace(Space):
    """The search over runs (`ga.runs`): the costs of the solution's plan."""

    name = "runs"
    ranges = MappingProxyType(
        {
            "chains": Range(48, 720, step=12),  # a multiple of the number of allowances
            "rounds": Range(2, 16),
            "individuals": Range(16, 160, step=4),
            "heat": Range(1e-2, 1.0, log=True),
        }
    )

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        usual = RunEffort()
        every = {**asdict(usual), "individuals": usual.nsga.individuals}
        return {name: every[name] for name in self.ranges}

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:
        """See `Space`; `steps` are those of a round, where layers stay whole."""
        effort = self.effort(parameters, budget)
        steps = effort.steps(len(genes(problem).network.tensors), len(problem.devices))
        return {**parameters, "generations": effort.nsga.generations, "steps": steps}

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:  # noqa: ARG002
        """See `Space`."""
        return Runs(self.effort(parameters, budget))

    def effort(self, parameters: Parameters, budget: float) -> RunEffort:
        """Return the effort of `runs`: with default parameters and budget 1, its default effort.

        All chains together take the usual number of steps × `budget`, whatever their number, and
        NSGA-II prices as many states.
        """
        usual = RunEffort()
        chains = int(parameters.get("chains", usual.chains))
        rounds = int(parameters.get("rounds", usual.rounds))
        individuals = int(parameters.get("individuals", usual.nsga.individuals))
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
            heat=parameters.get("heat", usual.heat),
        )


class HybridSpace(Space):
    """The splitting of layers (`ga.hybrid`): the costs of the solution's plan."""

    name = "hybrid"
    ranges = MappingProxyType(
        {
            "chains": Range(8, 192, log=True),
            "heat": Range(1e-3, 0.3, log=True),
            "epoch": Range(5, 500, log=True),
            "fineness": Range(0.02, 0.2, log=True),
        }
    )

    def usual(self, problem: Problem, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        usual = asdict(HybridEffort())
        return {name: usual[name] for name in self.ranges}

    def settings(self, problem: Problem, parameters: Parameters, budget: float) -> Parameters:  # noqa: ARG002
        """See `Space`."""
        return {**parameters, "most_steps": self.effort(parameters, budget).most_steps}

    def strategy(self, problem: Problem, parameters: Parameters, budget: float) -> Strategy:  # noqa: ARG002
        """See `Space`."""
        return Hybrid(self.effort(parameters, budget))

    def effort(self, parameters: Parameters, budget: float) -> HybridEffort:
        """Return the effort of `hybrid`: with default parameters and budget 1, its default
        effort. All chains together take the usual number of steps × `budget`."""
        usual = HybridEffort()
        chains = int(parameters.get("chains", usual.chains))
        share = budget * usual.chains / chains
        return HybridEffort(
            chains,
            work=usual.work * budget,
            least_steps=max(1, round(usual.least_steps * share)),
            most_steps=max(1, round(usual.most_steps * share)),
            finalists=max(_LEAST_PLANS, round(usual.finalists * budget)),
            heat=parameters.get("heat", usual.heat),
            epoch=int(parameters.get("epoch", usual.epoch)),
            fineness=parameters.get("fineness", usual.fineness),
        )


class AutoSpace(Space):
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

_LEAST_PLANS = 4


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
