"""The plainest execution of a CSDF graph, to hold the fast algorithms to.

It shares no code with them: it reads `Graph` itself, fires one phase at a time, treats capacities
as what they are (places claimed at the start of a firing, given back at the end of the one that
reads), and stops a timed execution when a whole state has come back.
"""

from __future__ import annotations

from collections.abc import Mapping

from csdf.graph import Channel, Graph


class Untimed:
    """Channels' tokens and free places, and how often each actor has fired."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tokens = {c.name: c.initial_tokens for c in graph.channels}
        self.fired = {a.name: 0 for a in graph.actors}

    def phase(self, actor: str) -> int:
        return self.fired[actor] % self.graph.actor[actor].phases

    def lacking(self, actor: str) -> dict[tuple[str, bool], int]:
        """(channel, for space) → what is missing for the actor's next firing."""
        phase = self.phase(actor)
        found = {}
        for c in self.graph.channels:
            if c.target == actor and self.tokens[c.name] < c.consumption[phase]:
                found[c.name, False] = c.consumption[phase] - self.tokens[c.name]
            if c.source == actor and c.capacity is not None:
                free = c.capacity - self.tokens[c.name]
                if free < c.production[phase]:
                    found[c.name, True] = c.production[phase] - free
        return found

    def fire(self, actor: str) -> None:
        phase = self.phase(actor)
        for c in self.graph.channels:
            if c.target == actor:
                self.tokens[c.name] -= c.consumption[phase]
            if c.source == actor:
                self.tokens[c.name] += c.production[phase]
        self.fired[actor] += 1


def executes(graph: Graph, repetitions: Mapping[str, int]) -> bool:
    """Whether one iteration can be executed, firing whatever comes first."""
    wanted = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    state = Untimed(graph)
    while True:
        able = [a for a, fired in state.fired.items() if fired < wanted[a] and not state.lacking(a)]
        if not able:
            return state.fired == wanted
        state.fire(able[0])


def with_change(graph: Graph, channel: Channel) -> Graph:
    """The graph with one channel replaced by another of the same name."""
    replaced = tuple(channel if c.name == channel.name else c for c in graph.channels)
    return Graph(graph.name, graph.actors, replaced)
