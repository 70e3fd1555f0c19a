"""Scenario-aware dataflow (FSM-SADF): graphs of which a state machine chooses one per iteration.

Each state of the machine has a scenario, and each scenario a graph. In a run of the machine every
state executes one iteration of its scenario's graph. Iterations follow each other without a
barrier: the next one finds the tokens that one leaves in a channel, in their order. So channels of
the same name have the same initial tokens and capacity in all graphs, and actors the same
concurrency. Everything else may differ.

Source: M. Geilen, S. Stuijk, "Worst-case performance analysis of synchronous dataflow scenarios",
CODES+ISSS 2010.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from csdf.errors import GraphError
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import reachable


@dataclass(frozen=True)
class Scenarios:
    """Graphs by scenario, and a state machine: `states` has the scenario of each state.

    `transitions` has the states that may follow each state, and the run begins in `initial`.
    Raises `GraphError`, whose message is a sentence.
    """

    name: str
    graphs: Mapping[str, Graph]
    states: Mapping[str, str]
    transitions: Mapping[str, tuple[str, ...]]
    initial: str

    def __post_init__(self) -> None:
        if self.initial not in self.states:
            raise GraphError(f"the initial state {self.initial!r} is not a state of the machine")
        for state, scenario in self.states.items():
            if scenario not in self.graphs:
                raise GraphError(f"state {state!r} names {scenario!r}, which is not a scenario")
        for state, following in self.transitions.items():
            for other in (state, *following):
                if other not in self.states:
                    raise GraphError(f"a transition of {state!r} names {other!r}, not a state")
        self._check_common()

    def _check_common(self) -> None:
        """Refuse state that one iteration could not hand over to the next."""
        known: dict[tuple[str, str], tuple[str, object]] = {}
        for scenario, graph in self.graphs.items():
            common: list[tuple[str, str, str, int | None]] = [
                ("channel", c.name, "initial tokens", c.initial_tokens) for c in graph.channels
            ]
            common += [("channel", c.name, "capacity", c.capacity) for c in graph.channels]
            common += [("actor", a.name, "concurrency", a.concurrency) for a in graph.actors]
            for kind, name, what, value in common:
                first, other = known.setdefault((name, what), (scenario, value))
                if value != other:
                    raise GraphError(
                        f"{kind} {name!r} has {other} as {what} in scenario {first!r} and {value} "
                        f"in {scenario!r}; give it the same in both, because they share it"
                    )

    def reached(self) -> list[str]:
        """Return the states that some run reaches, in the order of `states`."""
        found = reachable(lambda state: self.transitions.get(state, ()), [self.initial])
        return [state for state in self.states if state in found]
