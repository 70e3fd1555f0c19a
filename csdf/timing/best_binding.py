"""Find the binding of actors to processors with the shortest period, by branch and bound.

A **binding** gives each actor a processor, which fires its actors one firing at a time in a static
order (`csdf.timing.best_orders`). Actors may take different times on different processors, and may
be unable to run on some. Channels take no time; `csdf.with_links` adds what they take.

A node of the search binds the first few actors, in descending order of their work. No completion
has a shorter period than the largest of

- the work that is bound to one processor;
- the bound work and the least work of all other actors, divided by the number of processors;
- for each other actor, the least work of a processor after the actor is added;
- the period of the graph in which each actor takes its least times, one firing at a time.

Processors on which all actors take the same times are interchangeable, so of those without an actor
only the first is tried. The node with the least bound is extended first. A complete node's bound is
that of all static orders; then the orders are searched, and only those count that beat the best
period so far. The number of nodes grows exponentially with the number of actors.

Source: for bindings and static orders of dataflow graphs, S. Stuijk, T. Basten, M. C. W. Geilen, H.
Corporaal, "Multiprocessor resource allocation for throughput-constrained synchronous dataflow
graphs", DAC 2007.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.errors import CsdfError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.best_orders import EFFORT, BestOrders, OrderSearch
from csdf.timing.throughput import throughput

Times = Mapping[str, Sequence[Fraction]]
"""Execution times of each phase on a processor, by actor; others cannot run there."""


@dataclass(frozen=True, slots=True)
class BestBinding:
    """The processor of each actor, and the static orders, their period and its lower bound.

    `graph` has the execution times that actors have there. The lower bound is of all bindings.
    """

    processors: Mapping[str, str]
    graph: Graph
    orders: BestOrders


def best_binding(
    graph: Graph, processors: Sequence[str] | Mapping[str, Times], effort: int = EFFORT
) -> BestBinding:
    """Return the binding of all actors to `processors` with the shortest period.

    `processors` are names, for processors on which actors take the times of `graph`, or the times
    by processor. `effort` bounds the number of bindings and of beginnings of orders, examined
    together. Raises as `csdf.best_orders` does, and `CsdfError` if an actor can run nowhere, or has
    not a time for each of its phases.

    >>> from csdf import Actor
    >>> actors = tuple(Actor(name, (Fraction(t),), 1) for name, t in (("a", 3), ("b", 2), ("c", 2)))
    >>> found = best_binding(Graph("g", actors, ()), ["p", "q"])
    >>> found.processors, str(found.orders.period), found.orders.exact
    ({'a': 'p', 'b': 'q', 'c': 'q'}, '4', True)
    """
    search = _Search(graph, _tables(graph, processors))
    best = search.first()
    numbers = itertools.count()
    start: tuple[int, ...] = ()
    queue = [(search.least(start), 0, next(numbers), start)]
    while queue and queue[0][0] < best.orders.period:
        if effort <= 0:
            return _bounded(best, queue[0][0])
        least, depth, _, node = heapq.heappop(queue)
        if len(node) == len(graph.actors):
            placed = search.placed(node)
            orders, effort = OrderSearch(placed.graph, placed.processors).best(
                effort, best.orders.period
            )
            if orders.period < best.orders.period:
                best = replace(placed, orders=orders)
            elif orders.at_least < best.orders.period:  # for want of effort
                rest = [orders.at_least, *(one[0] for one in queue)]
                return _bounded(best, min(rest))
            continue
        for longer in search.extended(node):
            effort -= 1
            bound = max(least, search.least(longer))
            if bound < best.orders.period:
                heapq.heappush(queue, (bound, depth - 1, next(numbers), longer))
    return _bounded(best, best.orders.period)


def _bounded(best: BestBinding, at_least: Fraction) -> BestBinding:
    """Return `best` with this lower bound, or its period if that is less."""
    return replace(best, orders=replace(best.orders, at_least=min(at_least, best.orders.period)))


def _tables(
    graph: Graph, processors: Sequence[str] | Mapping[str, Times]
) -> Mapping[str, Mapping[str, tuple[Fraction, ...]]]:
    """Return the times by processor and actor; raises `CsdfError` if they do not fit `graph`."""
    if not processors:
        raise CsdfError("there is no processor to bind actors to")
    if not isinstance(processors, Mapping):
        own = {actor.name: actor.execution_times for actor in graph.actors}
        return dict.fromkeys(processors, own)
    for processor, times in processors.items():
        for name, listed in times.items():
            if name not in graph.actor:
                raise CsdfError(f"{processor!r} has times for {name!r}, which is not an actor")
            if len(listed) != (phases := graph.actor[name].phases):
                raise CsdfError(
                    f"{processor!r} has {len(listed)} times for actor {name!r}, which has "
                    f"{phases} phase{'s' * (phases != 1)}"
                )
    for name in graph.actor:
        if not any(name in times for times in processors.values()):
            raise CsdfError(f"actor {name!r} can run on none of the processors")
    return {p: {a: tuple(own) for a, own in times.items()} for p, times in processors.items()}


class _Search:
    """Bounds of nodes: processor numbers of the first few of `_actors`."""

    def __init__(
        self, graph: Graph, tables: Mapping[str, Mapping[str, tuple[Fraction, ...]]]
    ) -> None:
        self._graph, self._tables, self._names = graph, tables, tuple(tables)
        repetitions = repetition_vector(graph)
        self._work = {
            name: [
                repetitions[name] * sum(own[name], Fraction(0)) if name in own else None
                for own in tables.values()
            ]
            for name in graph.actor
        }
        self._least_work = {
            name: min(one for one in own if one is not None) for name, own in self._work.items()
        }
        self._actors = sorted(graph.actor, key=lambda name: -self._least_work[name])
        kinds = [tuple(sorted(own.items())) for own in tables.values()]
        self._kinds = [kinds.index(kind) for kind in kinds]
        self._period = throughput(self._quickest()).period

    def first(self) -> BestBinding:
        """Return a binding to start from: each actor where the load is least with it."""
        node: tuple[int, ...] = ()
        for _ in self._actors:
            node = min(self.extended(node), key=lambda longer: max(self._loads(longer)))
        placed = self.placed(node)
        return replace(placed, orders=OrderSearch(placed.graph, placed.processors).simulated())

    def placed(self, node: Sequence[int]) -> BestBinding:
        """Return the binding of a complete node, without orders."""
        at = {name: self._names[p] for name, p in zip(self._actors, node, strict=True)}
        actors = tuple(
            replace(actor, execution_times=self._tables[at[actor.name]][actor.name])
            for actor in self._graph.actors
        )
        graph = replace(self._graph, actors=actors)
        nothing = BestOrders({}, Fraction(0), Fraction(0))
        return BestBinding({name: at[name] for name in self._graph.actor}, graph, nothing)

    def extended(self, node: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield `node` with each processor for the next actor, one of those that are alike."""
        seen = set[int]()
        for place, work in enumerate(self._work[self._actors[len(node)]]):
            if work is None:
                continue
            if place not in node:
                if self._kinds[place] in seen:
                    continue
                seen.add(self._kinds[place])
            yield (*node, place)

    def least(self, node: tuple[int, ...]) -> Fraction:
        """Return a lower bound on the period of all completions of `node`."""
        loads = self._loads(node)
        if len(node) == len(self._actors):
            placed = self.placed(node)
            return OrderSearch(placed.graph, placed.processors).least()
        rest = self._actors[len(node) :]
        together = sum((*loads, *(self._least_work[name] for name in rest)), Fraction(0))
        alone = (
            min(
                load + own
                for load, own in zip(loads, self._work[name], strict=True)
                if own is not None
            )
            for name in rest
        )
        return max([self._period, together / len(loads), *loads, *alone])

    def _loads(self, node: Sequence[int]) -> list[Fraction]:
        loads = [Fraction(0)] * len(self._names)
        for name, place in zip(self._actors, node, strict=False):
            loads[place] += self._work[name][place] or 0
        return loads

    def _quickest(self) -> Graph:
        """Return the graph in which each phase takes its least time, one firing at a time."""
        actors = []
        for actor in self._graph.actors:
            each = [own[actor.name] for own in self._tables.values() if actor.name in own]
            times = tuple(map(min, zip(*each, strict=True)))
            actors.append(replace(actor, execution_times=times, concurrency=1))
        return replace(self._graph, actors=tuple(actors))
