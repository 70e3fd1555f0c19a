"""The firings that static orders list, and the state of a graph in which orders are under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry of an order: `firing` of `actor`, counted within an iteration, `lag` iterations
    behind the processor's period.
    """

    actor: str
    firing: int
    lag: int


@dataclass(frozen=True)
class State:
    """The firings of each actor, the tokens of each channel, and each processor's next slot."""

    fired: Mapping[str, int]
    tokens: Mapping[str, int]
    next: Mapping[str, int]
