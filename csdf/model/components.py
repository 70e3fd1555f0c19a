"""Strongly connected components of a graph: the parts in which firings can wait for themselves.

SciPy and NetworkX find them too, but take longer to import than most graphs to analyse.

Shortest ways by Dijkstra's algorithm, in whole numbers of any size.

Floats of a schedule are exact and may exceed 64 bits, which SciPy's algorithms do not take.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Set

from csdf.model.lowered import Arc, Lowered

Leaving = Callable[[int], Iterable[tuple[int, int]]]
"""The edges that leave a node: (the node that they lead to, their length ≥ 0)."""


def shortest_way(
    leaving: Leaving,
    start: int,
    target: int,
    below: int | None = None,
    closed: Set[int] = frozenset(),
) -> int | None:
    """The length of the shortest way of at least one edge; None if there is none.

    With `start` as the target that is the shortest cycle through it. Ways that are not shorter
    than `below`, or that pass one of the nodes `closed`, do not count. `leaving` is asked once for
    each node that the search goes on from.
    """
    best: dict[int, int] = {}
    queue = [(0, start)]
    while queue:
        far, node = heapq.heappop(queue)
        if node == target and target in best:
            return far
        if far > best.get(node, far):
            continue
        for other, length in leaving(node):
            further = far + length
            if below is not None and further >= below:
                continue
            if further < best.get(other, further + 1) and other not in closed:
                best[other] = further
                heapq.heappush(queue, (further, other))
    return None


def components(graph: Lowered) -> list[tuple[Lowered, list[int]]]:
    """The strongly connected components that contain a cycle, with the numbers of their actors."""
    members = strongly_connected(len(graph.names), ((arc.source, arc.target) for arc in graph.arcs))
    label = {actor: number for number, actors in enumerate(members) for actor in actors}
    inside: dict[int, list[Arc]] = {}
    for arc in graph.arcs:
        if label[arc.source] == label[arc.target]:
            inside.setdefault(label[arc.source], []).append(arc)
    return [
        (_part(graph, members[number], arcs), members[number]) for number, arcs in inside.items()
    ]


def strongly_connected(nodes: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each component, by S. R. Kosaraju's two searches; edges are (source, target)."""
    forth: list[set[int]] = [set() for _ in range(nodes)]
    back: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in edges:
        forth[source].add(target)
        back[target].add(source)
    seen: set[int] = set()
    order = [actor for start in range(nodes) for actor in _search(start, forth, seen)]
    seen = set()
    found = [sorted(_search(start, back, seen)) for start in reversed(order) if start not in seen]
    return sorted(found)


def _search(start: int, leads_to: list[set[int]], seen: set[int]) -> list[int]:
    """What is reached from `start` and not `seen` yet; each after all that it leads to."""
    if start in seen:
        return []
    seen.add(start)
    done, open_ = [], [(start, iter(leads_to[start]))]
    while open_:
        actor, rest = open_[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            done.append(actor)
            open_.pop()
        else:
            seen.add(following)
            open_.append((following, iter(leads_to[following])))
    return done


def _part(graph: Lowered, members: list[int], arcs: list[Arc]) -> Lowered:
    number = {actor: i for i, actor in enumerate(members)}
    return Lowered(
        tuple(graph.names[a] for a in members),
        tuple(graph.times[a] for a in members),
        tuple(
            Arc(
                number[arc.source],
                number[arc.target],
                arc.production,
                arc.consumption,
                arc.tokens,
                arc.origin,
                arc.channel,
            )
            for arc in arcs
        ),
    )
