"""Declares the section `ga` of `cluster.yaml`: parameters of the genetic strategies."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from launcher.config.strict import StrictModel

Fraction = Annotated[float, Field(ge=0, le=1)]


class Tuning(StrictModel):
    """Parameters of one genetic strategy; one that is left out has its usual value.

    `budget` bounds how many candidate solutions a search evaluates; the other parameters say how
    the search spends it (`ga.sweep.spaces`).
    """

    budget: Annotated[
        float,
        Field(
            ge=0.01, le=100, description="Candidate solutions to evaluate, relative to the default"
        ),
    ] = 1.0


class AnnealedTuning(Tuning):
    """Parameters of a strategy that anneals from one temperature."""

    chains: Annotated[int | None, Field(ge=1, description="Annealing chains that run together")] = (
        None
    )
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature at which annealing starts")
    ] = None
    epoch: Annotated[int | None, Field(ge=1, description="Steps between restarts of chains")] = None


class VerticalTuning(AnnealedTuning):
    """Parameters of `vertical`, also where `auto` tries it."""

    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Size of NSGA-II's population")
    ] = None
    evolved: Annotated[
        float | None,
        Field(ge=0, le=0.9, description="Fraction of the budget that NSGA-II gets; annealing the "
              "rest"),
    ] = None  # fmt: skip
    crossover: Annotated[Fraction | None, Field(description="Probability of crossover")] = None
    reliefs: Annotated[
        Fraction | None,
        Field(description="Fraction of annealing's moves that take a layer off a fullest device"),
    ] = None


class PaperTuning(Tuning):
    """Parameters of `vertical-paper`."""

    individuals: Annotated[int | None, Field(ge=2, description="Size of the population")] = None
    mutation: Annotated[Fraction | None, Field(description="Probability of a mutation")] = None
    crossover: Annotated[Fraction | None, Field(description="Probability of crossover")] = None
    tournament: Annotated[
        int | None, Field(ge=1, description="Individuals that compete in a selection")
    ] = None
    seeded: Annotated[
        Fraction | None,
        Field(description="Fraction of the first population that longest-first assigns"),
    ] = None
    spread: Annotated[
        float | None,
        Field(ge=0, le=1, description="How much the seeds' sizes are varied at random"),
    ] = None


class RunsTuning(Tuning):
    """Parameters of `runs`, also where `auto` tries it."""

    chains: Annotated[
        int | None, Field(ge=12, multiple_of=12, description="Annealing chains that run together")
    ] = None
    rounds: Annotated[int | None, Field(ge=1, description="Rounds of annealing")] = None
    individuals: Annotated[
        int | None, Field(ge=4, multiple_of=4, description="Size of NSGA-II's population")
    ] = None
    heat: Annotated[
        float | None, Field(gt=0, le=1, description="Temperature at which the first round starts")
    ] = None


class HybridTuning(AnnealedTuning):
    """Parameters of `hybrid`, also where `auto` tries it."""

    fineness: Annotated[
        float | None,
        Field(gt=0, le=1, description="Size of the parts of layers, of a node's fair share"),
    ] = None


class GaConfig(StrictModel):
    """Parameters of the genetic strategies, which `ga sweep` tunes and can write here."""

    model_config = ConfigDict(populate_by_name=True)

    vertical: Annotated[VerticalTuning | None, Field(description="Parameters of vertical")] = None
    vertical_paper: Annotated[
        PaperTuning | None,
        Field(alias="vertical-paper", description="Parameters of vertical-paper"),
    ] = None
    runs: Annotated[RunsTuning | None, Field(description="Parameters of runs")] = None
    hybrid: Annotated[HybridTuning | None, Field(description="Parameters of hybrid")] = None

    def sections(self) -> dict[str, dict[str, float]]:
        """Return what the user has given: strategy → its parameters and its budget."""
        return self.model_dump(exclude_unset=True, exclude_none=True, by_alias=True)
