"""Graphs for NetworkX, and back: a `MultiDiGraph` whose edges are keyed by the channels' names.

Nodes have `execution_times` and `concurrency`; edges `production`, `consumption`,
`initial_tokens`, `capacity` and `token_bytes`, all as in `csdf.model.graph`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from csdf.errors import GraphError
from csdf.model.graph import Actor, Channel, Graph

if TYPE_CHECKING:
    import networkx


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """`graph`, with the same order of actors and channels."""
    import networkx  # noqa: PLC0415 (slow to import)

    made = networkx.MultiDiGraph(name=graph.name)
    for actor in graph.actors:
        made.add_node(
            actor.name, execution_times=actor.execution_times, concurrency=actor.concurrency
        )
    for number, channel in enumerate(graph.channels):
        made.add_edge(
            channel.source,
            channel.target,
            key=channel.name,
            number=number,
            production=channel.production,
            consumption=channel.consumption,
            initial_tokens=channel.initial_tokens,
            capacity=channel.capacity,
            token_bytes=channel.token_bytes,
        )
    return made


def from_networkx(made: networkx.MultiDiGraph) -> Graph:
    """What `to_networkx` makes, or the like: names are made strings, and one value stands for all
    phases. `execution_times` (as a list or one value) and both rates are needed, the rest is not.

    Raises `GraphError`.
    """
    actors = []
    for node, about in made.nodes(data=True):
        times = _several(about, "execution_times", f"node {node!r}")
        actors.append((node, [Fraction(time) for time in times], about.get("concurrency")))
    edges = sorted(
        made.edges(keys=True, data=True) if made.is_multigraph() else _keyed(made),
        key=lambda edge: edge[3].get("number", 0),
    )
    phases = {node: len(times) for node, times, _ in actors}
    rates: list[list[list[int]]] = []
    for source, target, key, about in edges:
        place = f"edge {key!r}"
        own = [_several(about, name, place) for name in ("production", "consumption")]
        for end, listed in zip((source, target), own, strict=True):
            phases[end] = max(phases[end], len(listed))
        rates.append([list(map(int, listed)) for listed in own])
    return Graph(
        str(made.graph.get("name", "")),
        tuple(
            Actor(str(node), _spread(times, phases[node]), bound) for node, times, bound in actors
        ),
        tuple(
            Channel(
                str(key),
                str(source),
                str(target),
                _spread(production, phases[source]),
                _spread(consumption, phases[target]),
                about.get("initial_tokens", 0),
                about.get("capacity"),
                about.get("token_bytes", 1),
            )
            for (source, target, key, about), (production, consumption) in zip(
                edges, rates, strict=True
            )
        ),
    )


def _keyed(made: networkx.DiGraph) -> list[tuple[Any, Any, str, dict[str, Any]]]:
    return [(a, b, about.get("name", f"{a} → {b}"), about) for a, b, about in made.edges(data=True)]


def _several(about: dict[str, Any], key: str, place: str) -> Sequence[Any]:
    if key not in about:
        raise GraphError(f"{place} has no attribute {key!r}")
    found = about[key]
    return found if isinstance(found, (list, tuple)) else [found]


def _spread(values: Sequence[Any], phases: int) -> tuple[Any, ...]:
    return tuple(values) * phases if len(values) == 1 else tuple(values)
