"""Compute the max-plus matrix of an iteration, which maps token times before it to those after it.

The state of a graph between two iterations is the time at which each initial token becomes
available: tokens in channels, free places, and turns of actors whose firings may not overlap. One
iteration takes the times x to A ⊗ x, where (A ⊗ x)_i is the maximum over j of A_ij + x_j. Entry
A_ij is the longest time of any chain of firings from token j to token i, None if there is no chain.
The eigenvalue of A, its maximum cycle mean, is the period.

The matrix is found by executing one iteration symbolically: a token carries the longest time from
each initial token, and a firing starts at the elementwise maximum of those that it takes. Where
firings of an actor may overlap, they still start in order, so the start of its last firing is part
of the state too. Firings must not overtake each other.

Source: M. Geilen, S. Stuijk, "Worst-case performance analysis of synchronous dataflow scenarios",
CODES+ISSS 2010.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from csdf.errors import TooLargeError
from csdf.execution.untimed import Execution
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import SAFE, Arc, Integers, Lowered, Origin, lower, readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import maximum_cycle_ratio
from csdf.timing.throughput import require_live, require_order

SIZE_LIMIT = 2000
"""Largest number of tokens of which a matrix is computed."""

WORK_LIMIT = 100_000_000
"""Largest product of the number of tokens and the tokens or firings that an iteration moves."""

NEVER = -1
"""The entry for minus infinity: all other times are 0 or more."""


@dataclass(frozen=True, slots=True)
class Token:
    """An initial token: number `place` of a channel, of its free places, or of an actor's turns.

    Tokens of a channel are numbered in the order in which they are taken. Exactly one of `channel`
    and `actor` is set. An actor's turn is the end of one of its last firings (as many as its
    concurrency), or the start of its last one (`starts`).
    """

    channel: str | None
    actor: str | None
    for_space: bool
    starts: bool
    place: int

    def __str__(self) -> str:
        """Return a name, such as `c[0]`, `room in c[0]`, `turn of A[0]` or `start of A`."""
        if self.starts:
            return f"start of {self.actor}"
        what = f"turn of {self.actor}" if self.channel is None else self.channel
        return f"{'room in ' if self.for_space else ''}{what}[{self.place}]"


@dataclass(frozen=True)
class MaxPlusMatrix:
    """The matrix A of an iteration: `entries[i, j]` / `unit` is A_ij, `NEVER` minus infinity."""

    tokens: tuple[Token, ...]
    entries: Integers
    unit: int

    def rows(self) -> list[list[Fraction | None]]:
        """Return A row by row, with None for minus infinity."""
        return [
            [None if one == NEVER else Fraction(one, self.unit) for one in row]
            for row in self.entries.tolist()
        ]

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {"tokens": self.tokens, "matrix": self.rows()}

    def eigenvalue(self) -> Fraction:
        """Return the maximum cycle mean, which is the period; 0 without a cycle."""
        after, before = np.nonzero(self.entries != NEVER)
        times = self.entries[after, before]
        result = maximum_cycle_ratio(len(self.tokens), before, after, times, np.ones_like(after))
        assert result.ratio is not None  # noqa: S101 (every edge has a delay of 1)
        return result.ratio / self.unit


def max_plus_matrix(graph: Graph, *, every_start: bool = False) -> MaxPlusMatrix:
    """Return the max-plus matrix of one iteration of a live `graph`.

    With `every_start` the starts of all actors are part of the state, also those that need not be.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, and `OvertakingError` if an
    actor's firings may overlap and have different times.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> found = max_plus_matrix(Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),)))
    >>> [str(token) for token in found.tokens], found.entries.tolist()
    (['turn of a[0]', 'turn of b[0]'], [[2, -1], [5, 3]])
    """
    require_live(graph)
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    require_order(lowered)
    counts = [
        repetitions[name] * len(t) for name, t in zip(lowered.names, lowered.times, strict=True)
    ]
    with_starts = range(len(counts)) if every_start else _unordered(lowered)
    tokens, sizes = _tokens(lowered, with_starts)
    work = max(len(tokens), 1) * (sum(counts) + sum(sizes))
    if len(tokens) > SIZE_LIMIT or work > WORK_LIMIT:
        raise TooLargeError(
            f"the max-plus matrix has {readable(len(tokens))} rows for {readable(sum(counts))} "
            f"firings; at most {SIZE_LIMIT} rows, and {readable(WORK_LIMIT)} as the product, "
            "are computed"
        )
    return MaxPlusMatrix(tokens, *_executed(lowered, counts, with_starts, len(tokens)))


def _tokens(graph: Lowered, with_starts: Sequence[int]) -> tuple[tuple[Token, ...], list[int]]:
    """Return all initial tokens, by arc, and then the starts; and the number of those of each."""
    found: list[Token] = []
    sizes = []
    for arc in graph.arcs:
        channel = None if arc.channel is None else arc.channel.name
        actor = graph.names[arc.source] if channel is None else None
        for_space = arc.origin is Origin.SPACE
        if len(found) + arc.tokens > SIZE_LIMIT:
            raise TooLargeError(
                "the max-plus matrix has a row for each initial token and free place; at most "
                f"{SIZE_LIMIT} are computed, and this graph has more"
            )
        found += [Token(channel, actor, for_space, False, place) for place in range(arc.tokens)]
        sizes.append(arc.tokens)
    found += [Token(None, graph.names[actor], False, True, 0) for actor in with_starts]
    return tuple(found), sizes


def _unordered(graph: Lowered) -> list[int]:
    """Return the actors whose firings may overlap, and need not start in order by themselves."""
    sequential = event_graph.sequential_actors(graph)
    return [a for a, times in enumerate(graph.times) if len(times) > 1 and a not in sequential]


class _Fifo:
    """The tokens in an arc: (times from each initial token, number of tokens that share them)."""

    def __init__(self, rows: Integers) -> None:
        self._runs: deque[tuple[Integers, int]] = deque((row, 1) for row in rows)

    def put(self, row: Integers, tokens: int) -> None:
        if tokens:
            self._runs.append((row, tokens))

    def take(self, tokens: int) -> Iterator[Integers]:
        while tokens:
            row, there = self._runs.popleft()
            yield row
            if there > tokens:
                self._runs.appendleft((row, there - tokens))
            tokens -= min(there, tokens)

    def rows(self) -> Iterator[Integers]:
        for row, tokens in self._runs:
            for _ in range(tokens):
                yield row


def _executed(
    graph: Lowered, counts: Sequence[int], with_starts: Sequence[int], size: int
) -> tuple[Integers, int]:
    """Return the matrix, and the unit of its entries, after a symbolic iteration."""
    unit = event_graph.time_unit(graph)
    times = [event_graph.scaled(own, unit) for own in graph.times]
    most = sum(count * max(own) for count, own in zip(counts, times, strict=True))
    identity = np.full((size, size), NEVER, dtype=np.int64 if most < SAFE else object)
    np.fill_diagonal(identity, 0)
    first, fifos = 0, []
    for arc in graph.arcs:
        fifos.append(_Fifo(identity[first : first + arc.tokens]))
        first += arc.tokens
    starts = {actor: identity[first + i] for i, actor in enumerate(with_starts)}
    nothing = np.full(size, NEVER, dtype=identity.dtype)
    into, out_of = _by_actor(graph.arcs, len(graph.names))
    fired = [0] * len(graph.names)
    for actor, firings in _schedule(graph, counts):
        for _ in range(firings):
            phase = fired[actor] % len(times[actor])
            fired[actor] += 1
            start = starts.get(actor, nothing)
            for number, arc in into[actor]:
                for row in fifos[number].take(arc.consumption[phase]):
                    start = np.maximum(start, row)
            if actor in starts:
                starts[actor] = start
            end = np.where(start == NEVER, NEVER, start + times[actor][phase])
            for number, arc in out_of[actor]:
                fifos[number].put(end, arc.production[phase])
    rows = [row for fifo in fifos for row in fifo.rows()] + list(starts.values())
    return (np.stack(rows) if rows else identity), unit


def _schedule(graph: Lowered, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return (actor, firings) of one iteration, in an order in which they can be executed."""
    execution = Execution(graph, counts)
    execution.schedule = []
    executed = execution.run()
    assert executed  # noqa: S101 (the graph is live)
    return execution.schedule


def _by_actor(
    arcs: Sequence[Arc], actors: int
) -> tuple[list[list[tuple[int, Arc]]], list[list[tuple[int, Arc]]]]:
    """Return the arcs into and out of each actor, with their numbers."""
    into: list[list[tuple[int, Arc]]] = [[] for _ in range(actors)]
    out_of: list[list[tuple[int, Arc]]] = [[] for _ in range(actors)]
    for number, arc in enumerate(arcs):
        into[arc.target].append((number, arc))
        out_of[arc.source].append((number, arc))
    return into, out_of
