"""A graph in the form that the algorithms work on: numbers instead of names, one kind of channel.

A capacity becomes a reverse channel that starts with capacity − initial tokens, a bound on
overlapping firings a self-channel with one token per allowed firing. What is left are actors with
phases and unbounded channels; each channel remembers where it comes from.

Arrays of whole numbers of any size: int64 where they fit, else Python's own (dtype object).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from csdf.errors import TooLargeError
from csdf.model.graph import Channel, Graph

Integers = npt.NDArray[Any]
"""Whole numbers: int64 where they fit, else Python's own (dtype object)."""

Indices = npt.NDArray[np.int64]
"""Numbers of firings, edges or actors."""

SAFE = 2**62
"""What int64 can hold with room for one addition."""


def readable(number: int) -> str:
    """In digits, or roughly if those are many."""
    return str(number) if abs(number) < 10**15 else f"about {Decimal(number):.2e}"


def integers(values: Iterable[int]) -> Integers:
    """An array of whole numbers of any size."""
    listed = list(values)
    small = not listed or (min(listed) > -SAFE and max(listed) < SAFE)
    return np.array(listed, dtype=np.int64 if small else object)


def products(parts: Sequence[Integers], factors: Sequence[int]) -> Integers:
    """Each part × its factor, joined."""
    values = joined(parts)
    if not len(values):
        return values
    largest = max(abs(int(values.min())), abs(int(values.max())))
    if max(1, largest) * max(map(abs, factors)) >= SAFE:
        values = values.astype(object)
    factor = np.repeat(integers(factors).astype(values.dtype), [len(part) for part in parts])
    found: Integers = values * factor
    return found


def joined(parts: Sequence[Integers]) -> Integers:
    """All parts, one after the other."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


MAX_BITS = 2048
"""Size of a common denominator of all times beyond which no analysis could use it."""


class Origin(Enum):
    """What a lowered channel stands for."""

    TOKENS = "tokens"
    SPACE = "space"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class Arc:
    """A lowered channel. `channel` is the one it comes from (None for a bound on concurrency)."""

    source: int
    target: int
    production: tuple[int, ...]
    consumption: tuple[int, ...]
    tokens: int
    origin: Origin
    channel: Channel | None


@dataclass(frozen=True)
class Lowered:
    """Actors by number: `names[a]`, `times[a]` (one per phase); and the arcs between them."""

    names: tuple[str, ...]
    times: tuple[tuple[Fraction, ...], ...]
    arcs: tuple[Arc, ...]


def moved(rates: Sequence[int], firings: int) -> int:
    """Return the tokens that the first `firings` firings move; both may be negative."""
    cycles, phases = divmod(firings, len(rates))
    return cycles * sum(rates) + sum(rates[:phases])


def lower(graph: Graph, *, concurrency: bool = True) -> Lowered:
    """`graph` without capacities and, if `concurrency`, without bounds on overlap.

    Where time plays no part, `concurrency=False` leaves those bounds out: they never block for
    good. Raises `TooLargeError` where times have no `common_denominator`.
    """
    times = tuple(actor.execution_times for actor in graph.actors)
    common_denominator(times)
    number = {actor.name: i for i, actor in enumerate(graph.actors)}
    arcs = []
    for channel in graph.channels:
        source, target = number[channel.source], number[channel.target]
        produced, consumed = channel.production, channel.consumption
        tokens = channel.initial_tokens
        arcs.append(Arc(source, target, produced, consumed, tokens, Origin.TOKENS, channel))
        if channel.capacity is not None:
            space = channel.capacity - tokens
            arcs.append(Arc(target, source, consumed, produced, space, Origin.SPACE, channel))
    for actor in graph.actors:
        if concurrency and actor.concurrency is not None:
            own, ones = number[actor.name], (1,) * actor.phases
            arcs.append(Arc(own, own, ones, ones, actor.concurrency, Origin.CONCURRENCY, None))
    return Lowered(tuple(number), times, tuple(arcs))


def common_denominator(several: Iterable[Sequence[Fraction]]) -> int:
    """What makes all times whole numbers when they are multiplied by it.

    Raises `TooLargeError` where it would have more than `MAX_BITS` bits.
    """
    denominators: set[int] = set()
    for times in several:
        # Long lists are mostly repetitions of one object; what it says is looked up once.
        denominators.update(time.denominator for time in {id(t): t for t in times}.values())
    common = 1
    for one in denominators:
        common = math.lcm(common, one)
        if common.bit_length() > MAX_BITS:
            raise TooLargeError(
                f"the execution times' denominators have no common multiple below 2^{MAX_BITS}; "
                "round the times"
            )
    return common
