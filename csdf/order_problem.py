"""Firings that share processors at a period: the problem of finding an order for them.

At a period Λ every processor repeats itself, so its firings must not overlap **modulo Λ**: on a
clock of that circumference each has its arc. Sorted by where they start on the clock they are a
static order; how many full turns later a start lies is the entry's offset.

All times here are whole numbers; a `Clock` says of which fraction of the graph's unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from csdf.cycle_ratio import CycleRatio, maximum_cycle_ratio
from csdf.expansion import Expansion, expand
from csdf.graph import Graph
from csdf.whole_numbers import integers

Wait = tuple[int, int, int, int]
"""(source, target, time, delay): target waits for source, as in `csdf.event_graph`; delays count
iterations."""

Turns = Mapping[str, Sequence[tuple[int, int]]]
"""Processor → (firing, offset) of its entries."""


@dataclass(frozen=True)
class Problem:
    """The firings of an iteration, what they wait for, and which are `on` a processor.

    `times` has the duration of each firing, in units of 1 / `expansion.events.time_unit`.
    """

    expansion: Expansion
    times: Sequence[int]
    on: Mapping[int, str]

    def within(self, parts: Sequence[int]) -> Problem:
        """The same with the constraints only that stay within a part; `parts` has each firing's."""
        events, part = self.expansion.events, np.array(parts)
        inner = part[events.source] == part[events.target]
        columns = ("source", "target", "time", "delay", "arc")
        kept = {name: getattr(events, name)[inner] for name in columns}
        return replace(self, expansion=replace(self.expansion, events=replace(events, **kept)))

    @cached_property
    def processors(self) -> dict[str, list[int]]:
        """Processor → its firings."""
        found: dict[str, list[int]] = {}
        for firing, processor in self.on.items():
            found.setdefault(processor, []).append(firing)
        return found

    @cached_property
    def least(self) -> Fraction:
        """No order has a shorter period: what the graph needs, and what the busiest processor does.

        In units of 1 / `events.time_unit`, as all ratios here.
        """
        loads = (sum(self.times[v] for v in own) for own in self.processors.values())
        own = self.expansion.period * self.expansion.events.time_unit
        return max(own, Fraction(max(loads, default=0)))

    @cached_property
    def waits(self) -> list[Wait]:
        """All constraints of the graph itself."""
        events = self.expansion.events
        columns = (events.source, events.target, events.time, events.delay)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def relaxed(self, more: Sequence[Wait] = (), at_least: Fraction | None = None) -> CycleRatio:
        """The period with these constraints besides, but not below `at_least` (None: `least`).

        `potentials` are the earliest starts then.
        """
        return self._walks(more, self.least if at_least is None else at_least, backwards=True)

    def heights(self, ratio: Fraction) -> list[int]:
        """Per firing the longest walk from it on at this period, in units of `clock(ratio)`."""
        return [int(value) for value in self._walks((), ratio, backwards=False).potentials]

    def _walks(self, more: Sequence[Wait], at_least: Fraction, *, backwards: bool) -> CycleRatio:
        events = self.expansion.events
        source, target, time, delay = zip(*more, strict=True) if more else ((), (), (), ())
        from_ = np.concatenate([events.source, np.array(source, np.int64)])
        to = np.concatenate([events.target, np.array(target, np.int64)])
        # Potentials are walks from each firing on, or, with all edges turned round, to it.
        return maximum_cycle_ratio(
            events.nodes,
            to if backwards else from_,
            from_ if backwards else to,
            np.concatenate([events.time, integers(time)]),
            np.concatenate([events.delay, integers(delay)]),
            at_least=at_least,
        )

    def turn_waits(self, turns: Turns) -> list[Wait]:
        """What static orders add: each entry waits for the one before it."""
        found = []
        for order in turns.values():
            for i, (firing, offset) in enumerate(order):
                after, its_offset = order[(i + 1) % len(order)]
                delay = offset - its_offset + (i + 1 == len(order))
                found.append((firing, after, self.times[firing], delay))
        return found

    def clock(self, ratio: Fraction) -> Clock:
        """The problem at a period, positive."""
        scale = ratio.denominator
        waits = [(u, v, time * scale, delay) for u, v, time, delay in self.waits]
        return Clock(self, ratio.numerator, [time * scale for time in self.times], waits)


@dataclass(frozen=True)
class Clock:
    """A problem at the period `circumference`, with times in the same unit."""

    problem: Problem
    circumference: int
    times: Sequence[int]
    waits: Sequence[Wait]

    @cached_property
    def waiting(self) -> list[list[tuple[int, int]]]:
        """Per firing who waits for it, and how much later it starts at least (or is negative)."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.times]
        for source, target, time, delay in self.waits:
            found[source].append((target, time - delay * self.circumference))
        return found

    @cached_property
    def awaited(self) -> list[list[tuple[int, int]]]:
        """Per firing what it waits for, and by how much it starts later at least."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.times]
        for source, others in enumerate(self.waiting):
            for target, least in others:
                found[target].append((source, least))
        return found

    def conflict(self, starts: Sequence[int]) -> tuple[int, int, int] | None:
        """Firings a and b that overlap on a processor, and the turns from a to b; None if none do.

        a starts first on the clock, by less than its time.
        """
        around = self.circumference
        for firings in self.problem.processors.values():
            order = sorted((starts[v] % around, self.times[v], v) for v in firings)
            for i, (_, time, a) in enumerate(order):
                b = order[(i + 1) % len(order)][2]
                if a == b:
                    continue
                turns, distance = divmod(starts[b] - starts[a], around)
                if distance < time and (distance or self.times[b]):
                    return a, b, turns
        return None

    def turns(self, starts: Sequence[int]) -> Turns | None:
        """The static orders of starts without conflicts.

        Firings without a duration that start together go in the order in which they wait for each
        other; None if there is none.
        """
        order = self._in_order(starts)
        if order is None:
            return None
        found: dict[str, list[tuple[int, int]]] = {}
        for processor, firings in self.problem.processors.items():
            last = {v: (starts[v] % self.circumference, order[v]) for v in firings}
            found[processor] = [
                (v, starts[v] // self.circumference) for v in sorted(firings, key=last.__getitem__)
            ]
        return found

    def _in_order(self, starts: Sequence[int]) -> list[int] | None:
        """Ranks by which firings of the same instant go, those without a duration first."""
        together: list[list[int]] = [[] for _ in starts]
        missing = [0] * len(starts)
        for source, others in enumerate(self.waiting):
            if self.times[source] == 0:
                for target, least in others:
                    if starts[target] - starts[source] == least:
                        together[source].append(target)
                        missing[target] += 1
        ready = sorted(
            (v for v, n in enumerate(missing) if n == 0), key=lambda v: self.times[v] > 0
        )
        rank = [0] * len(starts)
        for number, firing in enumerate(ready):
            rank[firing] = number if self.times[firing] == 0 else number + len(starts)
            for target in together[firing]:
                missing[target] -= 1
                if missing[target] == 0:
                    ready.append(target)
        return None if len(ready) < len(starts) else rank


def problem(graph: Graph, processors: Mapping[str, str]) -> Problem:
    """The problem of `graph` with these actors on processors; they are to fire one at a time.

    Raises as `csdf.expansion.expand` does.
    """
    expansion = expand(graph)
    unit = expansion.events.time_unit
    times: list[int] = []
    on: dict[int, str] = {}
    for actor in graph.actors:
        own = expansion.firings(actor.name)
        cycle = [int(time * unit) for time in actor.execution_times]
        times += cycle * (len(own) // len(cycle))
        if actor.name in processors:
            on |= dict.fromkeys(own, processors[actor.name])
    return Problem(expansion, times, on)
