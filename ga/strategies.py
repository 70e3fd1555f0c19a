"""The registry of all strategies, by the names that users write."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ga.auto import Auto
from ga.hybrid import Hybrid
from ga.replicated import Replicated
from ga.vertical import Vertical
from ga.vertical_paper import VerticalPaper
from partition.errors import PartitionError
from partition.strategies.base import Strategy
from partition.strategies.batch_split import BatchSplit
from partition.strategies.co_deploy import CoDeploy
from partition.strategies.exact import Exact
from partition.strategies.exact_placement import Shape
from partition.strategies.horizontal import Horizontal
from partition.strategies.manual import Manual
from partition.strategies.sequential import Sequential
from partition.strategies.sequential_balanced import SequentialBalanced
from partition.strategies.sequential_count import SequentialCount
from partition.strategies.sequential_profiled import SequentialProfiled
from partition.strategies.stages import KStage, TwoStage
from partition.strategies.tiles import Tiles

_ALL: tuple[Strategy, ...] = (
    Auto(),
    Vertical(),
    VerticalPaper(),
    Sequential(),
    SequentialCount(),
    SequentialProfiled(),
    SequentialBalanced(),
    TwoStage(),
    KStage(),
    Horizontal(),
    Tiles(),
    BatchSplit(),
    Replicated(),
    Hybrid(),
    Exact(),
    Exact("exact-siblings", Shape(siblings=True)),
    Exact("exact-vertical", Shape(contiguous=False), others=(Vertical(),)),
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
