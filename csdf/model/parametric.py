"""Graphs with parameters: rates, tokens, capacities and times that are polynomials.

A parameter has a whole value from a range, which does not change while the graph is executed
(parameters that change between iterations are scenarios, `csdf.model.scenarios`). `at` gives the
graph for some values.

**Consistency for all values**: the balance equations q(a) × production = q(b) × consumption are
solved as those of numbers are (`csdf.model.consistency`), with polynomials. A channel that closes a
loop must balance as an identity of polynomials. Then the counts that are found solve the equations
for all values at once. For some values, smaller counts may solve them too.

Source: B. Bhattacharya, S. S. Bhattacharyya, "Parameterized dataflow modeling for DSP systems",
IEEE Transactions on Signal Processing, 2001.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import InconsistentGraphError
from csdf.model.graph import Graph
from csdf.model.polynomials import Polynomial, product


@dataclass(frozen=True)
class ParametricChannel:
    """A channel, with the tokens that its ends put and take per cycle of phases."""

    name: str
    source: str
    target: str
    put: Polynomial
    taken: Polynomial


@dataclass(frozen=True)
class ParametricGraph:
    """A graph with `parameters`, by name the smallest and the largest value.

    `at` returns the graph for values of all parameters, and raises `CsdfError` for values that make
    no graph, such as those with a negative rate.
    """

    parameters: Mapping[str, tuple[int, int]]
    actors: Sequence[str]
    channels: Sequence[ParametricChannel]
    at: Callable[[Mapping[str, int]], Graph]


def outside(name: str, value: int, limits: tuple[int, int]) -> str | None:
    """Return a sentence if a parameter's value is not within its limits; None if it is."""
    low, high = limits
    if low <= value <= high:
        return None
    return f"{name!r} has the value {value}, which is not from {low} to {high}"


@dataclass(frozen=True)
class _Count:
    """A count: a number times polynomials, whose exponents may be below 0."""

    number: Fraction
    factors: Counter[Polynomial]

    def times(self, one: Polynomial, power: int) -> _Count:
        number, factors = one.factors()
        found = Counter(self.factors)
        for factor, exponent in factors.items():
            found[factor] += power * exponent
        return _Count(self.number * Fraction(number) ** power, found)


def symbolic_repetitions(graph: ParametricGraph) -> dict[str, Polynomial]:
    """Return how many cycles of its phases each actor fires in one iteration, for all values.

    Raises `InconsistentGraphError` if a channel balances only for some values, or for none; the
    message has the equation for them.

    >>> from csdf.model.polynomials import Polynomial
    >>> p, q = Polynomial.read("p"), Polynomial.read("2*q")
    >>> line = ParametricChannel("c", "a", "b", p, q)
    >>> found = symbolic_repetitions(ParametricGraph({}, ("a", "b"), (line,), lambda _: None))
    >>> {name: str(count) for name, count in found.items()}
    {'a': '2*q', 'b': 'p'}
    """
    touching: dict[str, list[ParametricChannel]] = {name: [] for name in graph.actors}
    for channel in graph.channels:
        touching[channel.source].append(channel)
        touching[channel.target].append(channel)
    found: dict[str, Polynomial] = {}
    for actor in graph.actors:
        if actor not in found:
            found |= _smallest(_walk(actor, touching))
    for channel in graph.channels:
        left = found[channel.source] * channel.put
        right = found[channel.target] * channel.taken
        if left != right:
            raise InconsistentGraphError(
                f"channel {channel.name!r} balances only where {left} = {right}", (channel.name,)
            )
    return {actor: found[actor] for actor in graph.actors}


def _walk(first: str, touching: Mapping[str, Sequence[ParametricChannel]]) -> dict[str, _Count]:
    """Return counts of the actors that channels join to `first`, relative to it."""
    found, waiting = {first: _Count(Fraction(1), Counter())}, [first]
    while waiting:
        actor = waiting.pop()
        for channel in touching[actor]:
            if channel.source == actor:
                other, put, taken = channel.target, channel.put, channel.taken
            else:
                other, put, taken = channel.source, channel.taken, channel.put
            if other not in found:
                found[other] = found[actor].times(put, 1).times(taken, -1)
                waiting.append(other)
    return found


def _smallest(counts: Mapping[str, _Count]) -> dict[str, Polynomial]:
    """Multiply the counts of a component such that they are polynomials without common factors."""
    every = {factor for count in counts.values() for factor in count.factors}
    least = {factor: min(count.factors[factor] for count in counts.values()) for factor in every}
    scale = math.lcm(*(count.number.denominator for count in counts.values()))
    common = math.gcd(*(int(count.number * scale) for count in counts.values()))
    return {
        name: product(
            int(count.number * scale) // common,
            {factor: count.factors[factor] - least[factor] for factor in every},
        )
        for name, count in counts.items()
    }
