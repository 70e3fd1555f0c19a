"""Convert graphs to NetworkX and back: a `MultiDiGraph` with the channels' names as edge keys.

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
    """Return `graph` as a `MultiDiGraph`, with the same order of actors and channels.

    >>> actors = Actor("a", (Fraction(2),)), Actor("b", (Fraction(3),))
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),))
    >>> to_networkx(graph).edges["a", "b", "c"]["production"]
    (1,)
    """
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
    """Return the graph of a `MultiDiGraph` such as `to_networkx` makes.

    Nodes need `execution_times`, edges `production` and `consumption`, as a list with one entry per
    phase or as one value for all phases; other attributes may be absent. Names become strings.
    Raises `GraphError`.

    >>> import networkx
    >>> made = networkx.MultiDiGraph(name="g")
    >>> made.add_node("a", execution_times=2)
    >>> made.add_node("b", execution_times=[1, 3])
    >>> made.add_edge("a", "b", key="c", production=2, consumption=[1, 1])
    'c'
    >>> from_networkx(made).channel["c"].consumption
    (1, 1)
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
