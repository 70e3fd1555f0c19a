"""Analyse scenarios: the period of each, and the longest that any run of the state machine has.

The max-plus matrices of the scenarios (`csdf.timing.max_plus`) take the times of the tokens after
one iteration to those after the next, whichever scenario that is. A run of the machine multiplies
them in its order. Its iterations take, in the long run, at most the maximum cycle mean of a graph
with a node for each state and token: entry A_ij of a state's scenario is an edge to its token i
from token j of each state before it. Some run attains this mean.

A token that a scenario's graph does not have keeps its time while that scenario is executed.

Source: M. Geilen, S. Stuijk, CODES+ISSS 2010.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from csdf.errors import CsdfError, TooLargeError
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import topological_order
from csdf.model.lowered import Indices, Integers, integers
from csdf.model.scenarios import Scenarios
from csdf.timing.cycle_ratio import EFFORT, maximum_cycle_ratio
from csdf.timing.max_plus import NEVER, MaxPlusMatrix, Token, max_plus_matrix


@dataclass(frozen=True, slots=True)
class ScenarioPeriods:
    """The `periods` of scenarios repeated for ever, and the `worst` time per iteration of any run.

    `critical` are states that a run may repeat to take that long, empty if nothing bounds the
    throughput.
    """

    periods: Mapping[str, Fraction]
    worst: Fraction
    critical: Sequence[str]

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {
            "scenarios": self.periods,
            "worst_period": self.worst,
            "critical_states": self.critical,
        }


def scenario_periods(scenarios: Scenarios, effort: int = EFFORT) -> ScenarioPeriods:
    """Return the period of each scenario that some run reaches, and the worst of any run.

    Raises as `csdf.timing.max_plus.max_plus_matrix` does, with the name of the scenario,
    `TooLargeError` if the machine's states and the matrices have more than `effort` entries, and
    `CsdfError` if every run ends.

    >>> from csdf import Actor, Channel, Graph, Scenarios
    >>> def graph(a, b):
    ...     actors = Actor("a", (Fraction(a),), 1), Actor("b", (Fraction(b),), 1)
    ...     return Graph("g", actors, (Channel("c", "a", "b", (1,), (1,), capacity=1),))
    >>> both = {"x": ("y",), "y": ("x",)}
    >>> graphs = {"x": graph(3, 1), "y": graph(1, 3)}
    >>> machine = Scenarios("s", graphs, {"x": "x", "y": "y"}, both, "x")
    >>> found = scenario_periods(machine)
    >>> str(found.periods["x"]), str(found.periods["y"]), str(found.worst), sorted(found.critical)
    ('4', '4', '4', ['x', 'y'])
    """
    reached = scenarios.reached()
    following = [scenarios.transitions.get(state, ()) for state in reached]
    number = {state: i for i, state in enumerate(reached)}
    _, endless = topological_order([[number[to] for to in own] for own in following])
    if not any(endless):
        raise CsdfError("every run of the state machine ends; add transitions that form a cycle")
    names = dict.fromkeys(scenarios.states[state] for state in reached)
    matrices = {name: _matrix(name, scenarios.graphs[name]) for name in names}
    before, after, times, size, unit = _product(scenarios, reached, matrices, effort)
    result = maximum_cycle_ratio(
        len(reached) * size, before, after, times, np.ones(len(before), np.int64)
    )
    assert result.ratio is not None  # noqa: S101 (every edge has a delay of 1)
    critical = [reached[int(before[edge]) // size] for edge in result.cycle]
    periods = {name: matrix.eigenvalue() for name, matrix in matrices.items()}
    return ScenarioPeriods(periods, result.ratio / unit, critical)


def _matrix(name: str, graph: Graph) -> MaxPlusMatrix:
    try:
        return max_plus_matrix(graph, every_start=True)
    except CsdfError as error:
        error.args = (f"scenario {name!r}: {error}",)
        raise


def _product(
    scenarios: Scenarios,
    reached: Sequence[str],
    matrices: Mapping[str, MaxPlusMatrix],
    effort: int,
) -> tuple[Indices, Indices, Integers, int, int]:
    """Return the edges between (state, token), their times, the number of tokens, and the unit."""
    tokens: dict[Token, int] = {}
    for matrix in matrices.values():
        for token in matrix.tokens:
            tokens.setdefault(token, len(tokens))
    unit = lcm(*(matrix.unit for matrix in matrices.values()))
    number = {state: i for i, state in enumerate(reached)}
    steps = [(state, to) for state in reached for to in scenarios.transitions.get(state, ())]
    entries = {name: _entries(matrix, tokens, unit) for name, matrix in matrices.items()}
    work = sum(len(entries[scenarios.states[to]][2]) for _, to in steps)
    if work > effort:
        raise TooLargeError(
            f"the machine and the scenarios' tokens have {work} dependences; at most {effort} are "
            "allowed (--effort)"
        )
    before: list[int] = []
    after: list[int] = []
    times: list[int] = []
    for state, to in dict.fromkeys(steps):
        columns, rows, own = entries[scenarios.states[to]]
        before += [number[state] * len(tokens) + column for column in columns]
        after += [number[to] * len(tokens) + row for row in rows]
        times += own
    ends = np.array(before, np.int64), np.array(after, np.int64)
    return *ends, integers(times), len(tokens), unit


def _entries(
    matrix: MaxPlusMatrix, tokens: Mapping[Token, int], unit: int
) -> tuple[list[int], list[int], list[int]]:
    """Return columns, rows and entries of a matrix, in the numbering of `tokens`."""
    place = [tokens[token] for token in matrix.tokens]
    rows, columns = np.nonzero(matrix.entries != NEVER)
    scale = unit // matrix.unit
    times = [int(time) * scale for time in matrix.entries[rows, columns].tolist()]
    kept = [number for number in tokens.values() if number not in set(place)]
    return (
        [place[column] for column in columns.tolist()] + kept,
        [place[row] for row in rows.tolist()] + kept,
        times + [0] * len(kept),
    )
