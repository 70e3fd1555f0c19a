"""The plainest simulation of processors, to hold `csdf.execution.simulation` to.

Written from their descriptions alone, on exact rationals and without a queue: at every instant
all actors are checked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from csdf.model.graph import Graph
from tests.csdf.oracle import Bounded, Firing


class Plain(Bounded):
    """Runs some iterations of a graph in which no actor overlaps itself."""

    def __init__(
        self,
        graph: Graph,
        repetitions: Mapping[str, int],
        iterations: int,
        on: Mapping[str, str],
    ) -> None:
        """`on` gives actors processors."""
        super().__init__(graph, repetitions, iterations)
        self.on = on
        self.found: list[tuple[str, Fraction, Fraction]] = []

    def all(self) -> list[tuple[str, Fraction, Fraction]]:
        """(actor, start, end) of every firing."""
        self.run()
        return self.found

    def able(self, actor: str) -> bool:
        own = self.on.get(actor)
        return super().able(actor) and (
            own is None or all(self.on.get(one.actor) != own for one in self.running)
        )

    def instant(self) -> Iterator[Firing]:
        """Ends first, then actors without a processor, then each processor takes one; again."""
        names = list(self.fired)
        started = True
        while started:
            started = False
            self.end_due()
            while able := [a for a in names if a not in self.on and self.able(a)]:
                started = True
                yield self.start(able[0])
            for processor in dict.fromkeys(self.on.values()):
                able = [a for a in names if self.on.get(a) == processor and self.able(a)]
                if able:
                    started = True
                    yield self.start(min(able, key=lambda a: self.fired[a] // self.cycle[a]))

    def end(self, one: Firing) -> None:
        super().end(one)
        self.found.append((one.actor, one.start, self.now))
