"""Express static orders of processors as channels, so that every analysis of graphs covers them.

A **static order** is a processor's list of firings for one period. The processor repeats it for
ever, one firing at a time. An entry with an **offset** l fires for iteration n − l in period n, so
a processor can alternate between early actors of one iteration and late ones of an older iteration
(a pipelined, or retimed, order). Only differences between offsets of one processor matter.

To express an order, each firing produces a token for the next one in the list, and the last one for
the first. The actors in the order are unrolled to one cycle of phases per iteration. With offsets,
the result is the graph in its state after the order's prologue (`csdf.execution.prologue`): the
same channels, with the tokens that they hold by then.

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
from csdf.model.consistency import NODE_LIMIT, firings, repetition_vector, unrolled
from csdf.model.graph import Channel, Graph

T = TypeVar("T")

LARGEST_OFFSET = 10**6
"""Largest offset that is accepted."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One firing of `actor` per period, for the iteration that is `offset` before the period's.

    With `phase`, it is a firing of that phase (counted from 0); other phases of the actor may be in
    another order or in none.

    >>> str(Entry("A", offset=1, phase=0))
    'A[0]@1'
    """

    actor: str
    offset: int = 0
    phase: int | None = None

    def __str__(self) -> str:
        """Return the text that `entry` reads: `A`, `A@1`, `A[0]` or `A[0]@1`."""
        phase = "" if self.phase is None else f"[{self.phase}]"
        return f"{self.actor}{phase}" + (f"@{self.offset}" if self.offset else "")


Orders = Mapping[str, Sequence["str | Entry"]]
"""Entries by processor; `entry` reads those that are text."""


@dataclass(frozen=True)
class Ordered:
    """A graph with static orders: `turns` are the names of the channels that express them.

    Its initial state is that in which each actor of the original graph has fired `fired` times, by
    name; 0 for all if no entry has an offset.
    """

    graph: Graph
    fired: Mapping[str, int]
    turns: frozenset[str]


def entry(text: str, graph: Graph) -> Entry:
    """Parse `A`, `A@1`, `A[0]` or `A[0]@1`; an actor with the name `text` takes precedence."""
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
    """Return the graph of `ordered`, which suffices for long-run properties such as the period.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph, throughput
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),))
    >>> throughput(graph).period, throughput(with_orders(graph, {"cpu": ["a", "b"]})).period
    (Fraction(3, 1), Fraction(5, 1))
    """
    return ordered(graph, orders).graph


def ordered(graph: Graph, orders: Orders) -> Ordered:
    """Return `graph` with static orders, a list of entries by processor.

    Each list is for one period, so an actor is in it as often as it fires in an iteration, or, if
    its entries name a phase, as often as that phase fires. Along the list, the offset of an actor's
    entries may fall by one, once, since its firings stay in order: `A@1, A` is the second firing of
    the previous iteration and then the first of this one. Actors and phases in no list have their
    own processor.

    Raises `CsdfError` if a list does not fit, `DeadlockError` if the entries never get past their
    offsets, `InconsistentGraphError`, and `TooLargeError`.

    >>> from fractions import Fraction
    >>> from csdf import Actor, Channel, Graph, latency
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),))
    >>> pipelined = ordered(graph, {"cpu": ["a", "b@1"]})
    >>> dict(pipelined.fired)
    {'a': 1, 'b': 0}
    >>> latency(pipelined, "a", "b").steady
    Fraction(10, 1)
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
    whole = _unrolled(graph, repetitions, slots)
    if any(slot.lag for order in slots.values() for slot in order):
        state = after_prologue(whole, slots)
        whole = _rotated(whole, state)
        slots = {
            processor: (*order[state.next[processor] :], *order[: state.next[processor]])
            for processor, order in slots.items()
        }
        fired = dict(state.fired)
    else:
        fired = dict.fromkeys(graph.actor, 0)
    phases = {actor.name: actor.phases for actor in whole.actors}
    channels = list(whole.channels)
    taken = set(whole.channel)
    for processor, order in slots.items():
        numbered = [(s.actor, (s.firing - fired[s.actor]) % phases[s.actor]) for s in order]
        channels += order_channels(processor, numbered, phases, taken)
    turns = frozenset(taken - set(whole.channel))
    return Ordered(Graph(graph.name, whole.actors, tuple(channels)), fired, turns)


def _slots(
    graph: Graph, repetitions: Mapping[str, int], orders: Mapping[str, Sequence[Entry]]
) -> dict[str, tuple[Slot, ...]]:
    """Return each processor's entries as slots."""
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
        raise CsdfError(f"the order of {processor!r} names {one.actor!r}, which is not an actor")
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
    """Return `graph` with the actors of `orders` unrolled to one cycle of phases per iteration.

    An actor all of whose firings are in one order gets a concurrency of 1.
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
        replace(actor, concurrency=1 if actor.name in alone else actor.concurrency)
        for actor in graph.actors
    )
    return unrolled(replace(graph, actors=actors), times)


def _rotated(graph: Graph, state: State) -> Graph:
    """Return `graph` with `state` as its initial state; each actor's next phase becomes phase 0."""
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


def order_channels(
    processor: str,
    order: Sequence[tuple[str, int]],
    phases: Mapping[str, int],
    taken: set[str],
) -> list[Channel]:
    """Return a channel for each pair of actors of which one directly follows the other.

    `order` has actors and their phases. The channel from the last to the first firing starts with a
    token. The names of the channels are added to `taken`.
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
