"""Find the static orders of processors with the shortest period, by branch and bound.

A processor fires its actors one firing at a time, in an order that it repeats every iteration
(`csdf.execution.static_orders`; entries have no offsets here). A node of the search is a beginning
of each processor's order. In every completion, the processor executes its other firings between the
last one of the beginning and the first one of the next iteration. So consider the graph with the
beginning as a chain, closed by an actor that takes the time of the other firings. Its period is a
lower bound on the period of all completions, and if it deadlocks, they do too. The bound of
complete orders is their period. The node with the least bound is extended first, so the first
complete one is optimal: no other node in the queue has a smaller bound.

The search grows exponentially with the firings of an iteration. If the effort does not suffice, the
result is the best orders found so far, at first those of a simulation, and a lower bound.

Source: for branch and bound, A. H. Land, A. G. Doig, "An automatic method of solving discrete
programming problems", Econometrica, 1960.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.execution.simulation import static_orders
from csdf.execution.static_orders import order_channels, with_orders
from csdf.model.consistency import NODE_LIMIT, firings, repetition_vector, unrolled
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.throughput import throughput

EFFORT = 3000
"""Default of the largest number of beginnings of orders that are examined."""

Beginning = tuple[tuple[str, ...], ...]
"""The first entries of each processor's order, by processor."""


@dataclass(frozen=True, slots=True)
class BestOrders:
    """Static orders by processor, their `period`, and a proved lower bound on that of all orders.

    The orders are proved to be the best if `at_least` is the period.
    """

    orders: Mapping[str, Sequence[str]]
    period: Fraction
    at_least: Fraction

    @property
    def exact(self) -> bool:
        """Whether no orders have a shorter period."""
        return self.period == self.at_least


def best_orders(graph: Graph, processors: Mapping[str, str], effort: int = EFFORT) -> BestOrders:
    """Return static orders of the shortest period; `processors` maps actors to processors.

    Actors without a processor have their own. Raises as `csdf.simulate` and `csdf.throughput` do.

    >>> from csdf import Actor, Channel
    >>> actors = tuple(Actor(name, (Fraction(2),), 1) for name in "abc")
    >>> ends = ("x", "a", "b"), ("y", "b", "c")
    >>> channels = tuple(Channel(name, s, t, (1,), (1,), 0, 1) for name, s, t in ends)
    >>> found = best_orders(Graph("g", actors, channels), {"a": "p", "b": "p"})
    >>> found.orders, str(found.period), found.exact
    ({'p': ('a', 'b')}, '4', True)
    """
    for name in processors:
        if name not in graph.actor:
            raise CsdfError(f"{name!r} is on a processor, but is not an actor of the graph")
    return OrderSearch(graph, processors).best(effort)[0]


class OrderSearch:
    """The search for static orders of `graph`; `processors` maps actors to processors."""

    def __init__(self, graph: Graph, processors: Mapping[str, str]) -> None:
        self._graph, self._processors = graph, processors
        self._names = tuple(dict.fromkeys(processors.values()))
        self._bounds = _Bounds(graph, processors, self._names)
        self._start: Beginning = ((),) * len(self._names)

    def least(self) -> Fraction:
        """Return a lower bound on the period of all orders."""
        return self._bounds.least(self._start) or Fraction(0)

    def simulated(self) -> BestOrders:
        """Return the orders of a simulation."""
        first = static_orders(self._graph, self._processors)
        period = throughput(with_orders(self._graph, first)).period
        return BestOrders({p: tuple(order) for p, order in first.items()}, period, Fraction(0))

    def best(self, effort: int, below: Fraction | None = None) -> tuple[BestOrders, int]:
        """Return the best orders that were found, and what is left of `effort`.

        With `below`, the search is for a period below it: `at_least` is `below` if there is none.
        """
        best = self.simulated()
        most = best.period if below is None else min(best.period, below)
        numbers = itertools.count()
        queue = [(self.least(), 0, next(numbers), self._start)]
        while queue and queue[0][0] < most:
            if effort <= 0:
                return replace(best, at_least=queue[0][0]), 0
            _, depth, _, node = heapq.heappop(queue)
            for longer in self._bounds.extended(node):
                effort -= 1
                least = self._bounds.least(longer)
                if least is None or least >= most:
                    continue
                if self._bounds.complete(longer):
                    orders = dict(zip(self._names, longer, strict=True))
                    best, most = BestOrders(orders, least, Fraction(0)), least
                heapq.heappush(queue, (least, depth - 1, next(numbers), longer))
        return replace(best, at_least=most), effort


class _Bounds:
    """The lower bounds of beginnings, for the `names` of processors."""

    def __init__(self, graph: Graph, processors: Mapping[str, str], names: Sequence[str]) -> None:
        repetitions = repetition_vector(graph)
        if firings(graph, repetitions) > NODE_LIMIT:
            raise TooLargeError(f"an iteration has more than {NODE_LIMIT} firings to put in order")
        self._names = names
        alone = tuple(
            replace(actor, concurrency=1 if actor.name in processors else actor.concurrency)
            for actor in graph.actors
        )
        whole = {name: repetitions[name] for name in processors}
        self._graph = unrolled(replace(graph, actors=alone), whole)
        self._phases = {actor.name: actor.phases for actor in self._graph.actors}
        self._on = [[a for a, own in processors.items() if own == name] for name in names]
        self._work = [
            sum((t for a in own for t in self._graph.actor[a].execution_times), Fraction(0))
            for own in self._on
        ]

    def complete(self, node: Beginning) -> bool:
        """Return whether every processor's order is complete."""
        return self._incomplete(node) is None

    def extended(self, node: Beginning) -> list[Beginning]:
        """Return `node` with each next entry of the first processor whose order is incomplete."""
        place = self._incomplete(node)
        assert place is not None  # noqa: S101 (complete nodes are answers)
        order = node[place]
        return [
            (*node[:place], (*order, name), *node[place + 1 :])
            for name in self._on[place]
            if order.count(name) < self._phases[name]
        ]

    def least(self, node: Beginning) -> Fraction | None:
        """Return a lower bound on the period of all completions of `node`; None for a deadlock."""
        taken, channels, rests = set(self._graph.channel), list[Channel](), list[Actor]()
        for place, order in enumerate(node):
            if not order:
                continue
            rest = self._names[place]
            while rest in self._phases:
                rest += "'"
            numbered = [(name, order[:i].count(name)) for i, name in enumerate(order)]
            times = (self._graph.actor[name].execution_times[k] for name, k in numbered)
            rests.append(Actor(rest, (self._work[place] - sum(times, Fraction(0)),)))
            phases = {**self._phases, rest: 1}
            channels += order_channels(rest, [*numbered, (rest, 0)], phases, taken)
        chained = replace(
            self._graph,
            actors=(*self._graph.actors, *rests),
            channels=(*self._graph.channels, *channels),
        )
        try:
            period = throughput(chained).period
        except DeadlockError:
            return None
        return max([period, *self._work])

    def _incomplete(self, node: Beginning) -> int | None:
        for place, order in enumerate(node):
            if len(order) < sum(self._phases[name] for name in self._on[place]):
                return place
        return None
