"""Compute the slack of each actor: how much longer it may take without a longer period.

The **slack** of an actor is by how much any one of its firings may take longer, once per iteration,
before the period grows: the least sum of floats of any cycle through one of its firings
(`csdf.timing.expansion`). Actors on the critical cycle have no slack; an actor on no cycle has
unlimited slack. Where firings overlap, slack presumes that tokens still arrive in order.

Firings on cycles without floats are contracted to one node per strongly connected component, since
paths without floats connect them. For each other firing, a search finds the shortest cycle through
it. It leaves out cycles that are not shorter than the actor's best so far, and those through
firings of the actor that have been searched already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from csdf.errors import TooLargeError
from csdf.model.consistency import firings, repetition_vector
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import shortest_path, strongly_connected
from csdf.timing.expansion import Expansion, expand

WORK_LIMIT = 100_000_000
"""Constraints after which the search gives up."""

PER_FIRING = 20
"""Work per firing to make its constraints, at least."""

Leaving = Sequence[Mapping[int, int]]
"""The edges that leave each node, as target and least float."""


def slack(
    graph: Graph, work_limit: int = WORK_LIMIT, period: Fraction | None = None
) -> Mapping[str, Fraction | None]:
    """Return the slack of each actor, None if unlimited.

    `period` is the graph's period, if the caller has computed it. Raises as `expand` does, and
    `TooLargeError` if more than `work_limit` constraints would have to be searched.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> slack(Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),)))
    {'a': Fraction(1, 1), 'b': Fraction(0, 1)}
    """
    work = PER_FIRING * firings(graph, repetition_vector(graph))
    search = _Search(work_limit)
    search.spend(work)
    expansion = expand(graph, shortest=period)
    group, held = _groups(expansion)
    leaving = _between(expansion, group)
    found: dict[str, Fraction | None] = {}
    for actor in expansion.actors:
        own = list(expansion.firings(actor))
        if any(group[firing] in held for firing in own):
            found[actor] = Fraction(0)
            continue
        least = search.shortest_cycle(leaving, [group[firing] for firing in own])
        found[actor] = None if least is None else Fraction(least, expansion.unit)
    return found


def _groups(expansion: Expansion) -> tuple[list[int], set[int]]:
    """Return the node of each firing, and the nodes that are on a cycle without floats."""
    tight = [
        (source, target)
        for source, own in enumerate(expansion.leaving)
        for target, float_ in own
        if float_ == 0
    ]
    members = strongly_connected(len(expansion.leaving), tight)
    group = [0] * len(expansion.leaving)
    for number, own in enumerate(members):
        for firing in own:
            group[firing] = number
    held = {number for number, own in enumerate(members) if len(own) > 1}
    held |= {group[source] for source, target in tight if source == target}
    return group, held


def _between(expansion: Expansion, group: Sequence[int]) -> Leaving:
    """Return the least floats between nodes of the same strongly connected component."""
    nodes = 1 + max(group, default=-1)
    least: list[dict[int, int]] = [{} for _ in range(nodes)]
    for source, own in enumerate(expansion.leaving):
        leads = least[group[source]]
        for target, float_ in own:
            if float_ < leads.get(group[target], float_ + 1):
                leads[group[target]] = float_
    edges = ((source, target) for source, leads in enumerate(least) for target in leads)
    part = [0] * nodes
    for number, members in enumerate(strongly_connected(nodes, edges)):
        for node in members:
            part[node] = number
    return [
        {target: float_ for target, float_ in leads.items() if part[target] == part[source]}
        for source, leads in enumerate(least)
    ]


class _Search:
    def __init__(self, limit: int) -> None:
        self._limit = self._left = limit

    def spend(self, work: int) -> None:
        """Count work. Raises `TooLargeError` if it exceeds the limit."""
        self._left -= work
        if self._left < 0:
            raise TooLargeError(
                f"finding the slack of all actors takes more than {self._limit} steps"
            )

    def shortest_cycle(self, leaving: Leaving, nodes: Sequence[int]) -> int | None:
        """Return the length of a shortest cycle through one of `nodes`; None if there is none."""

        def spending(node: int) -> Iterable[tuple[int, int]]:
            self.spend(len(leaving[node]) + 1)
            return leaving[node].items()

        best = _round(leaving, nodes)
        done: set[int] = set()
        for node in nodes:
            found = shortest_path(spending, node, node, best, done)
            best = best if found is None else found
            done.add(node)
        return best


def _round(leaving: Leaving, nodes: Sequence[int]) -> int | None:
    """Return the length of the cycle of an actor's firings, if each waits for the one before."""
    around = [leaving[a].get(b) for a, b in pairwise([*nodes, nodes[0]])]
    return None if None in around else sum(one for one in around if one is not None)
