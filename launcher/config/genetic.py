"""The section `ga` of `cluster.yaml`: parameters of the genetic strategies.

They are those that `ga sweep` tunes, and it can write them there.

A parameter that is left out has its usual value. `budget` is how many states a search may price,
relative to the usual number; the other parameters say how it is spent (`ga.sweep.spaces`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from launcher.strict_model import StrictModel

Part = Annotated[float, Field(ge=0, le=1)]


class Tuning(StrictModel):
    """Of one strategy."""

    def given(self) -> dict[str, float]:
        """The parameters that the user has given, without the budget."""
        return self.model_dump(exclude_none=True, exclude={"budget"})


class VerticalTuning(Tuning):
    """Of `vertical`, also where `auto` tries it."""

    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Of NSGA-II's population")
    ] = None
    evolved: Annotated[
        float | None, Field(ge=0, le=0.9, description="Part of all states that NSGA-II prices")
    ] = None
    crossover: Annotated[Part | None, Field(description="Probability of crossover")] = None
    chains: Annotated[int | None, Field(ge=1, description="Annealed side by side")] = None
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature that annealing starts from")
    ] = None
    epoch: Annotated[int | None, Field(ge=1, description="Steps between restarts of chains")] = None
    reliefs: Annotated[
        Part | None, Field(description="Part of the moves that relieve a fullest device")
    ] = None
    budget: Annotated[
        float, Field(ge=0.01, le=100, description="States to price, relative to the usual")
    ] = 1.0


class PaperTuning(Tuning):
    """Of `vertical-paper`."""

    individuals: Annotated[int | None, Field(ge=2, description="Of the population")] = None
    mutation: Annotated[Part | None, Field(description="Probability of a mutation")] = None
    crossover: Annotated[Part | None, Field(description="Probability of crossover")] = None
    tournament: Annotated[int | None, Field(ge=1, description="Rivals for a parent's place")] = None
    seeded: Annotated[
        Part | None, Field(description="Part of the first population assigned by longest time")
    ] = None
    spread: Annotated[
        float | None, Field(ge=0, le=1, description="How far the seeds' sizes are blurred")
    ] = None
    budget: Annotated[
        float, Field(ge=0.01, le=100, description="States to price, relative to the usual")
    ] = 1.0


class GaConfig(StrictModel):
    """Parameters by strategy."""

    model_config = ConfigDict(populate_by_name=True)

    vertical: Annotated[VerticalTuning | None, Field(description="Of vertical")] = None
    vertical_paper: Annotated[
        PaperTuning | None, Field(alias="vertical-paper", description="Of vertical-paper")
    ] = None
