"""The graph algorithms find what NetworkX finds."""

from __future__ import annotations

import networkx
from hypothesis import given
from hypothesis import strategies as st

from csdf.model.graph import Graph
from csdf.model.graph_algorithms import (
    components,
    reachable,
    shortest_path,
    topological_order,
)
from csdf.model.lowered import Origin, lower
from tests.csdf.graphs import consistent_graphs, graph


@given(consistent_graphs(max_actors=7, max_channels=12))
def test_components_are_those_that_networkx_finds(found: Graph) -> None:
    lowered = lower(found)
    whole = networkx.MultiDiGraph()
    whole.add_nodes_from(range(len(lowered.names)))
    whole.add_edges_from((arc.source, arc.target) for arc in lowered.arcs)
    expected = {
        tuple(sorted(part)): whole.subgraph(part).number_of_edges()
        for part in networkx.strongly_connected_components(whole)
        if whole.subgraph(part).number_of_edges()
    }
    parts = components(lowered)
    assert {tuple(members): len(part.arcs) for part, members in parts} == expected
    for part, members in parts:
        assert part.names == tuple(lowered.names[actor] for actor in members)
        assert part.times == tuple(lowered.times[actor] for actor in members)
        for arc in part.arcs:
            if arc.origin is Origin.TOKENS:
                assert arc.channel is not None
                ends = part.names[arc.source], part.names[arc.target]
                assert ends == (arc.channel.source, arc.channel.target)


def test_a_ring_of_thousands_of_actors() -> None:
    """No recursion."""
    size = 5_000
    names = [f"a{i}" for i in range(size)]
    ring = [(names[i - 1], name, (1,), (1,), i == 0) for i, name in enumerate(names)]
    found = components(lower(graph(dict.fromkeys(names, (1,)), *ring, concurrency=None)))
    assert [len(members) for _, members in found] == [size]


EDGES = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(0, 2**80), max_size=20
)


@given(EDGES, st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(0, 2**81))
def test_a_path_is_as_short_as_there_is_one(
    edges: dict[tuple[int, int], int], start: int, target: int, below: int | None
) -> None:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(6))
    graph.add_weighted_edges_from((a, b, length) for (a, b), length in edges.items())
    lengths = [
        edges[start, first] + networkx.dijkstra_path_length(graph, first, target)
        for first in graph.successors(start)
        if networkx.has_path(graph, first, target)
    ]
    wanted = min(lengths, default=None)
    if wanted is not None and below is not None and wanted >= below:
        wanted = None

    def leaving(node: int) -> list[tuple[int, int]]:
        return [(b, length) for (a, b), length in edges.items() if a == node]

    assert shortest_path(leaving, start, target, below) == wanted


def test_closed_nodes_are_not_passed() -> None:
    leaving = {0: [(1, 1), (2, 5)], 1: [(3, 1)], 2: [(3, 5)], 3: []}.__getitem__
    assert shortest_path(leaving, 0, 3) == 2
    assert shortest_path(leaving, 0, 3, closed={1}) == 10


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16))
def test_a_topological_order_has_all_nodes_that_are_not_on_or_after_a_cycle(
    edges: set[tuple[int, int]],
) -> None:
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(8))
    graph.add_edges_from(edges)
    order, without_place = topological_order([sorted(graph.pred[node]) for node in range(8)])
    cyclic = {node for cycle in networkx.simple_cycles(graph) for node in cycle}
    behind = cyclic.union(*(networkx.descendants(graph, node) for node in cyclic))
    assert {node for node in range(8) if without_place[node]} == behind
    assert sorted([*order, *behind]) == list(range(8))
    place = {node: i for i, node in enumerate(order)}
    assert all(place[a] < place[b] for a, b in edges if b in place)
    assert reachable(graph.successors, [0]) == {0} | networkx.descendants(graph, 0)
