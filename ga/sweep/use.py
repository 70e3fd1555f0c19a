"""The genetic strategies with parameters from a sweep, or from the user.

A search with the parameters, budget and seed of a trial gives the result of that trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from ga.auto import Auto
from ga.objectives import Preference
from ga.sweep.spaces import SPACES, Parameters, VerticalSpace
from ga.vertical import Vertical
from partition.strategies.base import Problem, Solution, Strategy


@dataclass(frozen=True)
class Tuned:
    """The strategy `name`, one of `ga.sweep.spaces.SPACES`, with `parameters`; those that are not
    given are the usual ones. See `ga.sweep.study.Sweep` for the `budget`."""

    name: str
    parameters: Parameters = field(default_factory=dict)
    budget: float = 1.0

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`."""
        space = SPACES[self.name]
        every = {**space.usual(problem, self.budget), **self.parameters}
        return space.strategy(problem, every, self.budget).solve(problem)


def tuned_auto(parameters: Parameters, budget: float = 1.0) -> Auto:
    """`auto`, whose vertical search has these parameters; all else is as usual."""
    space = VerticalSpace()

    def vertical(problem: Problem, preference: Preference) -> Strategy:
        every = {**space.usual(problem, budget), **parameters}
        return Vertical(preference, space.effort(problem, every, budget))

    return Auto(vertical=vertical)


def as_yaml(tuned: Mapping[str, Mapping[str, float]]) -> str:
    """The section `ga` of `cluster.yaml`: strategy → its parameters, budget included."""
    lines = ["ga:"]
    for strategy, parameters in tuned.items():
        lines.append(f"  {strategy}:")
        lines += [f"    {name}: {_number(value)}" for name, value in parameters.items()]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    """With all its digits, and no exponent: YAML 1.1 takes 1e-05 for text."""
    if isinstance(value, int):
        return str(value)
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"
