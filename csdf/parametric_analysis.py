"""Analyse a graph with parameters for every combination of their values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.analysis import Analysis, analyze
from csdf.errors import CsdfError, InconsistentGraphError, TooLargeError
from csdf.model.parametric import ParametricGraph, outside, symbolic_repetitions
from csdf.model.polynomials import Polynomial
from csdf.timing.cycle_ratio import EFFORT

MOST = 1000
"""Combinations of values that are analysed."""


@dataclass(frozen=True)
class ParametricAnalysis:
    """The symbolic `repetitions`, or the `inconsistency` if they are not the same for all values,
    and an analysis for each combination of values."""

    repetitions: Mapping[str, Polynomial] | None
    inconsistency: str | None
    values: Sequence[tuple[Mapping[str, int], Analysis]]

    @property
    def live(self) -> bool:
        """Whether the graph is live for all values."""
        return all(each.live for _, each in self.values)

    @property
    def longest(self) -> tuple[Fraction, Mapping[str, int]] | None:
        """The longest period, and values with it; None if that of some values is not known."""
        periods = [(own.period, values) for values, own in self.values if own.period is not None]
        if len(periods) < len(self.values):
            return None
        return max(periods, key=lambda each: each[0])

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        longest = self.longest
        return {
            "repetitions": None
            if self.repetitions is None
            else {name: str(count) for name, count in self.repetitions.items()},
            "inconsistency": self.inconsistency,
            "values": [
                {"parameters": dict(values), "live": own.live, "period": own.period}
                for values, own in self.values
            ],
            "longest_period": None if longest is None else longest[0],
        }


def analyze_parameters(
    graph: ParametricGraph, fixed: Mapping[str, int] | None = None, effort: int = EFFORT
) -> ParametricAnalysis:
    """Analyse `graph` for all values of its parameters, but only those in `fixed` where it has any.

    `effort` is that of each period. Raises `CsdfError` for a name that is not a parameter, or
    values that make no graph, and `TooLargeError` for more than `MOST` combinations.

    >>> from csdf.formats.json_format import parse_parametric
    >>> graph = parse_parametric(b'''{"parameters": {"p": [1, 4]},
    ...     "actors": [{"name": "a", "execution_times": [1], "concurrency": 1},
    ...                {"name": "b", "execution_times": ["2*p"], "concurrency": 1}],
    ...     "channels": [{"name": "c", "source": "a", "target": "b",
    ...                   "production": [1], "consumption": ["p"]}]}''')
    >>> found = analyze_parameters(graph)
    >>> {name: str(count) for name, count in found.repetitions.items()}, str(found.longest[0])
    ({'a': 'p', 'b': '1'}, '8')
    """
    ranges = {name: range(low, high + 1) for name, (low, high) in graph.parameters.items()}
    for name, value in (fixed or {}).items():
        if name not in ranges:
            raise CsdfError(f"{name!r} is not a parameter; there are {', '.join(ranges) or 'none'}")
        if sentence := outside(name, value, graph.parameters[name]):
            raise CsdfError(sentence)
        ranges[name] = range(value, value + 1)
    combinations = math.prod(map(len, ranges.values()))
    if combinations > MOST:
        raise TooLargeError(
            f"the parameters have {combinations} combinations of values; at most {MOST} are "
            "analysed. Fix some (--set)"
        )
    repetitions, inconsistency = None, None
    try:
        repetitions = symbolic_repetitions(graph)
    except InconsistentGraphError as error:
        inconsistency = str(error)
    analyses = []
    for chosen in itertools.product(*ranges.values()):
        values = dict(zip(ranges, chosen, strict=True))
        try:
            own = graph.at(values)
        except CsdfError as error:
            shown = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise CsdfError(f"with {shown}, {error}") from None
        analyses.append((values, analyze(own, effort=effort)))
    return ParametricAnalysis(repetitions, inconsistency, analyses)
