"""Strongly connected components, beside NetworkX."""

from __future__ import annotations

import networkx
from hypothesis import given

from csdf.model.components import components
from csdf.model.graph import Graph
from csdf.model.lowered import Origin, lower
from tests.csdf.graphs import consistent_graphs, graph


@given(consistent_graphs(max_actors=7, max_channels=12))
def test_they_are_those_that_networkx_finds(found: Graph) -> None:
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
