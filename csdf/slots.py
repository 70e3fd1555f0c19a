"""Entries of static orders as firings, and the state of a graph between them."""

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
    """`fired` per actor, tokens per channel; `next` is, per processor, the slot that comes next."""

    fired: Mapping[str, int]
    tokens: Mapping[str, int]
    next: Mapping[str, int]
