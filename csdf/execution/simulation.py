"""Simulate some iterations of a graph on processors, with exact times.

Every actor fires as soon as its tokens and places are there and its processor is free. A processor
(a device, or a link) runs one firing at a time. If several actors could fire on it, the one with
the oldest iteration goes first, as on the agents, then the one named first in the graph; or it
keeps to a static order. Actors without a processor only wait for tokens and places.

A link is an actor too: `with_links` puts one into a channel, which carries the tokens of each
firing in one go and takes time for it, on a processor that several channels may share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.shared_machine import IDEAL, Platform
from csdf.execution.simulation_engine import Run
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.whole_numbers import readable

FIRING_LIMIT = 2_000_000
"""Firings that are simulated at most."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: phase and iteration count from 0; `row` is its processor, or its actor."""

    actor: str
    phase: int
    iteration: int
    row: str
    start: Fraction
    end: Fraction


class Timeline:
    """What happened in a simulation: firings in the order of their starts."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._unit = run.unit

    @cached_property
    def firings(self) -> tuple[Firing, ...]:
        """Every firing, in the order of starts."""
        return tuple(map(self._firing, range(len(self._run.found))))

    @cached_property
    def completed(self) -> tuple[Fraction, ...]:
        """The time at which each iteration was complete."""
        return tuple(Fraction(end, self._unit) for end in self._run.completed)

    @property
    def end(self) -> Fraction:
        """The time at which the last firing ended."""
        return max(self.completed, default=Fraction(0))

    def of(self, actor: str) -> tuple[Firing, ...]:
        """Return the firings of `actor` in the order of starts; none if there is no such actor."""
        return tuple(map(self._firing, self._by_actor.get(actor, ())))

    def busy(self) -> dict[str, Fraction]:
        """Return the time of all firings of each row; overlapping ones count twice."""
        found: dict[str, int] = {}
        for (start, actor, _), end in zip(self._run.found, self._run.ended, strict=True):
            row = self._run.rows[actor]
            found[row] = found.get(row, 0) + end - start
        return {row: Fraction(ticks, self._unit) for row, ticks in found.items()}

    def worked(self) -> dict[str, Fraction]:
        """Return the execution times of each processor's firings and wake-ups.

        They do not depend on how long these took on a machine that the processor shares.
        """
        worked = self._run.worked()
        return {name: Fraction(ticks, self._unit) for name, ticks in worked.items()}

    @cached_property
    def _by_actor(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, (_, actor, _) in enumerate(self._run.found):
            found.setdefault(self._run.names[actor], []).append(number)
        return found

    def _firing(self, number: int) -> Firing:
        run, unit = self._run, self._unit
        start, actor, nth = run.found[number]
        return Firing(
            run.names[actor],
            nth % run.phases[actor],
            nth // run.per_iteration[actor],
            run.rows[actor],
            Fraction(start, unit),
            Fraction(run.ended[number], unit),
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A link that carries a channel: its processor, its time per firing, and that per token."""

    processor: str
    time: Fraction = Fraction(0)
    time_per_token: Fraction = Fraction(0)


def simulate(
    graph: Graph,
    iterations: int,
    processors: Mapping[str, str] | None = None,
    orders: Mapping[str, Sequence[str]] | None = None,
    platform: Platform = IDEAL,
) -> Timeline:
    """Simulate the first `iterations` of `graph`.

    `processors` maps actors to processors; `orders` gives processors a static order, the list of
    actors of one iteration, one name per firing; `platform` says what else is known of processors.
    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, and `CsdfError` if a name is
    unknown.
    """
    repetitions = repetition_vector(graph)
    total = iterations * sum(repetitions[a.name] * a.phases for a in graph.actors)
    if total > FIRING_LIMIT:
        raise TooLargeError(
            f"{readable(total)} firings are to be simulated; at most {FIRING_LIMIT} can be"
        )
    on = dict(processors or {})
    for processor, order in (orders or {}).items():
        on |= dict.fromkeys(order, processor)
    for name in on:
        if name not in graph.actor:
            raise CsdfError(f"{name!r} is to run on {on[name]!r}, but is no actor of the graph")
    run = Run(graph, iterations, repetitions, on, orders or {}, platform)
    run.all()
    return Timeline(run)


def static_orders(graph: Graph, processors: Mapping[str, str]) -> dict[str, list[str]]:
    """Return a static order per processor in which `graph` is live: that of a simulated iteration.

    It is not always the best order; finding the one of the shortest period is a hard problem.
    `csdf.model.static_orders.ordered` takes these orders. Raises as `simulate` does.
    """
    orders: dict[str, list[str]] = {processor: [] for processor in processors.values()}
    for firing in simulate(graph, 1, processors).firings:
        if firing.actor in processors:
            orders[firing.row].append(firing.actor)
    return orders


def with_links(graph: Graph, links: Mapping[str, Link]) -> tuple[Graph, dict[str, str]]:
    """Return `graph` with an actor in each of these channels, and the processors of those actors.

    A link carries what one firing produces in one firing of its own. A capacity bounds what is
    before, in and after the link together. Raises `CsdfError` if a channel is unknown, or a new
    name is already taken.
    """
    for name in links:
        if name not in graph.channel:
            raise CsdfError(f"{name!r} is to be carried by a link, but is no channel of the graph")
    actors, channels, on = list(graph.actors), [], {}
    for channel in graph.channels:
        if channel.name not in links:
            channels.append(channel)
            continue
        link = links[channel.name]
        rates = tuple(rate for rate in channel.production if rate)
        times = tuple(link.time + rate * link.time_per_token for rate in rates)
        carrier, size = f"{channel.name} (link)", channel.token_bytes
        on[carrier] = link.processor
        actors.append(Actor(carrier, times, 1))
        source, target, tokens = channel.source, channel.target, channel.initial_tokens
        sent = Channel(
            f"{channel.name} (sent)", source, carrier, channel.production, rates, 0, None, size
        )
        received = Channel(
            channel.name, carrier, target, rates, channel.consumption, tokens, None, size
        )
        channels += [sent, received]
        if channel.capacity is not None:
            free, back = channel.capacity - tokens, (channel.consumption, channel.production)
            channels.append(Channel(f"{channel.name} (room)", target, source, *back, free, None, 0))
    return Graph(graph.name, tuple(actors), tuple(channels)), on
