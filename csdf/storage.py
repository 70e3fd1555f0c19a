"""What a distribution of capacities gives, and what must change for more.

If a cycle of waiting firings holds the period, then every distribution that keeps the channels of
that cycle as they are, or smaller, has that period or a longer one. The same holds for a deadlock
and the cycle of its waits. So each look at a distribution yields a **conflict**: a period, and for
each of some channels a capacity, of which at least one must be reached to do better. Nothing else
is known, and nothing else is needed, to find the smallest distributions (`csdf.capacities`).

A capacity is raised as far as the cycle can feel it: in a deadlock by what the waiting firing
lacks; on a cycle of firings until the constraint between two of them becomes another one, since
constraints only see tokens in multiples of what both ends move together (`csdf.event_graph`).

Source: S. Stuijk, M. Geilen, T. Basten, "Throughput-buffering trade-off exploration for
cyclo-static and synchronous dataflow graphs", IEEE Transactions on Computers, 2008, for searching
along storage dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf import selftimed
from csdf.consistency import repetition_vector
from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.graph import Channel, Graph
from csdf.liveness import check_liveness, waiting_cycle
from csdf.lowered import Arc, Lowered, Origin, lower
from csdf.reverse_channels import mirrors
from csdf.throughput import Link, components, critical_cycle, overtaking
from csdf.untimed import Execution

LOWER_BOUND_STEPS = 10_000
"""Steps in which the smallest capacity of a channel by itself is sought."""

_ITERATIONS = 4
"""Whose tokens a channel with ample room can hold."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """No distribution that stays below `needed` on all its channels beats `period` (None: lives).

    `needed` is by place among the sized channels, as (place, capacity). If it is empty, no
    distribution at all does.
    """

    period: Fraction | None
    needed: tuple[tuple[int, int], ...]

    def holds(self, capacities: Sequence[int]) -> bool:
        """Whether it speaks of these capacities."""
        return all(capacities[place] < needed for place, needed in self.needed)


class Storage:
    """A graph of which some channels (`names`) are to be given capacities.

    `least` are capacities below which the graph deadlocks, channel by channel; `ample` are some
    that hardly ever hold anything up. `overtakes` tells whether firings may overtake each other.
    """

    def __init__(self, graph: Graph, channels: Sequence[str] | None = None) -> None:
        """`channels` are to be sized; by default all without a bound between different actors.

        Raises `CsdfError` if one of them does not exist or is a self-channel, and
        `InconsistentGraphError`, or `DeadlockError` if no capacities make the graph live.
        """
        self.names = tuple(unbounded(graph) if channels is None else dict.fromkeys(channels))
        for name in self.names:
            if name not in graph.channel:
                raise CsdfError(f"{name!r} is no channel of the graph")
            if graph.channel[name].source == graph.channel[name].target:
                raise CsdfError(f"{name!r} is a self-channel, which cannot be sized")
        self.graph = with_capacities(graph, dict.fromkeys(self.names))
        deadlock = check_liveness(self.graph)
        if deadlock is not None:
            raise DeadlockError(str(deadlock))
        by_name = repetition_vector(graph)
        self._repetitions = [by_name[actor.name] for actor in graph.actors]
        self._firings = [by_name[actor.name] * actor.phases for actor in graph.actors]
        self.least = tuple(self._alone(graph.channel[name]) for name in self.names)
        self.ample = tuple(
            capacity + _ITERATIONS * by_name[channel.source] * sum(channel.production)
            for capacity, channel in zip(
                self.least, (graph.channel[name] for name in self.names), strict=True
            )
        )
        room = dict(zip(self.names, self.least, strict=True))
        self._lowered = lower(with_capacities(graph, room))
        place = {name: i for i, name in enumerate(self.names)}
        # Arc → place of the channel whose free room it holds.
        self._place = {
            number: place[arc.channel.name]
            for number, arc in enumerate(self._lowered.arcs)
            if arc.origin is Origin.SPACE and arc.channel is not None and arc.channel.name in place
        }
        self.overtakes = bool(overtaking(self._lowered))
        self._live: dict[tuple[int, ...], Conflict | None] = {}

    @property
    def firings(self) -> int:
        """Of an iteration."""
        return sum(self._firings)

    def token_bytes(self, place: int) -> int:
        """The size of a token of the channel at `place`."""
        return self.graph.channel[self.names[place]].token_bytes

    def deadlock(self, capacities: tuple[int, ...]) -> Conflict | None:
        """None if the graph is live with these capacities, else what must change."""
        if capacities not in self._live:
            execution = Execution(self._with(capacities), self._firings)
            needed: dict[int, int] = {}
            if not execution.run():
                for _, arc, missing in waiting_cycle(execution):
                    if arc in self._place:
                        place = self._place[arc]
                        needed[place] = capacities[place] + missing
            complete = not execution.stuck
            self._live[capacities] = None if complete else Conflict(None, tuple(needed.items()))
        return self._live[capacities]

    def conflict(self, capacities: tuple[int, ...]) -> Conflict:
        """The period with these capacities (None: deadlock), and what must change for less.

        Raises `TooLargeError`.
        """
        stuck = self.deadlock(capacities)
        if stuck is not None:
            return stuck
        graph = self._with(capacities)
        if self.overtakes:
            return self._any_channel(graph, capacities)
        found = critical_cycle(graph, self._repetitions)
        needed: dict[int, int] = {}
        for link in found.links:
            if link.arc in self._place:
                place = self._place[link.arc]
                more = capacities[place] + _felt(graph.arcs[link.arc], link)
                needed[place] = min(needed.get(place, more), more)
        return Conflict(found.period, tuple(needed.items()))

    def _any_channel(self, graph: Lowered, capacities: tuple[int, ...]) -> Conflict:
        """Where firings overtake, nothing is known of why; so any channel may be the one."""
        period = Fraction(0)
        for part, members in components(graph):
            period = max(period, selftimed.period(part, [self._repetitions[a] for a in members]))
        channels = [self.graph.channel[name] for name in self.names]
        needed = [
            (place, capacities[place] + math.gcd(*channel.production, *channel.consumption))
            for place, channel in enumerate(channels)
        ]
        return Conflict(period, tuple(needed))

    def _with(self, capacities: Sequence[int]) -> Lowered:
        arcs = list(self._lowered.arcs)
        for number, place in self._place.items():
            arc = arcs[number]
            assert arc.channel is not None  # noqa: S101 (it holds the room of a channel)
            room = capacities[place] - arc.channel.initial_tokens
            arcs[number] = replace(arc, tokens=room)
        return replace(self._lowered, arcs=tuple(arcs))

    def _alone(self, channel: Channel) -> int:
        """The smallest capacity with which the channel and its two actors are live."""
        tokens = channel.initial_tokens
        if len(channel.production) == len(channel.consumption) == 1:
            put, taken = channel.production[0], channel.consumption[0]
            grain = math.gcd(put, taken)
            return max(tokens, put + taken - grain + tokens % grain)
        pair = replace(
            self.graph,
            actors=tuple(self.graph.actor[name] for name in (channel.source, channel.target)),
            channels=(replace(channel, capacity=tokens),),
        )
        repetitions = repetition_vector(pair)
        wanted = [repetitions[actor.name] * actor.phases for actor in pair.actors]
        execution = Execution(lower(pair, concurrency=False), wanted, LOWER_BOUND_STEPS)
        room = tokens
        try:
            while not execution.run():
                missing = sum(missing for _, arc, missing in waiting_cycle(execution) if arc == 1)
                execution.tokens[1] += missing
                room += missing
        except TooLargeError:
            return max(tokens, *channel.production, *channel.consumption)
        return room


def unbounded(graph: Graph) -> list[str]:
    """Channels between different actors that nothing bounds, nor are themselves a bound."""
    bounds = mirrors(graph)
    bounded = {channel.name for channel in bounds.values()}
    return [
        channel.name
        for channel in graph.channels
        if channel.source != channel.target
        and channel.capacity is None
        and channel.name not in bounded
        and channel.name not in bounds
    ]


def with_capacities(graph: Graph, room: Mapping[str, int | None]) -> Graph:
    """`graph` with these channels' capacities."""
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
    )
    return replace(graph, channels=channels)


def _felt(arc: Arc, link: Link) -> int:
    """By how many tokens more in `arc` the constraint of `link` becomes another one."""
    put = link.cycles[0] * sum(arc.production)
    taken = link.cycles[1] * sum(arc.consumption)
    before = _sum(arc.production, link.source_firing)
    needed = _sum(arc.consumption, link.target_firing + 1) - arc.tokens
    return int((needed - before - 1) % math.gcd(put, taken)) + 1


def _sum(rates: Sequence[int], firings: int) -> int:
    cycles, phases = divmod(firings, len(rates))
    return cycles * sum(rates) + sum(rates[:phases])
