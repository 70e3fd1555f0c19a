"""Bound the execution times of actors that have a slice of a processor's time wheel (TDMA).

A processor with time-division multiple access repeats a wheel of time W. An actor with a slice of
length s executes only in that part of every turn. In the worst case a firing of time t can start
just when its slice has ended. Then it waits W − s for each of the ⌈t / s⌉ slices that it needs, and
ends t + ⌈t / s⌉ × (W − s) later. A graph with these times is an upper bound: whatever the positions
of the slices, no firing ends later, because earlier tokens delay nothing in a dataflow graph.

Source: M. Bekooij, R. Hoes, O. Moreira et al., "Dataflow analysis for real-time embedded
multiprocessor system design", in Dynamic and Robust Streaming in and between Connected
Consumer-Electronic Devices, 2005.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.errors import CsdfError
from csdf.model.graph import Graph


@dataclass(frozen=True, slots=True)
class Slice:
    """The time that an actor has in each turn of its processor's wheel, and the time of a turn."""

    time: Fraction
    wheel: Fraction

    def worst(self, time: Fraction) -> Fraction:
        """Return the longest time from the start to the end of a firing that takes `time`."""
        return time + math.ceil(time / self.time) * (self.wheel - self.time)


def with_slices(graph: Graph, slices: Mapping[str, Slice]) -> Graph:
    """Return `graph` with the worst execution times of the actors in `slices`, by name.

    They fire one firing at a time. Actors that share a slice need a static order as well
    (`csdf.with_orders`).

    Raises `CsdfError` if a name is not an actor, or a slice is empty or longer than its wheel.

    >>> from csdf import Actor, throughput
    >>> graph = Graph("one", (Actor("a", (Fraction(5),)),), ())
    >>> str(throughput(with_slices(graph, {"a": Slice(Fraction(2), Fraction(10))})).period)
    '29'
    """
    for name, own in slices.items():
        if name not in graph.actor:
            raise CsdfError(f"a slice is given for {name!r}, which is not an actor")
        if not 0 < own.time <= own.wheel:
            raise CsdfError(
                f"actor {name!r} has {own.time} of every {own.wheel}; "
                "give a time above 0 and at most that of the wheel"
            )
    actors = tuple(
        replace(
            actor,
            execution_times=tuple(map(slices[actor.name].worst, actor.execution_times)),
            concurrency=1,
        )
        if actor.name in slices
        else actor
        for actor in graph.actors
    )
    return replace(graph, actors=actors)
