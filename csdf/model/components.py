"""Strongly connected components of a graph: the parts in which firings can wait for themselves.

SciPy and NetworkX find them too, but take longer to import than most graphs to analyse.
"""

from __future__ import annotations

from collections.abc import Iterable

from csdf.model.lowered import Arc, Lowered


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
