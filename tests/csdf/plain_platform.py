"""The plainest simulation of processors and of machines, to hold `csdf.execution.simulation` to.

Written from their descriptions alone, on exact rationals and without a queue: at every instant
all actors are checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from csdf.model.graph import Graph

Firing = tuple[str, Fraction, Fraction]


@dataclass
class _Running:
    actor: str
    phase: int
    started: Fraction
    left: Fraction
    """Work, at speed 1."""


class Plain:
    """Runs some iterations of a graph in which no actor overlaps itself."""

    def __init__(
        self,
        graph: Graph,
        repetitions: Mapping[str, int],
        iterations: int,
        on: Mapping[str, str],
        shared: frozenset[str] = frozenset(),
    ) -> None:
        """`on` gives actors processors; those of `shared` are on one machine of one CPU."""
        self.graph = graph
        self.cycle = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
        self.iterations = iterations
        self.on = on
        self.shared = shared
        self.tokens = {c.name: c.initial_tokens for c in graph.channels}
        self.free = {
            c.name: c.capacity - c.initial_tokens for c in graph.channels if c.capacity is not None
        }
        self.fired = dict.fromkeys(self.cycle, 0)
        self.running: list[_Running] = []
        self.now = Fraction(0)
        self.found: list[Firing] = []

    def all(self) -> list[Firing]:
        while True:
            self.instant()
            if not self.running:
                return self.found
            self.pass_time()

    def instant(self) -> None:
        """Ends first, then actors without a processor, then each processor takes one; again."""
        changed = True
        while changed:
            changed = False
            for one in [r for r in self.running if r.left == 0]:
                self.end(one)
                changed = True
            while able := [a for a in self.cycle if a not in self.on and self.can_fire(a)]:
                self.start(able[0])
                changed = True
            for processor in dict.fromkeys(self.on.values()):
                able = [a for a, own in self.on.items() if own == processor and self.can_fire(a)]
                if able:
                    names = list(self.cycle)
                    self.start(
                        min(able, key=lambda a: (self.fired[a] // self.cycle[a], names.index(a)))
                    )
                    changed = True

    def pass_time(self) -> None:
        sharing = sum(self.is_shared(one) for one in self.running)
        rate = {id(r): Fraction(1, sharing) if self.is_shared(r) else 1 for r in self.running}
        step = min(one.left / rate[id(one)] for one in self.running)
        self.now += step
        for one in self.running:
            one.left -= step * rate[id(one)]

    def is_shared(self, one: _Running) -> bool:
        return self.on.get(one.actor) in self.shared

    def can_fire(self, actor: str) -> bool:
        if self.fired[actor] == self.iterations * self.cycle[actor]:
            return False
        own = self.on.get(actor)
        for one in self.running:
            if one.actor == actor or (own is not None and self.on.get(one.actor) == own):
                return False
        phase = self.fired[actor] % self.graph.actor[actor].phases
        return all(
            self.tokens[c.name] >= c.consumption[phase]
            for c in self.graph.channels
            if c.target == actor
        ) and all(
            self.free[c.name] >= c.production[phase]
            for c in self.graph.channels
            if c.source == actor and c.name in self.free
        )

    def start(self, actor: str) -> None:
        phase = self.fired[actor] % self.graph.actor[actor].phases
        for c in self.graph.channels:
            if c.target == actor:
                self.tokens[c.name] -= c.consumption[phase]
            if c.source == actor and c.name in self.free:
                self.free[c.name] -= c.production[phase]
        self.fired[actor] += 1
        work = self.graph.actor[actor].execution_times[phase]
        self.running.append(_Running(actor, phase, self.now, work))

    def end(self, one: _Running) -> None:
        self.running.remove(one)
        self.found.append((one.actor, one.started, self.now))
        for c in self.graph.channels:
            if c.source == one.actor:
                self.tokens[c.name] += c.production[one.phase]
            if c.target == one.actor and c.name in self.free:
                self.free[c.name] += c.consumption[one.phase]
