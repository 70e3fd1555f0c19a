"""Lower a graph to the form that the algorithms use: actors by number, and unbounded channels only.

A capacity becomes a reverse channel that starts with capacity − initial tokens. A bound on
concurrency becomes a self-channel with one token per firing that may be in progress. Each of these
channels, called arcs here, records what it stands for.

The module also has arrays of integers of any size: int64 where they fit, otherwise Python's own
integers (dtype object).
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
"""Integers of any size: int64 where they fit, otherwise Python's own (dtype object)."""

Indices = npt.NDArray[np.int64]
"""Numbers of firings, edges or actors."""

SAFE = 2**62
"""Integers below this leave room for one addition in int64."""

MAX_BITS = 2048
"""Size of the largest common denominator of execution times that is used."""


def readable(number: int) -> str:
    """Return a number in digits, or rounded if it has many."""
    return str(number) if abs(number) < 10**15 else f"about {Decimal(number):.2e}"


def integers(values: Iterable[int]) -> Integers:
    """Return an array of integers of any size."""
    listed = list(values)
    small = not listed or (min(listed) > -SAFE and max(listed) < SAFE)
    return np.array(listed, dtype=np.int64 if small else object)


def products(parts: Sequence[Integers], factors: Sequence[int]) -> Integers:
    """Return the concatenation of the parts, each multiplied by its factor."""
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
    """Return the concatenation of the parts, of which there may be none."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


class Origin(Enum):
    """The part of a graph that an arc stands for."""

    TOKENS = "tokens"
    SPACE = "space"
    CONCURRENCY = "concurrency"


@dataclass(frozen=True, slots=True)
class Arc:
    """A lowered channel; `channel` is its origin (None for a bound on concurrency)."""

    source: int
    target: int
    production: tuple[int, ...]
    consumption: tuple[int, ...]
    tokens: int
    origin: Origin
    channel: Channel | None


@dataclass(frozen=True)
class Lowered:
    """A lowered graph: actor a has `names[a]` and `times[a]`, one time per phase."""

    names: tuple[str, ...]
    times: tuple[tuple[Fraction, ...], ...]
    arcs: tuple[Arc, ...]


def moved(rates: Sequence[int], firings: int) -> int:
    """Return the tokens that the first `firings` firings move; both may be negative."""
    cycles, phases = divmod(firings, len(rates))
    return cycles * sum(rates) + sum(rates[:phases])


def lower(graph: Graph, *, concurrency: bool = True) -> Lowered:
    """Return `graph` with capacities, and bounds on concurrency, as arcs.

    With `concurrency=False` the latter are left out; they never cause a deadlock, so an untimed
    execution does not need them. Raises `TooLargeError` as `common_denominator` does.
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
    """Return the least common denominator of all times.

    Raises `TooLargeError` if it has more than `MAX_BITS` bits.
    """
    denominators: set[int] = set()
    for times in several:
        # Long lists are mostly repetitions of one object, so each object is looked at once.
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
