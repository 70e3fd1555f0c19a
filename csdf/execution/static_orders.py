"""Static orders: actors, or some of their phases, that share a processor or a link in turn.

A **static order** is a processor's list of firings for one period, repeated for ever; it fires
them one at a time, and in that order. The list of one period need not be one iteration's: an entry
with an **offset** l fires for iteration n − l in period n, so a processor can work on early actors
of one frame and late ones of an older frame in turn, as pipelines do. Offsets count within a
processor; adding the same number to all of its entries changes nothing.

An order is written into the graph as channels: each firing gives a token to the next in the list,
the last one to the first. All that is known of graphs then holds for the order, its exact period
above all. The actors concerned are unrolled to one cycle of phases per iteration. With offsets, the
graph is taken in the state after the order's prologue (`csdf.execution.prologue`): the same
channels, with the tokens that are in them by then.

Source: for orders as channels, N. Bambha et al., "Intermediate representations for design
automation of multiprocessor DSP systems", Design Automation for Embedded Systems, 2002.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.prologue import Slot, State, after_prologue
from csdf.model.consistency import NODE_LIMIT, firings, repetition_vector
from csdf.model.graph import Channel, Graph

T = TypeVar("T")

LARGEST_OFFSET = 10**6
"""Offsets beyond it are refused: nothing has so many iterations under way."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One firing of `actor` per period, for the iteration `offset` before the period's.

    With `phase`, only firings of that phase (counted from 0) stand in the order; other phases of
    the actor may be elsewhere, or on no processor at all.
    """

    actor: str
    offset: int = 0
    phase: int | None = None

    def __str__(self) -> str:
        """As `entry` reads it: `A`, `A@1`, `A[0]`, `A[0]@1`."""
        phase = "" if self.phase is None else f"[{self.phase}]"
        return f"{self.actor}{phase}" + (f"@{self.offset}" if self.offset else "")


Orders = Mapping[str, Sequence["str | Entry"]]
"""Processor → its entries; text is read by `entry`."""


@dataclass(frozen=True)
class Ordered:
    """A graph on processors: `graph` has the orders in it, as the channels called `turns`.

    It is in the state in which each actor has fired `fired` times. Where no entry has an offset,
    that is the initial state, and all are 0.
    """

    graph: Graph
    fired: Mapping[str, int]
    turns: frozenset[str]


def entry(text: str, graph: Graph) -> Entry:
    """The entry that is written as `A`, `A@1`, `A[0]` or `A[0]@1`; a whole name goes first."""
    if text in graph.actor:
        return Entry(text)
    name, at, number = text.rpartition("@")
    offset = 0
    if at and re.fullmatch(r"\d{1,9}", number):
        text, offset = name, int(number)
    if text in graph.actor:
        return Entry(text, offset)
    found = re.fullmatch(r"(.+)\[(\d{1,9})\]", text, re.DOTALL)
    return Entry(found[1], offset, int(found[2])) if found else Entry(text, offset)


def with_orders(graph: Graph, orders: Orders) -> Graph:
    """`ordered`'s graph: all that is needed for what holds in the long run."""
    return ordered(graph, orders).graph


def ordered(graph: Graph, orders: Orders) -> Ordered:
    """`graph` on processors.

    Each list is one period's, so an actor stands in it as often as it fires its phases in an
    iteration, or, if its entries name a phase, as often as that phase fires. Offsets of the entries
    of one actor may fall by one along the list, since its firings stay in order: `A@1, A` fires the
    second firing of the last iteration and the first of this one. Actors and phases in no list have
    a processor of their own.

    Raises `CsdfError` if a list does not fit, `DeadlockError` if the entries never get past their
    offsets, `InconsistentGraphError`, and `TooLargeError`.
    """
    repetitions = repetition_vector(graph)
    if firings(graph, repetitions) > NODE_LIMIT:
        raise TooLargeError(f"an iteration has more than {NODE_LIMIT} firings to put in order")
    entries = {
        processor: [entry(one, graph) if isinstance(one, str) else one for one in order]
        for processor, order in orders.items()
        if order
    }
    slots = _slots(graph, repetitions, entries)
    unrolled = _unrolled(graph, repetitions, slots)
    if any(slot.lag for order in slots.values() for slot in order):
        state = after_prologue(unrolled, slots)
        unrolled = _rotated(unrolled, state)
        slots = {
            processor: (*order[state.next[processor] :], *order[: state.next[processor]])
            for processor, order in slots.items()
        }
        fired = dict(state.fired)
    else:
        fired = dict.fromkeys(graph.actor, 0)
    phases = {actor.name: actor.phases for actor in unrolled.actors}
    channels = list(unrolled.channels)
    taken = set(unrolled.channel)
    for processor, order in slots.items():
        numbered = [(s.actor, (s.firing - fired[s.actor]) % phases[s.actor]) for s in order]
        channels += _order_channels(processor, numbered, phases, taken)
    turns = frozenset(taken - set(unrolled.channel))
    return Ordered(Graph(graph.name, unrolled.actors, tuple(channels)), fired, turns)


def _slots(
    graph: Graph, repetitions: Mapping[str, int], orders: Mapping[str, Sequence[Entry]]
) -> dict[str, tuple[Slot, ...]]:
    """Which firing of its actor each entry is."""
    place: dict[tuple[str, int | None], str] = {}
    numbered: dict[str, tuple[Slot, ...]] = {}
    for processor, order in orders.items():
        least = min(one.offset for one in order)
        series: dict[tuple[str, int | None], list[int]] = {}
        for i, one in enumerate(order):
            _check_name(graph, processor, one)
            series.setdefault((one.actor, one.phase), []).append(i)
        found: dict[int, Slot] = {}
        for (name, phase), places in series.items():
            other = place.setdefault((name, phase), processor)
            if other != processor:
                raise CsdfError(
                    f"{_what(name, phase)} is in the orders of both {other!r} and {processor!r}"
                )
            count = repetitions[name] * (graph.actor[name].phases if phase is None else 1)
            if len(places) != count:
                raise CsdfError(
                    f"the order of {processor!r} has {len(places)} firings of "
                    f"{_what(name, phase)}; an iteration has {count}"
                )
            lags = [order[i].offset - least for i in places]
            late = lags.count(lags[0])  # the last ones of an older iteration come first
            if lags != [lags[0]] * late + [lags[0] - 1] * (count - late):
                raise CsdfError(
                    f"in the order of {processor!r}, {_what(name, phase)} would not fire in its "
                    "own order: its offsets may fall by one along the list, once, and not rise"
                )
            for j, i in enumerate(places):
                firing = (j + count - late) % count
                if phase is not None:
                    firing = firing * graph.actor[name].phases + phase
                found[i] = Slot(name, firing, lags[j])
        numbered[processor] = tuple(found[i] for i in range(len(order)))
    for name, phase in place:
        if phase is not None and (name, None) in place:
            raise CsdfError(f"the orders have {name!r} both as a whole and by phase")
    return numbered


def _what(name: str, phase: int | None) -> str:
    return repr(name) if phase is None else f"phase {phase} of {name!r}"


def _check_name(graph: Graph, processor: str, one: Entry) -> None:
    if one.actor not in graph.actor:
        raise CsdfError(f"the order of {processor!r} names {one.actor!r}, which is no actor")
    phases = graph.actor[one.actor].phases
    if one.phase is not None and not 0 <= one.phase < phases:
        raise CsdfError(
            f"the order of {processor!r} names phase {one.phase} of {one.actor!r}, which has "
            f"{phases}, counted from 0"
        )
    if not 0 <= one.offset <= LARGEST_OFFSET:
        raise CsdfError(
            f"the order of {processor!r} has an offset of {one.offset} for {one.actor!r}; "
            f"it must be between 0 and {LARGEST_OFFSET}"
        )


def _unrolled(
    graph: Graph, repetitions: Mapping[str, int], orders: Mapping[str, Sequence[Slot]]
) -> Graph:
    """The actors of `orders` with one cycle of phases per iteration.

    Those that fire on one processor only fire one firing at a time.
    """
    places: dict[str, list[str]] = {}
    for processor, order in orders.items():
        for slot in order:
            places.setdefault(slot.actor, []).append(processor)
    times = {name: repetitions[name] for name in places}
    alone = {
        name
        for name, on in places.items()
        if len(set(on)) == 1 and len(on) == repetitions[name] * graph.actor[name].phases
    }
    actors = tuple(
        replace(
            actor,
            execution_times=actor.execution_times * times.get(actor.name, 1),
            concurrency=1 if actor.name in alone else actor.concurrency,
        )
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


def _rotated(graph: Graph, state: State) -> Graph:
    """`graph` in that state: every actor's first phase is the one that comes next."""
    turn = {actor.name: state.fired[actor.name] % actor.phases for actor in graph.actors}

    def turned(values: tuple[T, ...], actor: str) -> tuple[T, ...]:
        return values[turn[actor] :] + values[: turn[actor]]

    actors = tuple(
        replace(actor, execution_times=turned(actor.execution_times, actor.name))
        for actor in graph.actors
    )
    channels = tuple(
        replace(
            channel,
            production=turned(channel.production, channel.source),
            consumption=turned(channel.consumption, channel.target),
            initial_tokens=state.tokens[channel.name],
        )
        for channel in graph.channels
    )
    return Graph(graph.name, actors, channels)


def _order_channels(
    processor: str,
    order: Sequence[tuple[str, int]],
    phases: Mapping[str, int],
    taken: set[str],
) -> list[Channel]:
    """One channel per pair of actors of which one ever follows the other.

    `order` has actors and their phases; the firing at its end gives the token that is there at the
    start.
    """
    rates: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for i, (name, firing) in enumerate(order):
        other, after = order[(i + 1) % len(order)]
        if (name, other) not in rates:
            rates[name, other] = ([0] * phases[name], [0] * phases[other])
        rates[name, other][0][firing] = 1
        rates[name, other][1][after] = 1
    channels = []
    last = (order[-1][0], order[0][0])
    for (before, next_), (production, consumption) in rates.items():
        name = f"{processor}: {before} → {next_}"
        while name in taken:
            name += "'"
        taken.add(name)
        tokens = 1 if (before, next_) == last else 0
        channels.append(
            Channel(name, before, next_, tuple(production), tuple(consumption), tokens, None, 0)
        )
    return channels
