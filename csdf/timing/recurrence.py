"""Self-timed start times, iteration by iteration, until they recur.

Start times obey x_j(n) = max over constraints of x_i(n − delay) + time (`csdf.timing.expansion`),
so they are computed one iteration after the other. Let λ be the pace at which the firings can go on
in the long run, and S their earliest starts in a schedule of period λ. Then y_j(n) = x_j(n) − n λ −
S_j obeys y_j(n) = max of y_i(n − delay) − float: it never exceeds the largest value before it.
Firings that depend on a critical cycle (floats of 0 all round) are **held**: their y recur. The
others run ahead, their y fall without end, and they cease to matter: at the latest when all of
theirs are below all that the held ones take from then on.

So the starts recur as soon as the y of the held firings are, as far back as anything looks, what
they were before, provided that by then the others had ceased to matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from csdf.model.static_orders import Ordered
from csdf.timing.cycle_ratio import maximum_cycle_ratio
from csdf.timing.expansion import Expansion


@dataclass(frozen=True)
class Starts:
    """`begins[k][w]` is the start of watched firing w in the k-th iteration of all.

    In units of 1 / `events.time_unit`; None if it does not exist. From place `recurs` on they come
    back every `length` iterations, later by as many times λ; both are None if that was not found.
    """

    begins: Sequence[Sequence[int | None]]
    recurs: int | None
    length: int | None


class SelfTimedFirings:
    """The self-timed execution of `firings`, which must depend on no others.

    The expansion's iteration 0 comes after the prologue of `placed`; what was fired then is in
    earlier ones. Their other firings do not exist, except that on its processor one passes on the
    turn.
    """

    def __init__(self, expansion: Expansion, placed: Ordered, firings: Collection[int]) -> None:
        chosen = sorted(firings)
        self._place = {firing: i for i, firing in enumerate(chosen)}
        events = expansion.events
        inside = np.isin(events.target, np.array(chosen))
        source, target = (
            np.searchsorted(np.array(chosen), ends[inside])
            for ends in (events.source, events.target)
        )
        turns = [number for number, name in expansion.channels.items() if name in placed.turns]
        columns = (
            source,
            target,
            events.time[inside],
            events.delay[inside],
            np.isin(events.arc[inside], np.array(turns, np.int64)),
        )
        edges = list(zip(*(column.tolist() for column in columns), strict=True))
        self._waits: list[list[tuple[int, int, int, bool]]] = [[] for _ in chosen]
        self._look = [0] * len(chosen)
        for from_, to, time, delay, is_turn in edges:
            self._waits[to].append((from_, time, delay, is_turn))
            self._look[from_] = max(self._look[from_], delay)
        self._memory = max(self._look, default=0) or 1
        self._work = len(edges) + len(chosen) + sum(self._look)
        # Edges are turned round so that the potentials are walks to, not from, each firing.
        result = maximum_cycle_ratio(len(chosen), target, source, *columns[2:4])
        assert result.ratio is not None  # noqa: S101 (the graph is live)
        self._pace = result.ratio
        self._potentials = [int(value) for value in result.potentials]
        self._held = self._find_held()
        self._order = self._within_iteration()
        # Iteration −k of the expansion has those firings that are within the last `fired`.
        self._begins = [0] * len(chosen)
        for actor in expansion.actors:
            own = expansion.firings(actor)
            for number, firing in enumerate(own):
                if firing in self._place:
                    begins = -((placed.fired[actor] + number) // len(own))
                    self._begins[self._place[firing]] = begins
        self.earliest = min(self._begins)
        """The expansion's iteration in which the first of them is."""

    def is_held(self, firing: int) -> bool:
        """Whether it goes at the pace of all, and does not run ahead."""
        return self._held[self._place[firing]]

    def run(self, watched: Sequence[int], work_limit: int, needed: int) -> Starts:
        """Until the starts recur, once all over again, and `needed` iterations more.

        After `work_limit` constraints, only until there are `needed`.
        """
        places = [self._place[firing] for firing in watched]
        recent: deque[list[int | None]] = deque(maxlen=self._memory)
        begins: list[list[int | None]] = []
        memory = _Memory(self._pace.denominator, self._pace.numerator, self._potentials)
        recurs = length = None
        work, end = 0, needed
        while len(begins) < end or (length is None and work < work_limit):
            now = self._iteration(self.earliest + len(begins), recent)
            recent.append(now)
            begins.append([now[place] for place in places])
            work += self._work
            if length is None and self.earliest + len(begins) >= self._memory:
                length = memory.came_back(len(begins), recent, self._held, self._look)
                if length is not None:
                    recurs = len(begins) - length
                    end = len(begins) + needed
        return Starts(begins, recurs, length)

    def _iteration(
        self, iteration: int, recent: Sequence[Sequence[int | None]]
    ) -> list[int | None]:
        """Starts; for what does not exist, when its processor passes it by (None: at once)."""
        now: list[int | None] = [None] * len(self._waits)
        done = len(recent)
        for firing in self._order:
            exists = iteration >= self._begins[firing]
            start = 0 if exists else None
            for source, time, delay, is_turn in self._waits[firing]:
                if delay > done:
                    continue
                before = iteration - delay >= self._begins[source]
                end = now[source] if delay == 0 else recent[-delay][source]
                if end is None or not (is_turn or (before and exists)):
                    continue
                if before:
                    end += time
                if start is None or end > start:
                    start = end
            now[firing] = start
        return now

    def _within_iteration(self) -> list[int]:
        """The firings in an order in which those of one iteration wait for each other."""
        waits = [[source for source, _, delay, _ in own if delay == 0] for own in self._waits]
        order, rest = _peeled(waits)
        assert not any(rest)  # noqa: S101 (the graph is live)
        return order

    def _find_held(self) -> list[bool]:
        if not self._pace:
            return [True] * len(self._waits)
        scale, turn, first = self._pace.denominator, self._pace.numerator, self._potentials
        tight = [
            [
                source
                for source, time, delay, _ in own
                if first[target] - first[source] == time * scale - delay * turn
            ]
            for target, own in enumerate(self._waits)
        ]
        _, held = _peeled(tight)
        waiting: list[list[int]] = [[] for _ in held]
        for target, own in enumerate(self._waits):
            for source, *_ in own:
                waiting[source].append(target)
        reached = [firing for firing, is_held in enumerate(held) if is_held]
        for firing in reached:  # grows meanwhile
            for target in waiting[firing]:
                if not held[target]:
                    held[target] = True
                    reached.append(target)
        return held


def _peeled(waits: Sequence[Sequence[int]]) -> tuple[list[int], list[bool]]:
    """Who can go after all for whom he waits, in such an order; and who waits round a cycle."""
    missing = [len(own) for own in waits]
    leads: list[list[int]] = [[] for _ in waits]
    for target, own in enumerate(waits):
        for source in own:
            leads[source].append(target)
    order = [node for node, count in enumerate(missing) if count == 0]
    for node in order:  # grows meanwhile
        for target in leads[node]:
            missing[target] -= 1
            if missing[target] == 0:
                order.append(target)
    return order, [count > 0 for count in missing]


class _Memory:
    """What the y of the held firings have been, and the most that anything else was then."""

    def __init__(self, scale: int, turn: int, potentials: Sequence[int]) -> None:
        self._scale, self._turn, self._potentials = scale, turn, potentials
        self._seen: dict[tuple[int, ...], tuple[int, int | None]] = {}
        self._least: list[int] = []
        """Of the held ones, per iteration."""

    def came_back(
        self,
        iteration: int,
        recent: Sequence[Sequence[int | None]],
        held: Sequence[bool],
        look: Sequence[int],
    ) -> int | None:
        """How many iterations ago everything that matters was the same."""
        state: list[int] = []
        # Nobody starts before 0: that, too, bounds from below, and falls behind with time.
        others: int | None = -iteration * self._turn if self._turn else None
        least: int | None = None
        for firing, back in enumerate(look):
            for k in range(max(1, back)):
                start = recent[-1 - k][firing]
                assert start is not None  # noqa: S101 (nothing looks back to before the prologue)
                y = start * self._scale - self._potentials[firing] - (iteration - k) * self._turn
                if not held[firing]:
                    others = y if others is None else max(others, y)
                    continue
                if k == 0 and (least is None or y < least):
                    least = y
                if k < back:
                    state.append(y)
        self._least.append(0 if least is None else least)
        now, key = len(self._least), tuple(state)
        if key in self._seen:
            then, ahead = self._seen[key]
            if ahead is None or ahead < min(self._least[then:now]):
                return now - then
        self._seen[key] = now, others
        return None
