"""Compute the repetition vector of a graph, or show that its rates contradict each other.

After one iteration every channel holds as many tokens as before. For a channel from a to b that
means q(a) × Σ production = q(b) × Σ consumption, where the repetition vector q counts full cycles
of phases. Walking from actor to actor along channels gives q up to a factor in each connected
component. A channel that closes a loop of the walk either agrees with q or proves the graph
inconsistent.

Source: E. A. Lee and D. G. Messerschmitt, "Synchronous data flow", Proceedings of the IEEE, 1987;
for cycles of phases Bilsen et al., 1996.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from csdf.errors import InconsistentGraphError, TooLargeError
from csdf.model.graph import Channel, Graph

SHOWN = 8
"""Channels of a loop whose rates a message lists one by one."""

NODE_LIMIT = 1_000_000
"""Firings of an iteration up to which analyses look at each of them."""

MAX_BITS = 10_000
"""Size of the largest repetition count that is computed."""


def repetition_vector(graph: Graph) -> dict[str, int]:
    """Return how many cycles of its phases each actor fires in one iteration, by name.

    The counts are the smallest in each connected component. Raises `InconsistentGraphError`, which
    names the channels and rates that contradict each other, and `TooLargeError` if the counts would
    have more than `MAX_BITS` bits.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("p", (Fraction(1),)), Actor("c", (Fraction(1), Fraction(1)))
    >>> repetition_vector(Graph("g", actors, (Channel("t", "p", "c", (2,), (3, 1)),)))
    {'p': 2, 'c': 1}
    """
    rate: dict[str, Fraction] = {}
    _parts(graph, rate)
    return {actor.name: int(rate[actor.name]) for actor in graph.actors}


def connected_parts(graph: Graph) -> list[list[str]]:
    """Return the actors of each part of a consistent graph that no channel joins to the others."""
    return _parts(graph, {})


def _parts(graph: Graph, rate: dict[str, Fraction]) -> list[list[str]]:
    """Give every actor its repetition count, and return the connected components."""
    touching: dict[str, list[_Link]] = {actor.name: [] for actor in graph.actors}
    for channel in graph.channels:
        link = _Link(channel, sum(channel.production), sum(channel.consumption))
        touching[channel.source].append(link)
        if channel.target != channel.source:
            touching[channel.target].append(link)
    reached_by: dict[str, Channel] = {}
    parts = []
    for actor in graph.actors:
        if actor.name not in rate:
            parts.append(_walk(actor.name, touching, rate, reached_by))
            _make_smallest(parts[-1], rate)
    return parts


class _Link(NamedTuple):
    """A channel, with the tokens that its ends produce and consume per cycle of phases."""

    channel: Channel
    put: int
    taken: int


def firings(graph: Graph, repetitions: Mapping[str, int]) -> int:
    """Return the number of phase firings of all actors in one iteration."""
    return sum(repetitions[actor.name] * actor.phases for actor in graph.actors)


def unrolled(graph: Graph, times: Mapping[str, int]) -> Graph:
    """Return `graph`, in which the cycle of phases of each actor is repeated `times[actor]` times.

    The repeated cycles become one cycle. Actors that `times` leaves out keep theirs.
    """
    actors = tuple(
        replace(actor, execution_times=actor.execution_times * times.get(actor.name, 1))
        for actor in graph.actors
    )
    channels = tuple(
        replace(
            channel,
            production=channel.production * times.get(channel.source, 1),
            consumption=channel.consumption * times.get(channel.target, 1),
        )
        for channel in graph.channels
    )
    return Graph(graph.name, actors, channels)


def _walk(
    start: str,
    touching: Mapping[str, list[_Link]],
    rate: dict[str, Fraction],
    reached_by: dict[str, Channel],
) -> list[str]:
    """Give every actor of the component of `start` a rate, and return these actors."""
    rate[start] = Fraction(1)
    component = [start]
    waiting = deque([start])
    while waiting:
        name = waiting.popleft()
        for channel, put, taken in touching[name]:
            forward = channel.source == name
            other = channel.target if forward else channel.source
            if other not in rate:
                rate[other] = rate[name] * (
                    Fraction(put, taken) if forward else Fraction(taken, put)
                )
                _check_size(max(rate[other].numerator, rate[other].denominator))
                reached_by[other] = channel
                component.append(other)
                waiting.append(other)
                continue
            source, target = rate[channel.source], rate[channel.target]
            # source × put = target × taken, in whole numbers, because there are many channels.
            moved = source.numerator * target.denominator * put
            if moved != target.numerator * source.denominator * taken:
                raise _clash(channel, reached_by, target / source)
    return component


def _make_smallest(component: list[str], rate: dict[str, Fraction]) -> None:
    denominator = 1
    for name in component:
        denominator = math.lcm(denominator, rate[name].denominator)
        _check_size(denominator)
    numerator = math.gcd(*(rate[name].numerator for name in component))
    scale = Fraction(denominator, numerator)
    # Each rate is in lowest terms, so scale × rate are integers without a common factor.
    for name in component:
        rate[name] *= scale
        _check_size(rate[name].numerator)


def _check_size(number: int) -> None:
    if number.bit_length() > MAX_BITS:
        raise TooLargeError(f"one iteration is more than 2^{MAX_BITS} firings of some actor")


def _clash(
    channel: Channel, reached_by: Mapping[str, Channel], fitting: Fraction
) -> InconsistentGraphError:
    """Return the error; `fitting` is the ratio production / consumption that would agree."""
    cycle = [channel, *_path(channel.source, channel.target, reached_by)]
    names = tuple(member.name for member in cycle)
    if len(cycle) == 1:
        return InconsistentGraphError(
            f"the graph is inconsistent: in one cycle of its phases actor {channel.source!r} puts "
            f"{sum(channel.production)} tokens into its self-channel {channel.name!r} "
            f"but takes {sum(channel.consumption)} out",
            names,
        )
    rates = "; ".join(
        f"{member.name!r} needs {_cycles(sum(member.consumption))} of {member.source!r} "
        f"for {sum(member.production)} of {member.target!r}"
        for member in map(_reduced, cycle[:SHOWN])
    )
    if len(cycle) > SHOWN:
        rates += f"; … {len(cycle) - SHOWN} more"
    what = "two channels" if len(cycle) == 2 else f"a loop of {len(cycle)} channels"
    return InconsistentGraphError(
        f"the graph is inconsistent: the rates of {what} contradict each other: {rates}. "
        f"They agree if, for example, {_change(channel, fitting)}",
        names,
    )


def _change(channel: Channel, fitting: Fraction) -> str:
    """Describe a change that makes the rates agree, at one end if integers allow it."""
    put, taken = sum(channel.production), sum(channel.consumption)
    if (taken * fitting).denominator == 1:
        return (
            f"a cycle of {channel.source!r} puts {taken * fitting} instead of {put} tokens "
            f"into {channel.name!r}"
        )
    if (put / fitting).denominator == 1:
        return (
            f"a cycle of {channel.target!r} takes {put / fitting} instead of {taken} tokens "
            f"out of {channel.name!r}"
        )
    return (
        f"cycles of {channel.source!r} and {channel.target!r} put {fitting.numerator} tokens into "
        f"{channel.name!r} and take {fitting.denominator} out, instead of {put} and {taken}"
    )


def _cycles(count: int) -> str:
    return "1 cycle" if count == 1 else f"{count} cycles"


def _reduced(channel: Channel) -> Channel:
    """Return the channel with one rate at each end, in lowest terms."""
    ratio = Fraction(sum(channel.production), sum(channel.consumption))
    return Channel(
        channel.name, channel.source, channel.target, (ratio.numerator,), (ratio.denominator,)
    )


def _path(source: str, target: str, reached_by: Mapping[str, Channel]) -> list[Channel]:
    """Return the channels of the walk between two actors."""

    def upwards(actor: str) -> list[tuple[str, Channel]]:
        steps = []
        while actor in reached_by:
            channel = reached_by[actor]
            steps.append((actor, channel))
            actor = channel.source if channel.target == actor else channel.target
        return steps

    first, second = upwards(source), upwards(target)
    while first and second and first[-1] == second[-1]:
        first.pop()
        second.pop()
    return [channel for _, channel in second] + [channel for _, channel in reversed(first)]
