"""The strategies with short searches, for tests in which any plan of a strategy will do."""

from __future__ import annotations

from dataclasses import replace

from ga import nsga
from ga.auto import Auto
from ga.hybrid.strategy import Hybrid, HybridEffort
from ga.paper import SEEDED, PaperParameters, VerticalPaper
from ga.replicated import Replicated
from ga.runs.search import RunEffort
from ga.runs.strategy import Runs
from ga.strategies import STRATEGIES
from ga.vertical import Effort, Vertical
from partition.strategies.base import Strategy
from partition.strategies.batch_split import BatchSplit
from partition.strategies.co_deploy import CoDeploy
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.strategy import Exact

GENERATIONS = 10
"""The generations of the genetic algorithms."""

INDIVIDUALS = 100
"""The individuals of the papers' genetic algorithm."""

_PAPER = PaperParameters(INDIVIDUALS, GENERATIONS)
_VERTICAL = Vertical(
    effort=Effort(
        nsga.Parameters(16, GENERATIONS), chains=16, most_steps=100, descents=1, descent=5
    )
)
_HYBRID = Hybrid(HybridEffort(chains=8, least_steps=20, most_steps=40, finalists=2))
_RUNS = RunEffort(chains=36, rounds=2, work=1e6, nsga=nsga.Parameters(16, 3), exact=12)

_SHORT: tuple[Strategy, ...] = (
    Auto(
        (Sequential(), _VERTICAL, BatchSplit(), Replicated(fewest=2, search=_VERTICAL)),
        _HYBRID,
        runs=lambda known: Runs(_RUNS, known),
    ),
    Runs(_RUNS),
    _VERTICAL,
    VerticalPaper(_PAPER),
    VerticalPaper(replace(_PAPER, seeded=SEEDED), "vertical-paper-seeded"),
    Replicated(search=_VERTICAL),
    _HYBRID,
    Exact("exact-vertical", Shape(contiguous=False), others=(_VERTICAL,)),
    CoDeploy((_VERTICAL,)),
)

QUICK: dict[str, Strategy] = {**STRATEGIES, **{each.name: each for each in _SHORT}}
"""Name → strategy, in the order of `STRATEGIES`."""
