"""Graph algorithms: components, topological order, reachable nodes and shortest paths.

NetworkX and SciPy have them too. But both take longer to import than most graphs take to analyse,
and SciPy's shortest paths are limited to 64 bits, where the lengths here are integers of any size.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TypeVar

from csdf.model.lowered import Arc, Lowered

Node = TypeVar("Node", bound=Hashable)

Leaving = Callable[[int], Iterable[tuple[int, int]]]
"""The edges that leave a node, as (target, length ≥ 0)."""


def shortest_path(
    leaving: Leaving,
    start: int,
    target: int,
    below: int | None = None,
    closed: Set[int] = frozenset(),
) -> int | None:
    """Return the length of a shortest path of at least one edge; None if there is no path.

    If `start` is also the target, that is the shortest cycle through it. Paths of length `below` or
    more do not count, nor do paths through one of the nodes `closed`. `leaving` is called once for
    each node that the search expands (Dijkstra's algorithm).
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


def topological_order(sources: Sequence[Sequence[int]]) -> tuple[list[int], list[bool]]:
    """Return the nodes in a topological order, and for each node whether it is not in the order.

    `sources` are the nodes from which edges lead to each node. A node on a cycle, or after one, has
    no place in the order (Kahn's algorithm).
    """
    missing = [len(own) for own in sources]
    targets: list[list[int]] = [[] for _ in sources]
    for target, own in enumerate(sources):
        for source in own:
            targets[source].append(target)
    order = [node for node, count in enumerate(missing) if count == 0]
    for node in order:  # grows meanwhile
        for target in targets[node]:
            missing[target] -= 1
            if missing[target] == 0:
                order.append(target)
    return order, [count > 0 for count in missing]


def reachable(targets: Callable[[Node], Iterable[Node]], starts: Iterable[Node]) -> set[Node]:
    """Return the nodes to which paths lead from `starts`, these included."""
    found = set(starts)
    queue = list(found)
    for node in queue:  # grows meanwhile
        for target in targets(node):
            if target not in found:
                found.add(target)
                queue.append(target)
    return found


def components(graph: Lowered) -> list[tuple[Lowered, list[int]]]:
    """Return the strongly connected components that contain a cycle.

    Each is a graph by itself, with the numbers that its actors have in `graph`.
    """
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
    """Return the nodes of each strongly connected component; edges are (source, target).

    The method is S. R. Kosaraju's: one depth-first search along the edges, one against them.
    """
    forth: list[set[int]] = [set() for _ in range(nodes)]
    back: list[set[int]] = [set() for _ in range(nodes)]
    for source, target in edges:
        forth[source].add(target)
        back[target].add(source)
    seen: set[int] = set()
    order = [node for start in range(nodes) for node in _postorder(start, forth, seen)]
    seen = set()
    found = [
        sorted(_postorder(start, back, seen)) for start in reversed(order) if start not in seen
    ]
    return sorted(found)


def _postorder(start: int, targets: list[set[int]], seen: set[int]) -> list[int]:
    """Return the nodes not yet `seen` that a depth-first search from `start` reaches, in postorder.

    They are added to `seen`.
    """
    if start in seen:
        return []
    seen.add(start)
    done, open_ = [], [(start, iter(targets[start]))]
    while open_:
        node, rest = open_[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            done.append(node)
            open_.pop()
        else:
            seen.add(following)
            open_.append((following, iter(targets[following])))
    return done


def _part(graph: Lowered, members: list[int], arcs: list[Arc]) -> Lowered:
    number = {actor: i for i, actor in enumerate(members)}
    return Lowered(
        tuple(graph.names[a] for a in members),
        tuple(graph.times[a] for a in members),
        tuple(replace(arc, source=number[arc.source], target=number[arc.target]) for arc in arcs),
    )
