"""Find the critical cycle of a graph: the cycle of waiting firings that determines the period.

The period is the maximum cycle ratio of the event graph (`csdf.timing.event_graph`): the largest
Σ time / Σ delay of any cycle.

**Maximum cycle ratio.** Policy iteration in the manner of Howard, in integers throughout. For a
ratio λ = T / D, an edge weighs D × time − T × delay, and a walk may stop anywhere for 0. Every node
has a policy: to stop, or to follow one edge. Improving policies node by node either raises the
value of nodes, or closes a cycle; such a cycle weighs more than 0, so its ratio exceeds λ and
becomes the new λ. When nothing improves, the values prove that no cycle exceeds λ. Policies are
evaluated by pointer doubling, so long chains of firings cost little.

**Growth of K.** The event graph of all firings of an iteration may be far larger than is needed to
find the critical cycle. So each actor starts with K = 1 cycles of its phases, which gives the best
strictly periodic schedule. If the critical cycle only binds because of that restriction, K is
raised for the actors on it, until the cycle binds every schedule (K-Iter). It does so once each K
on it is a multiple of q / g, where g is the greatest common divisor of the repetition counts q of
the actors on it. With some K raised and others not, channels between them have up to K × K
constraints, where all firings of an iteration have one each. So all are taken as soon as that is
not much more work.

Sources: J. Cochet-Terrasson et al., "Numerical computation of spectral elements in max-plus
algebra", IFAC 1998, for Howard's algorithm on ratios; A. Dasdan, "Experimental analysis of the
fastest optimum cycle ratio and mean algorithms", ACM TODAES, 2004; B. Bodin et al., "Optimal and
fast throughput evaluation of CSDF", DAC 2016, for K-Iter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from csdf.errors import PeriodBoundsError, TooLargeError
from csdf.model.lowered import SAFE, Indices, Integers, Lowered, readable
from csdf.timing import event_graph

Growth = Literal["auto", "step by step", "at once"]
"""How K grows: step by step, at once to the whole iteration, or whichever seems cheaper."""

EFFORT = 6_000_000
"""Largest number of firings and constraints of an event graph: about half a minute's work."""

LITTLE = 500_000
"""Work up to which the event graph of a whole iteration counts as small."""

WORTHWHILE, WORTHWHILE_FOR_LITTLE = 3, 10
"""K grows step by step while the next step is this many times less work than all firings."""


@dataclass(frozen=True)
class CycleRatio:
    """The largest ratio of any cycle, and the edges of a cycle that has it.

    `ratio` is None if some cycle has a positive time and no delay (or less), so that no ratio is
    large enough; `cycle` is then that cycle. Without a cycle of positive time `ratio` is 0 and
    `cycle` empty. `potentials`, in units of 1 / `ratio.denominator`, prove the ratio: for every
    edge, potential(source) ≥ weight + potential(target).
    """

    ratio: Fraction | None
    cycle: tuple[int, ...]
    potentials: Integers


def maximum_cycle_ratio(
    nodes: int,
    source: Indices,
    target: Indices,
    time: Integers,
    delay: Integers,
    at_least: Fraction = Fraction(0),
) -> CycleRatio:
    """Return the maximum cycle ratio of a graph, of which each array has an entry per edge.

    Times must be 0 or more; delays may be negative. `at_least` is a ratio that some cycle is known
    to have. It saves steps, but if no cycle exceeds it, the result has no cycle.
    """
    return PolicyIteration(nodes, source).run(target, time, delay, at_least)


class PolicyIteration:
    """Policy iteration for several graphs in which the same nodes have the same number of edges.

    Each search starts from the policies with which the one before ended, so it is short if little
    has changed. `steps` counts improvements of policies, over all searches.
    """

    def __init__(self, nodes: int, source: Indices) -> None:
        """`source` is the node that each edge leaves."""
        order = np.argsort(source, kind="stable")
        self._order = None if np.array_equal(order, np.arange(len(order))) else order
        self._leaving, self._starts = np.unique(source[order], return_index=True)
        self._lengths = np.diff(np.append(self._starts, len(order)))
        self._nodes = nodes
        self._policy = np.full(nodes, -1, dtype=np.int64)
        self.steps = 0

    def run(
        self,
        target: Indices,
        time: Integers,
        delay: Integers,
        at_least: Fraction = Fraction(0),
        enough: Fraction | None = None,
    ) -> CycleRatio:
        """Return what `maximum_cycle_ratio` does, or any cycle with a ratio of `enough` or more."""
        if self._order is not None:
            target, time, delay = target[self._order], time[self._order], delay[self._order]
        self._target = target
        self._time, self._delay = _summable(time, self._nodes), _summable(delay, self._nodes)
        self._infeasible = False
        self._best: dict[int, int] = {}
        self._set_ratio(at_least)
        self._values: Integers = np.zeros(self._nodes, dtype=self._weights.dtype)
        if len(target):
            going = bool((self._policy >= 0).any())
            while not self._ended(enough) and (going or self._improve()):
                self._settle(enough)
                self.steps += 1
                going = False
        return CycleRatio(None if self._infeasible else self._ratio, self._cycle(), self._values)

    def _ended(self, enough: Fraction | None) -> bool:
        found = bool(self._best) and enough is not None and self._ratio >= enough
        return found or self._infeasible

    def _set_ratio(self, ratio: Fraction) -> None:
        self._ratio = ratio
        numerator, denominator = ratio.numerator, ratio.denominator
        largest = _magnitude(self._time) * denominator + _magnitude(self._delay) * numerator
        time, delay = self._time, self._delay
        if max(largest * 4 * (self._nodes + 1), numerator, denominator) >= SAFE:
            time, delay = time.astype(object), delay.astype(object)
        self._weights = time * denominator - delay * numerator

    def _improve(self) -> bool:
        """Improve policies, node by node; return False if no policy can be improved."""
        reached = self._weights + self._values[self._target]
        best = np.maximum.reduceat(reached, self._starts)
        current = self._values[self._leaving]
        rising = (best > current) & (best > 0)
        # A policy with a value below 0 is worse than stopping.
        falling = (current < 0) & ~rising
        if not (rising.any() or falling.any()):
            return False
        if rising.any():
            edges, groups = self._leave(rising)
            good = reached[edges] == best[rising][groups]
            first = np.flatnonzero(np.diff(groups[good], prepend=-1))
            self._policy[self._leaving[rising]] = edges[good][first]
        self._policy[self._leaving[falling]] = -1
        return True

    def _leave(self, chosen: npt.NDArray[np.bool_]) -> tuple[Indices, Indices]:
        """Return the edges that leave the chosen nodes, and the index of the node of each edge."""
        lengths = self._lengths[chosen]
        groups = np.repeat(np.arange(len(lengths)), lengths)
        before = np.cumsum(lengths) - lengths
        return np.arange(len(groups)) + (self._starts[chosen] - before)[groups], groups

    def _settle(self, enough: Fraction | None) -> None:
        """Open the cycles of the policies, which may raise the ratio, and evaluate the policies."""
        while (around := self._evaluate()) is not None:
            self._close(around)
            if self._ended(enough):
                return

    def _evaluate(self) -> Indices | None:
        """Set the value of every node: the weight of its policy's walk until it stops.

        If some walks never stop, return the nodes on their cycles and set nothing.
        """
        going = self._policy >= 0
        ends = np.where(going, self._target[self._policy], np.arange(self._nodes))
        values = np.where(going, self._weights[self._policy], 0)
        for _ in range(self._nodes.bit_length() + 1):
            if not going[ends].any():
                self._values = values
                return None
            values = values + values[ends]
            ends = ends[ends]
        around = np.zeros(self._nodes, dtype=bool)
        around[ends[going[ends]]] = True
        return np.flatnonzero(around)

    def _close(self, around: Indices) -> None:
        """Raise the ratio to that of the best cycle of the policies, and open all cycles.

        `around` are the nodes on cycles.
        """
        place = np.empty(self._nodes, dtype=np.int64)
        place[around] = np.arange(len(around))
        follow = place[self._target[self._policy[around]]]
        cycle = np.arange(len(around))
        for _ in range(len(around).bit_length()):
            cycle = np.minimum(cycle, cycle[follow])
            follow = follow[follow]
        nodes = around[np.argsort(cycle, kind="stable")]
        edges = self._policy[nodes]
        first, starts = np.unique(np.sort(cycle), return_index=True)
        self._policy[around[first]] = -1
        ends = [*starts[1:].tolist(), len(nodes)]
        times = np.add.reduceat(self._time[edges], starts)
        delays = np.add.reduceat(self._delay[edges], starts)
        good = np.flatnonzero(np.add.reduceat(self._weights[edges], starts) > 0)
        ratio = self._ratio
        for one in [*good[delays[good] <= 0][:1].tolist(), *good.tolist()]:
            time, delay = int(times[one]), int(delays[one])
            self._infeasible = delay <= 0
            if delay <= 0 or Fraction(time, delay) > ratio:
                members = slice(int(starts[one]), ends[one])
                self._best = dict(
                    zip(nodes[members].tolist(), edges[members].tolist(), strict=True)
                )
            if self._infeasible:
                return
            ratio = max(ratio, Fraction(time, delay))
        if ratio > self._ratio:
            self._set_ratio(ratio)

    def _cycle(self) -> tuple[int, ...]:
        """Return the edges of the best cycle in order, in the caller's numbering."""
        if not self._best:
            return ()
        node, edges = next(iter(self._best)), []
        for _ in self._best:
            edges.append(self._best[node])
            node = int(self._target[edges[-1]])
        return tuple(edges if self._order is None else self._order[edges].tolist())


def _magnitude(values: Integers) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def _summable(values: Integers, count: int) -> Integers:
    """Convert to Python's own integers if a sum of `count` values might not fit."""
    return values.astype(object) if _magnitude(values) * count >= SAFE else values


@dataclass(frozen=True, slots=True)
class CriticalLink:
    """A wait on a critical cycle: a firing of an arc's target waits for one of its source.

    `arc` is the arc's number, −1 for the order of an actor's firings; `actor` is the source.
    Firings count from 0 within the `cycles` of phases of source and target in the event graph.
    """

    arc: int
    actor: int
    source_firing: int
    target_firing: int
    cycles: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Critical:
    """The period (None: deadlock) and the cycle that proves it.

    No change of the graph that leaves these links as they are gives a shorter period.
    """

    period: Fraction | None
    links: tuple[CriticalLink, ...]


def critical_cycle(
    graph: Lowered,
    repetitions: Sequence[int],
    growth: Growth = "auto",
    effort: int = EFFORT,
) -> Critical:
    """Return the period of a graph whose firings cannot overtake each other, and a critical cycle.

    A deadlock is found only if some firing on its cycle takes time. Raises `PeriodBoundsError` if
    `effort` does not suffice.
    """
    lone = busiest(graph, repetitions)
    least, most = lone.period or Fraction(0), None
    builder = event_graph.Builder(graph, repetitions)
    whole = list(repetitions)
    every = builder.work(whole)
    cycles = whole if growth == "at once" else [1] * len(whole)
    while True:
        work = builder.work(cycles)
        if work > effort:
            raise PeriodBoundsError(
                f"the exact period needs {readable(work)} constraints between the firings of an "
                f"iteration; at most {effort} are allowed (--effort)",
                least,
                most,
            )
        events = builder.build(cycles)
        unit = Fraction(events.delay_unit, events.time_unit)
        result = maximum_cycle_ratio(
            events.nodes,
            events.source,
            events.target,
            events.time,
            events.delay,
            at_least=least / unit,
        )
        if not result.cycle:
            return lone
        edges = np.array(result.cycle)
        ends = events.actors(events.source[edges]), events.actors(events.target[edges])
        wanted = _wanted(repetitions, cycles, set(ends[0].tolist()))
        period = None if result.ratio is None else result.ratio * unit
        if wanted == cycles:
            return Critical(period, _links(events, edges, ends, cycles))
        if period is not None:
            # A K-periodic schedule is a schedule, so its period is an upper bound.
            most = period if most is None else min(most, period)
        cycles = wanted
        if growth == "auto" and every <= effort:
            times = WORTHWHILE if every > LITTLE else WORTHWHILE_FOR_LITTLE
            cycles = wanted if builder.work(wanted) * times < every else whole


def has_schedule(graph: Lowered, repetitions: Sequence[int]) -> bool:
    """Return whether there is a strictly periodic schedule for any execution times.

    If so, the graph is live; if not, it may still be live.
    """
    events = event_graph.build(_untimed(graph), repetitions, [1] * len(repetitions))
    found = maximum_cycle_ratio(
        events.nodes, events.source, events.target, events.time, events.delay
    )
    return found.ratio is not None


def cycle_of_deadlock(graph: Lowered, repetitions: Sequence[int]) -> tuple[CriticalLink, ...]:
    """Return firings that wait for each other for ever; none if the graph is live.

    Raises `TooLargeError`.
    """
    try:
        found = critical_cycle(_untimed(graph), repetitions)
    except PeriodBoundsError as error:
        if error.at_most is not None:
            return ()
        raise TooLargeError(f"to decide whether the graph is live, {error}") from None
    return found.links if found.period is None else ()


def _untimed(graph: Lowered) -> Lowered:
    """Return the graph with times of 1, because a cycle of firings without time is not found."""
    ones = tuple((Fraction(1),) * len(times) for times in graph.times)
    return Lowered(graph.names, ones, graph.arcs)


def _wanted(repetitions: Sequence[int], cycles: Sequence[int], around: set[int]) -> list[int]:
    """Return `cycles`, raised for the actors `around` a cycle until it binds every schedule."""
    common = math.gcd(*(repetitions[actor] for actor in around))
    found = list(cycles)
    for actor in around:
        found[actor] = math.lcm(cycles[actor], repetitions[actor] // common)
    return found


def busiest(graph: Lowered, repetitions: Sequence[int]) -> Critical:
    """Return the busiest of the actors that fire one firing at a time, as a critical cycle.

    It is a lower bound on the period, and often the period itself.
    """
    unit = event_graph.time_unit(graph)
    alone = [
        q * sum(event_graph.scaled(times, unit))
        for q, times in zip(repetitions, graph.times, strict=True)
    ]
    best = 0
    links: tuple[CriticalLink, ...] = ()
    for number, arc in enumerate(graph.arcs):
        actor, phases = arc.source, len(graph.times[arc.source])
        if alone[actor] > best and event_graph.is_sequential(arc):
            best = alone[actor]
            links = tuple(
                CriticalLink(number, actor, phase, (phase + 1) % phases, (1, 1))
                for phase in range(phases)
            )
    return Critical(Fraction(best, unit), links)


def _links(
    events: event_graph.EventGraph,
    edges: Indices,
    ends: tuple[Indices, Indices],
    cycles: Sequence[int],
) -> tuple[CriticalLink, ...]:
    rows = zip(
        events.arc[edges].tolist(),
        events.source[edges].tolist(),
        events.target[edges].tolist(),
        *(actors.tolist() for actors in ends),
        strict=True,
    )
    return tuple(
        CriticalLink(
            arc,
            from_,
            source - events.first[from_],
            target - events.first[to],
            (cycles[from_], cycles[to]),
        )
        for arc, source, target, from_, to in rows
    )
