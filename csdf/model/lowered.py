"""A graph in the form that the algorithms work on: numbers instead of names, one kind of channel.

A capacity becomes a reverse channel that starts with capacity − initial tokens, a bound on
overlapping firings a self-channel with one token per allowed firing. What is left are actors with
phases and unbounded channels; each channel remembers where it comes from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from csdf.errors import TooLargeError
from csdf.model.graph import Channel, Graph

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
