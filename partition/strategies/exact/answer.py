"""The answer of the exact strategy: an assignment, and the value and bound of each goal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partition.strategies.exact.goals import Goal

ROUNDING = 1e-4
"""A gap below this is that of whole ticks, and counts as none."""


@dataclass(frozen=True, slots=True)
class GoalAnswer:
    """The outcome of one goal: the solution's value by the cost model, and a lower bound."""

    goal: Goal
    value: float
    bound: float
    is_proved: bool

    @property
    def gap(self) -> float:
        """By which fraction a better solution could beat the value at most."""
        return max(0.0, 1 - self.bound / self.value) if self.value > 0 else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether no solution is better that is as good by the goals before."""
        return self.is_proved and self.gap <= ROUNDING

    @property
    def sentence(self) -> str:
        """`period 12.346 ms (optimal)`, or how far from it."""
        shown = f"{self.goal.name} {self.goal.show(self.value)}"
        if self.is_optimal:
            return f"{shown} (optimal)"
        return f"{shown} (at least {self.goal.show(self.bound)}, gap {self.gap:.2%})"


@dataclass(frozen=True)
class Answer:
    """A device number per layer [layers], what came of each goal, and whether it fits the devices'
    memory by the cost model."""

    numbers: NDArray[np.intp]
    steps: tuple[GoalAnswer, ...]
    fits: bool

    @property
    def is_optimal(self) -> bool:
        """Whether all goals that are the objective were reached."""
        return all(step.is_optimal for step in self.steps if step.goal.counts)

    @property
    def gap(self) -> float:
        """That of the first goal that was not reached; 0 if all were."""
        gaps = (step.gap for step in self.steps if step.goal.counts and not step.is_optimal)
        return next(gaps, 0.0)

    @property
    def sentence(self) -> str:
        """All goals, and whether they were reached."""
        text = ", then ".join(step.sentence for step in self.steps)
        return text if self.fits else f"{text}; no solution was found that fits every memory"

    def bounded_by(self, relaxed: Answer) -> Answer:
        """This answer, found under tighter limits, with the bounds of looser ones."""
        steps = tuple(
            replace(
                step,
                bound=min(step.bound, other.bound),
                is_proved=step.is_proved and other.is_proved,
            )
            for step, other in zip(self.steps, relaxed.steps, strict=True)
        )
        return replace(self, steps=steps)
