"""Keep the waits between the firings of an iteration up to date while capacities change.

With all firings of an iteration taken at once (K = q in `csdf.timing.event_graph`), each firing
waits for one other per arc that it consumes from: the firing that produces the last of its tokens.
More tokens in an arc only move these waits to earlier firings. So when many distributions of
capacities are analysed one after the other, the edges stay the same, most of them unchanged, and
the search for the slowest cycle (`csdf.timing.cycle_ratio`) starts from where it ended the last
time.

The **sensitivity** of a cycle of waits is the least increase of room that changes it. Channels may
be **in series**: if an actor consumes and produces the same number of tokens in every firing, and
all its firings take the same time, then for a cycle that waits for room through both its input and
its output channel only the sum of both capacities counts. Such a cycle persists however the room is
divided between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from csdf.model.lowered import SAFE, Indices, Lowered, integers
from csdf.timing.cycle_ratio import PolicyIteration
from csdf.timing.event_graph import scaled, sequential_actors, time_unit

MOST_FIRINGS = 200_000
"""Firings of an iteration up to which `Waits` takes all of them at once."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The least increase of room that changes a cycle of waits: `tokens` in the last of `arcs`.

    The arcs are in series on the cycle, so room for as many firings in any other of them changes
    the cycle too.
    """

    arcs: tuple[int, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Slowest:
    """A cycle of waits with its period (None: it waits for ever) and its `sensitivities`."""

    period: Fraction | None
    sensitivities: tuple[Sensitivity, ...]


@dataclass(frozen=True)
class _Arc:
    """An arc's waits: the numbers of its `edges`, in the order of the firings that wait.

    `needed` are the tokens consumed up to each of these firings; `makers` are the firings that
    produce, `made` the tokens produced up to each of them, and `put` those of a whole iteration.
    """

    edges: Indices
    needed: Indices
    makers: Indices
    made: Indices
    put: int


class Waits:
    """The waits of one iteration of a graph whose firings cannot overtake each other.

    `edges` counts the waits; each improvement of a policy visits all of them.
    """

    def __init__(
        self,
        graph: Lowered,
        repetitions: Sequence[int],
        sized: Collection[int] = (),
        series: Collection[tuple[int, int]] = (),
    ) -> None:
        """`repetitions` count cycles of phases; sensitivities are reported for `sized` arcs only.

        `series` are pairs of sized arcs in series (`arcs_in_series`). See `fits` for the
        size.
        """
        self._sized, self._series = np.array(sorted(sized), np.int64), frozenset(series)
        counts = [len(times) * q for times, q in zip(graph.times, repetitions, strict=True)]
        first = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
        self._unit = time_unit(graph)
        self._durations = integers(
            time
            for times, q in zip(graph.times, repetitions, strict=True)
            for time in scaled(times, self._unit) * q
        )
        makers, made, waiting, needed = [], [], [], []
        for arc in graph.arcs:
            production = np.tile(np.array(arc.production), repetitions[arc.source])
            consumption = np.tile(np.array(arc.consumption), repetitions[arc.target])
            makers.append(np.flatnonzero(production))
            made.append(np.cumsum(production)[makers[-1]])
            waiting.append(np.flatnonzero(consumption))
            needed.append(np.cumsum(consumption)[waiting[-1]])
            makers[-1] += first[arc.source]
            waiting[-1] += first[arc.target]
        sequential = sequential_actors(graph)
        ordered = [a for a, count in enumerate(counts) if a not in sequential and count > 1]
        waiting += [first[a] + np.arange(counts[a]) for a in ordered]
        waits = np.concatenate(waiting) if waiting else np.zeros(0, np.int64)
        place = np.empty(len(waits), np.int64)
        place[np.argsort(waits, kind="stable")] = np.arange(len(waits))
        cuts = np.cumsum([0, *map(len, waiting)]).tolist()
        edges = [place[low:high] for low, high in pairwise(cuts)]
        self.edges = len(waits)
        self._arc = np.full(self.edges, -1, np.int64)
        self._on = np.zeros(self.edges, np.int64)
        self._delay = np.zeros(self.edges, np.int64)
        self._time = np.zeros(self.edges, self._durations.dtype)
        self._arcs = []
        for number, own in enumerate(edges[: len(graph.arcs)]):
            self._arc[own] = number
            about = needed[number], makers[number], made[number], int(made[number][-1])
            self._arcs.append(_Arc(own, *about))
        for actor, own in zip(ordered, edges[len(graph.arcs) :], strict=True):
            # A firing starts no earlier than the one before it.
            self._on[own] = np.roll(first[actor] + np.arange(counts[actor]), 1)
            self._delay[own[0]] = 1
        self._firings, self._waiting = first[-1], np.sort(waits)
        self._search = PolicyIteration(self._firings, self._waiting)
        self._tokens = [-1] * len(graph.arcs)
        for number, arc in enumerate(graph.arcs):
            self.set_tokens(number, arc.tokens)

    @property
    def steps(self) -> int:
        """Improvements of policies in all searches so far."""
        return self._search.steps

    def set_tokens(self, arc: int, tokens: int) -> None:
        """Let the arc of this number start with `tokens`."""
        if self._tokens[arc] == tokens:
            return
        self._tokens[arc] = tokens
        about = self._arcs[arc]
        last = about.needed - (tokens + 1)
        iteration = last // about.put
        maker = about.makers[np.searchsorted(about.made, last - iteration * about.put, "right")]
        self._on[about.edges] = maker
        self._time[about.edges] = self._durations[maker]
        self._delay[about.edges] = -iteration

    def slowest(self, at_least: Fraction, enough: Fraction | None = None) -> Slowest:
        """Return the slowest cycle if it takes longer than `at_least`, otherwise that period alone.

        The search ends early at a cycle that takes `enough`. A cycle without time is not found,
        even if its firings wait for themselves (see `deadlock`).
        """
        found = self._search.run(
            self._on,
            self._time,
            self._delay,
            at_least * self._unit,
            None if enough is None else enough * self._unit,
        )
        period = None if found.ratio is None else found.ratio / self._unit
        return Slowest(period, self._sensitivities(found.cycle))

    def deadlock(self) -> tuple[Sensitivity, ...] | None:
        """Return the sensitivities of a cycle that waits for ever; None if the graph is live.

        All firings of such a cycle wait for others of the same iteration.
        """
        from scipy.sparse import csr_array  # noqa: PLC0415 (slow to import)
        from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

        same = np.flatnonzero(self._delay == 0)
        ends = self._waiting[same], self._on[same]
        size = (self._firings, self._firings)
        matrix = csr_array((np.ones(len(same), np.bool_), ends), shape=size)
        _, part = connected_components(matrix, directed=True, connection="strong")
        inside = same[part[ends[0]] == part[ends[1]]]
        if not len(inside):
            return None
        # Within a strong component every firing waits for some other one of it.
        follow = dict(zip(self._waiting[inside].tolist(), inside.tolist(), strict=True))
        edge, seen = int(inside[0]), dict[int, int]()
        while edge not in seen:
            seen[edge] = len(seen)
            edge = follow[int(self._on[edge])]
        return self._sensitivities(list(seen)[seen[edge] :])

    def _sensitivities(self, cycle: Sequence[int]) -> tuple[Sensitivity, ...]:
        edges = np.array(cycle, np.int64)
        arcs = self._arc[edges]
        together = _series_on_cycle(arcs.tolist(), self._series)
        found = [
            Sensitivity(passed, self._more(passed[-1], edges[last]))
            for passed, last in together.items()
        ]
        joined = {arc for passed in together for arc in passed}
        alone = [arc for arc in np.intersect1d(arcs, self._sized).tolist() if arc not in joined]
        found += [Sensitivity((arc,), self._more(arc, edges[arcs == arc])) for arc in alone]
        return tuple(found)

    def _more(self, arc: int, edges: Indices) -> int:
        """Return how many more tokens in `arc` move the first of these waits to another firing."""
        about = self._arcs[arc]
        needed = about.needed[np.searchsorted(about.edges, edges)] - self._tokens[arc]
        before = np.append(about.made[-1:] - about.put, about.made)  # 0, then what is made by then
        made = before[np.searchsorted(about.makers, self._on[edges])]
        return int((needed - made + self._delay[edges] * about.put).min())


def arcs_in_series(graph: Lowered, sized: Iterable[int]) -> set[tuple[int, int]]:
    """Return the pairs of `sized` arcs in series: the source of the first is the second's target.

    `sized` are arcs of free room, which run against their channels.
    """
    arriving: dict[int, list[int]] = {}
    leaving: dict[int, list[int]] = {}
    for number in sized:
        arc = graph.arcs[number]
        grain = math.gcd(*arc.production, *arc.consumption)
        if len(set(graph.times[arc.source])) == 1 and set(arc.production) == {grain}:
            arriving.setdefault(arc.source, []).append(number)
        if set(arc.consumption) == {grain}:
            leaving.setdefault(arc.target, []).append(number)
    return {
        (number, following)
        for actor, numbers in arriving.items()
        for number in numbers
        for following in leaving.get(actor, [])
    }


def _series_on_cycle(
    arcs: Sequence[int], series: Collection[tuple[int, int]]
) -> dict[tuple[int, ...], list[int]]:
    """Return the series that a cycle of `arcs` passes only as a whole, and where it leaves them.

    The keys are the arcs of each series, the values indices into the cycle.
    """
    runs = _runs(arcs, series)
    alone = set(range(len(arcs))) - {i for run in runs for i in run}
    spoiled = {arcs[i] for i in alone}
    found: dict[tuple[int, ...], list[int]] = {}
    for run in runs:
        found.setdefault(tuple(arcs[i] for i in run), []).append(run[-1])
    while True:
        ways = Counter(arc for passage in found for arc in passage)
        bad = [one for one in found if any(ways[arc] > 1 or arc in spoiled for arc in one)]
        if not bad:
            return found
        for one in bad:
            spoiled.update(one)
            del found[one]


def _runs(arcs: Sequence[int], series: Collection[tuple[int, int]]) -> list[list[int]]:
    """Return the runs of two or more indices of the cycle whose arcs are in series."""
    count = len(arcs)
    joined = [(arcs[i], arcs[(i + 1) % count]) in series for i in range(count)]
    if not any(joined) or all(joined):
        return []
    found: list[list[int]] = []
    start = joined.index(False) + 1
    run: list[int] = []
    for i in (place % count for place in range(start, start + count)):
        run.append(i)
        if not joined[i]:
            if len(run) > 1:
                found.append(run)
            run = []
    return found


def fits(graph: Lowered, repetitions: Sequence[int], most_tokens: int) -> bool:
    """Return whether `Waits` can be built, and hold up to `most_tokens` in an arc.

    What an arc holds, and what an iteration moves, are then below 2^60, so that no sum of four of
    them wraps: `set_tokens` and `_more` add up no more.
    """
    firings = sum(len(times) * q for times, q in zip(graph.times, repetitions, strict=True))
    moved = (repetitions[arc.source] * sum(arc.production) for arc in graph.arcs)
    tokens = max([most_tokens, *moved, *(arc.tokens for arc in graph.arcs)])
    return firings <= MOST_FIRINGS and 4 * tokens < SAFE
