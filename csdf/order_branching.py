"""The best static order of one iteration per period, by branch and bound; exact, for small graphs.

Of two firings on a processor, either b comes at least m turns after a has ended, or a comes less
than m + 1 turns before b, for every whole m; both are ordinary constraints. A node of the search
has some of them; its period without regard to the processors is a bound from below (the maximum
cycle ratio), and the earliest starts at that period are an order unless two firings overlap, which
are then branched on, with the m that excludes them either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from csdf.order_problem import Problem, Turns, Wait

Waits = tuple[Wait, ...]

_Node = tuple[Fraction, Waits, list[int]]
"""(bound, constraints added, earliest starts)"""


@dataclass(frozen=True)
class Branched:
    """The best order found with a period below the limit, if any; whether it is the best of all.

    `exhausted` tells that nothing was left out: no order has a period below that of `turns` (or
    below the limit, if that is None). `effort` is what was spent.
    """

    turns: Turns | None
    period: Fraction
    exhausted: bool
    effort: int


def branch(problem: Problem, limit: Fraction, effort: int) -> Branched:
    """Searches for orders with a period below `limit` (in units of 1 / `events.time_unit`).

    `effort` bounds the constraints looked at.
    """
    search = _Search(problem, limit, effort)
    search.run()
    return Branched(search.turns, search.best, search.complete, search.spent)


class _Search:
    def __init__(self, problem: Problem, limit: Fraction, effort: int) -> None:
        self.problem, self.best, self.effort = problem, limit, effort
        self.turns: Turns | None = None
        self.spent = 0
        self.complete = True

    def run(self) -> None:
        """Depth first, the more promising branch first."""
        stack = self._opened([()])
        while stack and self.best > self.problem.least:
            if self.spent >= self.effort:
                self.complete = False
                return
            bound, waits, starts = stack.pop()
            if bound < self.best:
                stack += self._branches(bound, waits, starts)

    def _branches(self, bound: Fraction, waits: Waits, starts: list[int]) -> list[_Node]:
        """None if the starts are an order."""
        clock = self.problem.clock(bound)
        found = clock.conflict(starts)
        if found is None:
            turns = clock.turns(starts)
            if turns is None or not self._take(turns):
                self.complete = False  # firings without a duration that wait for each other
            return []
        a, b, m = found
        times = self.problem.times
        return self._opened([(*waits, (a, b, times[a], -m)), (*waits, (b, a, times[b], m))])

    def _opened(self, several: list[Waits]) -> list[_Node]:
        """Nodes of the search that may be better than what is known, the best last."""
        found = []
        for waits in several:
            self.spent += len(self.problem.waits) + len(waits)
            relaxed = self.problem.relaxed(waits)
            if relaxed.ratio is not None and relaxed.ratio < self.best:
                found.append((relaxed.ratio, waits, [int(value) for value in relaxed.potentials]))
        return sorted(found, key=lambda node: node[0], reverse=True)

    def _take(self, turns: Turns) -> bool:
        found = self.problem.relaxed(self.problem.turn_waits(turns)).ratio
        if found is None:
            return False
        if found < self.best:
            self.best, self.turns = found, turns
        return True
