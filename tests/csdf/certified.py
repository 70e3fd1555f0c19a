"""What certificates claim, held to plain executions."""

from __future__ import annotations

from dataclasses import replace

from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf import oracle


def one_less(graph: Graph, name: str) -> Graph:
    """The graph with one place less in a channel, or one token where it has no capacity."""
    channel = graph.channel[name]
    if channel.capacity is None:
        smaller = replace(channel, initial_tokens=channel.initial_tokens - 1)
    else:
        smaller = replace(channel, capacity=channel.capacity - 1)
    return oracle.with_change(graph, smaller)


def deadlocks(graph: Graph) -> bool:
    """Whether it cannot execute an iteration."""
    return not oracle.executes(graph, repetition_vector(graph))
