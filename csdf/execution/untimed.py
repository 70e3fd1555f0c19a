"""Execute a graph without time, in any order, until all actors are done or none can fire.

Whether and how far a dataflow graph can be executed does not depend on the order of its firings,
because an enabled firing stays enabled until it happens. So one greedy execution decides. Where its
channels allow, an actor fires many cycles of its phases at once, so the cost does not depend on the
height of rates and capacities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from csdf.errors import TooLargeError
from csdf.execution.token_state import TokenState
from csdf.model.lowered import Lowered, readable

STEP_LIMIT = 5_000_000
"""Steps after which an execution gives up; a firing or a batch of whole cycles is one step."""


@dataclass(frozen=True, slots=True)
class _Cycle:
    """The (arc, tokens) that a whole cycle of an actor's phases consumes and produces.

    `own` are its self-channels, with the tokens that they must hold for a whole cycle.
    """

    consumes: list[tuple[int, int]]
    produces: list[tuple[int, int]]
    own: list[tuple[int, int]]


class Execution:
    """An untimed execution, and the `state` that it has reached.

    If `schedule` is a list, `run` adds (actor, firings) for all that fire one after the other.
    """

    schedule: list[tuple[int, int]] | None = None

    def __init__(
        self, graph: Lowered, firings: Sequence[int], step_limit: int = STEP_LIMIT
    ) -> None:
        """`firings` is how often each actor is to fire, a multiple of its number of phases."""
        self.state = TokenState(graph)
        self._firings = firings
        self._cycles = _cycles(graph)
        self.step_limit = step_limit
        self._steps = 0

    @property
    def stuck(self) -> list[int]:
        """Actors that have not fired as often as they should."""
        return [a for a, fired in enumerate(self.state.fired) if fired < self._firings[a]]

    def run(self) -> bool:
        """Fire until nothing can.

        Returns whether every actor fired as often as it should. Raises `TooLargeError`.
        """
        self.state.wake_all()
        fired = self.state.fired
        while self.state.woken:
            actor = self.state.woken.popleft()
            before = fired[actor]
            self._fire_all(actor)
            if self.schedule is not None and fired[actor] > before:
                self.schedule.append((actor, fired[actor] - before))
        return not self.stuck

    def _fire_all(self, actor: int) -> None:
        state, whole, fired = self.state, self._cycles[actor], self.state.fired
        produces, wanted = state.produces[actor], self._firings[actor]
        phases = len(produces)
        while fired[actor] < wanted:
            self._count_step()
            phase = fired[actor] % phases
            if phase == 0:
                cycles = self._whole_cycles(actor)
                if cycles > 0:
                    for arc, rate in whole.consumes:
                        state.tokens[arc] -= cycles * rate
                    fired[actor] += cycles * phases
                    state.produce([(arc, cycles * rate) for arc, rate in whole.produces])
                    continue
            if state.begin(actor) < 0:
                return
            state.produce(produces[phase])

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > self.step_limit:
            raise TooLargeError(
                f"one iteration of the graph is {readable(sum(self._firings))} firings, and its "
                f"channels allow so few at a time that {self.step_limit} steps did not suffice"
            )

    def _whole_cycles(self, actor: int) -> int:
        whole, state = self._cycles[actor], self.state
        if any(state.tokens[arc] < need for arc, need in whole.own):
            return 0
        cycles = (self._firings[actor] - state.fired[actor]) // len(state.produces[actor])
        for arc, rate in whole.consumes:
            cycles = min(cycles, state.tokens[arc] // rate)
        return cycles


def waiting_cycle(execution: Execution) -> list[tuple[int, int, int]]:
    """Return (actor, arc, missing tokens) around a cycle of waits, from its lowest actor on.

    The execution must be stuck: every actor that has not fired as often as it should waits.
    """
    path: list[tuple[int, int, int]] = []
    place: dict[int, int] = {}
    actor = execution.stuck[0]
    while actor not in place:
        place[actor] = len(path)
        arc, missing = execution.state.missing(actor)[0]
        path.append((actor, arc, missing))
        actor = execution.state.graph.arcs[arc].source
    cycle = path[place[actor] :]
    first = cycle.index(min(cycle))
    return cycle[first:] + cycle[:first]


def _cycles(graph: Lowered) -> list[_Cycle]:
    cycles = [_Cycle([], [], []) for _ in graph.names]
    for number, arc in enumerate(graph.arcs):
        if arc.source != arc.target:
            cycles[arc.target].consumes.append((number, sum(arc.consumption)))
            cycles[arc.source].produces.append((number, sum(arc.production)))
            continue
        held = need = 0
        for produced, consumed in zip(arc.production, arc.consumption, strict=True):
            held -= consumed
            need = max(need, -held)
            held += produced
        cycles[arc.target].own.append((number, need))
    return cycles
