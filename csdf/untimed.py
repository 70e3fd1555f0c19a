"""Executes a graph firing by firing without time: what can happen at all, in any order.

Whether and how far a dataflow graph can be executed does not depend on the order of its firings,
because a firing that is enabled stays so until it happens. So one greedy execution decides. Its
cost is in firings, not in tokens, and whole cycles of an actor's phases are fired at once where its
channels allow, so that high rates and long buffers cost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from csdf.errors import TooLargeError
from csdf.lowered import Lowered

STEP_LIMIT = 20_000_000
"""Firings (or batches of whole cycles) after which an execution gives up."""


@dataclass(frozen=True, slots=True)
class _Actor:
    """An actor's channels: per phase what it takes and gives, and per whole cycle."""

    takes: list[list[tuple[int, int]]]
    gives: list[list[tuple[int, int]]]
    cycle_takes: list[tuple[int, int]]
    cycle_gives: list[tuple[int, int]]
    own: list[tuple[int, int]]
    """Self-channels with the tokens that they need for a whole cycle."""
    followers: list[int]


class Execution:
    """The state of an untimed execution: `tokens` per arc, `fired` per actor."""

    def __init__(self, graph: Lowered, firings: Sequence[int]) -> None:
        """`firings` bounds how often each actor fires: whole cycles of its phases."""
        self.graph = graph
        self.tokens = [arc.tokens for arc in graph.arcs]
        self.fired = [0] * len(graph.names)
        self._firings = firings
        self._actors = _actors(graph)
        self._steps = 0

    @property
    def stuck(self) -> list[int]:
        """Actors that have not fired as often as they should."""
        return [a for a, fired in enumerate(self.fired) if fired < self._firings[a]]

    def phase(self, actor: int) -> int:
        """The phase that `actor` fires next."""
        return self.fired[actor] % len(self.graph.times[actor])

    def missing(self, actor: int) -> list[tuple[int, int]]:
        """(arc, tokens missing) for all that keeps `actor` from firing."""
        return [
            (arc, rate - self.tokens[arc])
            for arc, rate in self._actors[actor].takes[self.phase(actor)]
            if self.tokens[arc] < rate
        ]

    def run(self, start: Sequence[int] | None = None) -> bool:
        """Fires until nothing can; `start` names the actors that may be enabled (None: any).

        Returns whether every actor fired as often as it should. Raises `TooLargeError`.
        """
        waiting = deque(range(len(self.fired)) if start is None else start)
        queued = [False] * len(self.fired)
        for actor in waiting:
            queued[actor] = True
        while waiting:
            actor = waiting.popleft()
            queued[actor] = False
            if self._fire_all(actor):
                for follower in self._actors[actor].followers:
                    if not queued[follower]:
                        queued[follower] = True
                        waiting.append(follower)
        return all(fired == wanted for fired, wanted in zip(self.fired, self._firings, strict=True))

    def _fire_all(self, actor: int) -> bool:
        tokens, about = self.tokens, self._actors[actor]
        phases = len(about.takes)
        before = self.fired[actor]
        while self.fired[actor] < self._firings[actor]:
            self._steps += 1
            if self._steps > STEP_LIMIT:
                raise TooLargeError(
                    f"one iteration of the graph is {sum(self._firings)} firings, and its channels "
                    f"allow so few at a time that {STEP_LIMIT} steps did not suffice"
                )
            phase = self.fired[actor] % phases
            if phase == 0:
                cycles = self._whole_cycles(actor)
                if cycles > 0:
                    for arc, rate in about.cycle_takes:
                        tokens[arc] -= cycles * rate
                    for arc, rate in about.cycle_gives:
                        tokens[arc] += cycles * rate
                    self.fired[actor] += cycles * phases
                    continue
            takes = about.takes[phase]
            if any(tokens[arc] < rate for arc, rate in takes):
                break
            for arc, rate in takes:
                tokens[arc] -= rate
            for arc, rate in about.gives[phase]:
                tokens[arc] += rate
            self.fired[actor] += 1
        return self.fired[actor] > before

    def _whole_cycles(self, actor: int) -> int:
        about = self._actors[actor]
        if any(self.tokens[arc] < need for arc, need in about.own):
            return 0
        cycles = (self._firings[actor] - self.fired[actor]) // len(about.takes)
        for arc, rate in about.cycle_takes:
            cycles = min(cycles, self.tokens[arc] // rate)
        return cycles


def _actors(graph: Lowered) -> list[_Actor]:
    actors = [
        _Actor([[] for _ in times], [[] for _ in times], [], [], [], []) for times in graph.times
    ]
    for number, arc in enumerate(graph.arcs):
        source, target = actors[arc.source], actors[arc.target]
        for phase, rate in enumerate(arc.production):
            if rate:
                source.gives[phase].append((number, rate))
        for phase, rate in enumerate(arc.consumption):
            if rate:
                target.takes[phase].append((number, rate))
        if arc.source != arc.target:
            target.cycle_takes.append((number, sum(arc.consumption)))
            source.cycle_gives.append((number, sum(arc.production)))
            if arc.target not in source.followers:
                source.followers.append(arc.target)
            continue
        held = need = 0
        for produced, consumed in zip(arc.production, arc.consumption, strict=True):
            held -= consumed
            need = max(need, -held)
            held += produced
        target.own.append((number, need))
    return actors
