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
from csdf.lowered import Lowered, neighbours
from csdf.whole_numbers import readable

STEP_LIMIT = 5_000_000
"""Firings (or batches of whole cycles) after which an execution gives up."""


@dataclass(frozen=True, slots=True)
class _Cycle:
    """What a whole cycle of an actor's phases takes from and gives to others, as (arc, tokens).

    `own` are its self-channels, with the tokens that they must hold for a whole cycle.
    """

    takes: list[tuple[int, int]]
    gives: list[tuple[int, int]]
    own: list[tuple[int, int]]


class Execution:
    """The state of an untimed execution: `tokens` per arc, `fired` per actor."""

    def __init__(
        self, graph: Lowered, firings: Sequence[int], step_limit: int = STEP_LIMIT
    ) -> None:
        """`firings` bounds how often each actor fires: whole cycles of its phases."""
        self.graph = graph
        self.tokens = [arc.tokens for arc in graph.arcs]
        self.fired = [0] * len(graph.names)
        self._firings = firings
        self._about = neighbours(graph)
        self._cycles = _cycles(graph)
        self._targets = [arc.target for arc in graph.arcs]
        self._waiting: deque[int] = deque()
        # Per waiting actor one arc that lacks tokens, and how many that is to hold.
        self._lacks: list[tuple[int, int]] = []
        self._steps, self._step_limit = 0, step_limit

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
            for arc, rate in self._about.takes[actor][self.phase(actor)]
            if self.tokens[arc] < rate
        ]

    def run(self) -> bool:
        """Fires until nothing can.

        Returns whether every actor fired as often as it should. Raises `TooLargeError`.
        """
        self._lacks = [(-1, 0)] * len(self.fired)
        self._waiting = deque(range(len(self.fired)))
        while self._waiting:
            self._fire_all(self._waiting.popleft())
        return all(fired == wanted for fired, wanted in zip(self.fired, self._firings, strict=True))

    def _fire_all(self, actor: int) -> None:
        tokens, whole = self.tokens, self._cycles[actor]
        takes_by_phase, gives_by_phase = self._about.takes[actor], self._about.gives[actor]
        phases = len(takes_by_phase)
        while self.fired[actor] < self._firings[actor]:
            self._count_step()
            phase = self.fired[actor] % phases
            if phase == 0:
                cycles = self._whole_cycles(actor)
                if cycles > 0:
                    for arc, rate in whole.takes:
                        tokens[arc] -= cycles * rate
                    self.fired[actor] += cycles * phases
                    for arc, rate in whole.gives:
                        self._give(arc, cycles * rate)
                    continue
            takes = takes_by_phase[phase]
            for arc, rate in takes:
                if tokens[arc] < rate:
                    self._lacks[actor] = (arc, rate)
                    return
            for arc, rate in takes:
                tokens[arc] -= rate
            self.fired[actor] += 1
            for arc, rate in gives_by_phase[phase]:
                self._give(arc, rate)

    def _give(self, arc: int, tokens: int) -> None:
        """Puts tokens into `arc`, and wakes its target if it waits for just that."""
        self.tokens[arc] += tokens
        target = self._targets[arc]
        lacks, rate = self._lacks[target]
        if lacks == arc and self.tokens[arc] >= rate:
            self._lacks[target] = (-1, 0)
            self._waiting.append(target)

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > self._step_limit:
            raise TooLargeError(
                f"one iteration of the graph is {readable(sum(self._firings))} firings, and its "
                f"channels allow so few at a time that {self._step_limit} steps did not suffice"
            )

    def _whole_cycles(self, actor: int) -> int:
        whole = self._cycles[actor]
        if any(self.tokens[arc] < need for arc, need in whole.own):
            return 0
        cycles = (self._firings[actor] - self.fired[actor]) // len(self._about.takes[actor])
        for arc, rate in whole.takes:
            cycles = min(cycles, self.tokens[arc] // rate)
        return cycles


def waiting_cycle(execution: Execution) -> list[tuple[int, int, int]]:
    """(actor, arc, missing) around a cycle of waits, starting at the actor of lowest number.

    `execution` must be stuck: every actor that has not fired as often as it should waits.
    """
    path: list[tuple[int, int, int]] = []
    place: dict[int, int] = {}
    actor = execution.stuck[0]
    while actor not in place:
        place[actor] = len(path)
        arc, missing = execution.missing(actor)[0]
        path.append((actor, arc, missing))
        actor = execution.graph.arcs[arc].source
    cycle = path[place[actor] :]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _cycles(graph: Lowered) -> list[_Cycle]:
    cycles = [_Cycle([], [], []) for _ in graph.names]
    for number, arc in enumerate(graph.arcs):
        if arc.source != arc.target:
            cycles[arc.target].takes.append((number, sum(arc.consumption)))
            cycles[arc.source].gives.append((number, sum(arc.production)))
            continue
        held = need = 0
        for produced, consumed in zip(arc.production, arc.consumption, strict=True):
            held -= consumed
            need = max(need, -held)
            held += produced
        cycles[arc.target].own.append((number, need))
    return cycles
