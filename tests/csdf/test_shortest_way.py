"""Shortest ways are those that networkx finds."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from csdf.model.components import shortest_way

EDGES = st.dictionaries(
    st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(0, 2**80), max_size=20
)


@given(EDGES, st.integers(0, 5), st.integers(0, 5), st.none() | st.integers(0, 2**81))
def test_a_way_is_as_short_as_there_is_one(
    edges: dict[tuple[int, int], int], start: int, target: int, below: int | None
) -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(6))
    graph.add_weighted_edges_from((a, b, length) for (a, b), length in edges.items())
    lengths = [
        edges[start, first] + nx.dijkstra_path_length(graph, first, target)
        for first in graph.successors(start)
        if nx.has_path(graph, first, target)
    ]
    wanted = min(lengths, default=None)
    if wanted is not None and below is not None and wanted >= below:
        wanted = None

    def leaving(node: int) -> list[tuple[int, int]]:
        return [(b, length) for (a, b), length in edges.items() if a == node]

    assert shortest_way(leaving, start, target, below) == wanted


def test_closed_nodes_are_not_passed() -> None:
    leaving = {0: [(1, 1), (2, 5)], 1: [(3, 1)], 2: [(3, 5)], 3: []}.__getitem__
    assert shortest_way(leaving, 0, 3) == 2
    assert shortest_way(leaving, 0, 3, closed={1}) == 10
