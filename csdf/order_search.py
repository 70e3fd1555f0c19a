"""Finds static orders for actors that are spread over processors, with a period as short as can be.

No order has a shorter period than what the graph needs with its actors one firing at a time, nor
than the time of the busiest processor. Which order comes closest is a hard problem. So there are
guesses, for longer and longer periods (`csdf.order_guesses`), each of them turned into an order
whose period is then computed exactly; and, as far as the effort goes, a search through all orders
of one iteration per period (`csdf.order_branching`). What is returned says what is proved of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.errors import CsdfError, DeadlockError
from csdf.graph import Graph
from csdf.order_branching import branch
from csdf.order_guesses import modulo_scheduled, packed
from csdf.order_problem import Problem, Turns, problem
from csdf.orders import Entry, with_orders
from csdf.simulation import static_orders
from csdf.throughput import throughput

EFFORT = 20_000_000
"""Constraints that are looked at until the search gives up."""

STRETCHES = tuple(Fraction(p, 100) for p in (100, 102, 105, 110, 120, 135, 150, 175, 200))
"""Periods for which guesses are made, relative to the least one that is possible."""


@dataclass(frozen=True)
class Found:
    """Orders (see `csdf.orders`), their exact period, and what is proved.

    No static order on these processors has a period below `at_least`; `best` tells that none with
    one iteration per period has one below `period`.
    """

    orders: Mapping[str, tuple[Entry, ...]]
    period: Fraction
    at_least: Fraction
    best: bool


def find_orders(graph: Graph, processors: Mapping[str, str], effort: int = EFFORT) -> Found:
    """The best orders found for `processors`: actor → the processor that it is on.

    Raises `CsdfError` if one of them is no actor, and as `csdf.expansion.expand` does.
    """
    for name, processor in processors.items():
        if name not in graph.actor:
            raise CsdfError(f"{name!r} is to run on {processor!r}, but is no actor of the graph")
    actors = tuple(
        replace(actor, concurrency=1) if actor.name in processors else actor
        for actor in graph.actors
    )
    graph = replace(graph, actors=actors)
    firings = problem(graph, processors)
    at_least = firings.least / firings.expansion.events.time_unit
    orders = {p: tuple(map(Entry, own)) for p, own in static_orders(graph, processors).items()}
    best = Found(orders, throughput(with_orders(graph, orders)).period, at_least, best=False)
    spent = 0
    for turns in _guesses(firings):
        if best.period == at_least or spent > effort:
            break
        spent += len(firings.waits)
        best = _better(graph, firings, best, turns)
    if best.period > at_least and spent < effort:
        limit = best.period * firings.expansion.events.time_unit
        searched = branch(firings, limit, effort - spent)
        if searched.turns is not None:
            best = _better(graph, firings, best, searched.turns)
        best = replace(best, best=searched.exhausted)
    return replace(best, best=best.best or best.period == at_least)


def _guesses(firings: Problem) -> Iterator[Turns]:
    if not firings.least:
        return
    for stretch in STRETCHES:
        ratio = firings.least * stretch
        clock = firings.clock(ratio)
        earliest = [int(value) for value in firings.relaxed(at_least=ratio).potentials]
        around = clock.circumference
        guesses = (
            packed(clock, earliest),
            packed(clock, [start % around for start in earliest]),
            modulo_scheduled(clock, firings.heights(ratio)),
        )
        for starts in guesses:
            turns = None if starts is None else clock.turns(starts)
            if turns is not None:
                yield turns


def _better(graph: Graph, firings: Problem, best: Found, turns: Turns) -> Found:
    """`best`, or these if their exact period is shorter."""
    bound = firings.relaxed(firings.turn_waits(turns)).ratio
    unit = firings.expansion.events.time_unit
    if bound is None or bound / unit >= best.period:
        return best
    names = [name for name in firings.expansion.actors for _ in firings.expansion.firings(name)]
    orders = {
        processor: tuple(
            Entry(names[v], offset - min(own for _, own in order)) for v, offset in order
        )
        for processor, order in turns.items()
    }
    try:
        period = throughput(with_orders(graph, orders)).period
    except DeadlockError:  # firings without a duration may wait for each other all the same
        return best
    return replace(best, orders=orders, period=period) if period < best.period else best
