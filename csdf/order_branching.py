"""The best static order of one iteration per period, by branch and bound; exact, for small graphs.

Of two firings on a processor, either b comes at least m turns after a has ended, or a comes less
than m + 1 turns before b, for every whole m; both are ordinary constraints. A node of the search
has some of them; its period without regard to the processors is a bound from below (the maximum
cycle ratio), and the earliest starts at that period are an order unless two firings overlap, which
are then branched on, with the m that excludes them either way.

Firings that do not wait for each other round a cycle can be put off against each other by any
number of turns, at the price of offsets only. So the search leaves out what lies between them, and
settles the turns between two such groups when they first meet, without branching; then they are one
group. That leaves finitely many turns to try. In the end each group is put off as far as it must.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from csdf.components import strongly_connected
from csdf.order_problem import Clock, Problem, Turns, Wait

Waits = tuple[Wait, ...]

Groups = tuple[int, ...]
"""Per firing the group that it is in."""


@dataclass(frozen=True)
class Branched:
    """The best order found with a period below the limit, if any.

    `exhausted` tells that nothing was left out: no order has a period below that of `turns` (or
    below the limit, if that is None).
    """

    turns: Turns | None
    exhausted: bool


@dataclass(frozen=True)
class _Node:
    bound: Fraction
    waits: Waits
    groups: Groups
    starts: list[int]


def branch(problem: Problem, limit: Fraction, effort: int) -> Branched:
    """Searches for orders with a period below `limit` (in units of 1 / `events.time_unit`).

    `effort` bounds the constraints looked at.
    """
    search = _Search(problem, limit, effort)
    search.run()
    return Branched(search.turns, search.complete)


class _Search:
    def __init__(self, problem: Problem, limit: Fraction, effort: int) -> None:
        self.problem, self.best, self.left = problem, limit, effort
        self.parts = _parts(problem)
        self.inner = problem.within(self.parts)
        self.turns: Turns | None = None
        self.complete = True

    def run(self) -> None:
        """Depth first, the more promising branch first."""
        stack = self._opened([((), self.parts)])
        while stack and self.best > self.problem.least:
            if self.left <= 0:
                self.complete = False
                return
            node = stack.pop()
            if node.bound < self.best:
                stack += self._branches(node)

    def _branches(self, node: _Node) -> list[_Node]:
        """None if the starts are an order."""
        clock = self.problem.clock(node.bound)
        found = clock.conflict(node.starts)
        if found is None:
            turns = clock.turns(_put_off(clock, self.parts, node.starts))
            if turns is None or not self._take(turns):
                self.complete = False  # firings without a duration that wait for each other
            return []
        a, b, m = found
        times, groups, waits = self.problem.times, node.groups, node.waits
        first, second = (a, b, times[a], -m), (b, a, times[b], m)
        if groups[a] == groups[b]:
            return self._opened([((*waits, first), groups), ((*waits, second), groups)])
        joined = tuple(groups[a] if group == groups[b] else group for group in groups)
        return self._opened([((*waits, first, (b, a, times[b], m + 1)), joined)])

    def _opened(self, several: list[tuple[Waits, Groups]]) -> list[_Node]:
        """Nodes of the search that may be better than what is known, the best last."""
        found = []
        for waits, groups in several:
            self.left -= len(self.inner.waits) + len(waits)
            relaxed = self.inner.relaxed(waits)
            if relaxed.ratio is not None and relaxed.ratio < self.best:
                starts = [int(value) for value in relaxed.potentials]
                found.append(_Node(relaxed.ratio, waits, groups, starts))
        return sorted(found, key=lambda node: node.bound, reverse=True)

    def _take(self, turns: Turns) -> bool:
        found = self.problem.relaxed(self.problem.turn_waits(turns)).ratio
        if found is None:
            return False
        if found < self.best:
            self.best, self.turns = found, turns
        return True


def _parts(problem: Problem) -> Groups:
    """Per firing the number of the part of those that wait for each other round cycles."""
    events = problem.expansion.events
    edges = zip(events.source.tolist(), events.target.tolist(), strict=True)
    part = [0] * events.nodes
    for number, firings in enumerate(strongly_connected(events.nodes, edges)):
        for firing in firings:
            part[firing] = number
    return tuple(part)


def _put_off(clock: Clock, parts: Groups, starts: list[int]) -> list[int]:
    """The same starts on the clock, so many turns later that each waits for what it must."""
    turns = dict.fromkeys(parts, 0)
    between = [
        (parts[source], parts[target], -(-(starts[source] + time - starts[target]) // around) - d)
        for around in [clock.circumference]
        for source, target, time, d in clock.waits
        if parts[source] != parts[target]
    ]
    changed = True
    while changed:  # once per part in a row, for there is no way back
        changed = False
        for before, after, least in between:
            if turns[after] < turns[before] + least:
                turns[after] = turns[before] + least
                changed = True
    return [
        start + turns[part] * clock.circumference for start, part in zip(starts, parts, strict=True)
    ]
