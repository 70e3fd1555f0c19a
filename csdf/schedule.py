"""When every firing starts: a schedule that repeats itself after the period, and static orders.

A **periodic schedule** gives each firing of an iteration a start time; firing k of iteration n
starts at start(k) + n × λ. The earliest such schedule at the graph's own period is as fast as
self-timed execution, and needs no more room in any channel than its capacity (`csdf.expansion`).

A **static order** is a processor's list of firings, repeated for ever: actors that share the
processor fire one at a time, and in that order. It is written into the graph as channels: each
firing gives a token to the next in the list, the last one to the first. All that is known of
graphs then holds for the order, its exact period above all. For that, the actors concerned are
unrolled to one cycle of phases per iteration.

Source: for orders as channels, N. Bambha et al., "Intermediate representations for design
automation of multiprocessor DSP systems", Design Automation for Embedded Systems, 2002.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.consistency import firings, repetition_vector
from csdf.errors import CsdfError, TooLargeError
from csdf.expansion import expand
from csdf.graph import Channel, Graph
from csdf.throughput import NODE_LIMIT


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actor → start times of its firings in iteration 0; those of iteration n are n × `period`
    later. The earliest start is 0.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]


def periodic_schedule(graph: Graph, period: Fraction | None = None) -> Schedule:
    """The earliest schedule with `period` (None: the shortest that the graph can keep).

    Raises as `csdf.expansion.expand` does.
    """
    found = expand(graph, period)
    starts = {name: tuple(map(found.start, found.firings(name))) for name in found.actors}
    return Schedule(found.period, starts)


def with_orders(graph: Graph, orders: Mapping[str, Sequence[str]]) -> Graph:
    """`graph` on processors: processor → the actors that it fires, one name per firing.

    Each list is one iteration's, so an actor stands in it as often as it fires its phases in one;
    actors in no list have a processor of their own. Raises `CsdfError` if a list does not fit,
    `InconsistentGraphError`, and `TooLargeError`.
    """
    repetitions = repetition_vector(graph)
    if firings(graph, repetitions) > NODE_LIMIT:
        raise TooLargeError(f"an iteration has more than {NODE_LIMIT} firings to put in order")
    _check(graph, repetitions, orders)
    ordered = {name for order in orders.values() for name in order}
    unrolled = {name: repetitions[name] if name in ordered else 1 for name in repetitions}
    actors = tuple(
        replace(
            actor,
            execution_times=actor.execution_times * unrolled[actor.name],
            concurrency=1 if actor.name in ordered else actor.concurrency,
        )
        for actor in graph.actors
    )
    channels = [
        replace(
            channel,
            production=channel.production * unrolled[channel.source],
            consumption=channel.consumption * unrolled[channel.target],
        )
        for channel in graph.channels
    ]
    phases = {actor.name: actor.phases for actor in actors}
    taken = set(graph.channel)
    for processor, order in orders.items():
        channels += _order_channels(processor, order, phases, taken)
    return Graph(graph.name, actors, tuple(channels))


def _check(
    graph: Graph, repetitions: Mapping[str, int], orders: Mapping[str, Sequence[str]]
) -> None:
    place: dict[str, str] = {}
    for processor, order in orders.items():
        for name in dict.fromkeys(order):
            if name not in graph.actor:
                raise CsdfError(f"the order of {processor!r} names {name!r}, which is no actor")
            if name in place:
                raise CsdfError(
                    f"actor {name!r} is in the orders of both {place[name]!r} and {processor!r}"
                )
            place[name] = processor
            wanted = repetitions[name] * graph.actor[name].phases
            if order.count(name) != wanted:
                raise CsdfError(
                    f"the order of {processor!r} has {order.count(name)} firings of {name!r}; "
                    f"an iteration has {wanted}"
                )


def _order_channels(
    processor: str, order: Sequence[str], phases: Mapping[str, int], taken: set[str]
) -> list[Channel]:
    """One channel per pair of actors of which one ever follows the other."""
    fired = dict.fromkeys(order, 0)
    numbers = []
    for name in order:
        numbers.append(fired[name])
        fired[name] += 1
    rates: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for i, name in enumerate(order):
        after = (i + 1) % len(order)
        pair = (name, order[after])
        if pair not in rates:
            rates[pair] = ([0] * phases[name], [0] * phases[order[after]])
        rates[pair][0][numbers[i]] = 1
        rates[pair][1][numbers[after]] = 1
    channels = []
    for (before, after_), (production, consumption) in rates.items():
        name = f"{processor}: {before} → {after_}"
        while name in taken:
            name += "'"
        taken.add(name)
        tokens = 1 if (before, after_) == (order[-1], order[0]) else 0
        channels.append(
            Channel(name, before, after_, tuple(production), tuple(consumption), tokens, None, 0)
        )
    return channels
