"""The registry of all strategies by the names that users write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ga.auto import Auto
from ga.hybrid.strategy import Hybrid
from ga.paper import SEEDED, PaperParameters, VerticalPaper
from ga.replicated import Replicated
from ga.runs.strategy import Runs
from ga.vertical import Vertical
from partition.errors import PartitionError
from partition.strategies.base import Strategy
from partition.strategies.batch_split import BatchSplit
from partition.strategies.co_deploy import CoDeploy
from partition.strategies.contiguous.segm import (
    SequentialBalanced,
    SequentialCount,
    SequentialProfiled,
)
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.contiguous.stages import KStage, TwoStage
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.strategy import Exact
from partition.strategies.manual import Manual
from partition.strategies.rows.horizontal import Horizontal
from partition.strategies.rows.tiles import Tiles

_ALL: tuple[Strategy, ...] = (
    Auto(),
    Runs(),
    Vertical(),
    VerticalPaper(),
    VerticalPaper(PaperParameters(seeded=SEEDED), "vertical-paper-seeded"),
    Sequential(),
    SequentialCount(),
    SequentialProfiled(),
    SequentialBalanced(),
    TwoStage(),
    KStage(),
    Horizontal(),
    Tiles(),
    BatchSplit(),
    BatchSplit("batch-split-paper", by_ratio=True),
    Replicated(),
    Hybrid(),
    Exact(),
    Exact("exact-siblings", Shape(siblings=True)),
    Exact("exact-vertical", Shape(contiguous=False), others=(Vertical(),)),
    Exact("exact-paper", Shape(siblings=True), published="123"),
    Exact("exact-paper-no-cache", Shape(siblings=True), published="13"),
    Exact("exact-paper-cache-first", Shape(siblings=True), published="213"),
    CoDeploy((Vertical(),)),
    Manual(),
)

STRATEGIES: Mapping[str, Strategy] = MappingProxyType({each.name: each for each in _ALL})
"""Name → strategy; the first is the default."""


def find_strategy(name: str) -> Strategy:
    """Return the strategy called `name`; raises `PartitionError` with all names if there is none.

    >>> find_strategy("sequential").name
    'sequential'
    """
    if name not in STRATEGIES:
        raise PartitionError(
            f"there is no strategy {name!r}; choose one of {', '.join(STRATEGIES)}"
        )
    return STRATEGIES[name]
