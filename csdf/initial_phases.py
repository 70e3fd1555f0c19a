"""Phases that actors go through once, before those that repeat: rates like `3,3;1,1,0` in SDF3 XML.

Nothing that happens once changes what happens for ever: whether a graph can be executed for ever,
how often its actors fire in an iteration, and the period in the long run are those of its state
once all initial phases are over. That state is found by execution. Whoever is to come past his
initial phases fires; what his next firing waits for is fired first, and nothing else. Then all go
on to the end of their phases, as far as that comes to an end, so that phases keep their numbers.

What the first iterations are like is another matter, and so is whether the initial phases fit into
capacities that are yet to be found; neither can be asked of that state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.consistency import repetition_vector
from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.graph import Channel, Graph

FIRING_LIMIT = 1_000_000
"""Firings until all initial phases are over, at most."""


@dataclass(frozen=True)
class InitialPhases:
    """Actor → times of its initial phases; channel → what they put into it and take out of it.

    An actor has as many as there are rates at each of its channels' ends; none is left out.
    """

    times: Mapping[str, tuple[Fraction, ...]]
    production: Mapping[str, tuple[int, ...]]
    consumption: Mapping[str, tuple[int, ...]]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return any(self.times.values())


def after(graph: Graph, initial: InitialPhases) -> Graph:
    """`graph` with the tokens that are in its channels once all initial phases are over.

    Raises `InconsistentGraphError`, `DeadlockError` if they never are, `TooLargeError`, and
    `CsdfError` if there is no such state in which all actors are about to begin their phases.
    """
    repetitions = repetition_vector(graph)
    run = _Run(graph, initial)
    for actor in graph.actor:
        run.fire(actor, len(initial.times[actor]))
    # From then on a state that is like another one comes within an iteration, if it comes at all.
    limit = {
        actor.name: run.fired[actor.name] + 2 * repetitions[actor.name] * actor.phases
        for actor in graph.actors
    }
    while within := [actor for actor in graph.actor if run.place(actor)]:
        for actor in within:
            if run.fired[actor] > limit[actor]:
                raise CsdfError(
                    f"after the initial phases, actor {actor!r} is never about to begin its phases "
                    "together with the others; such graphs are not supported"
                )
            rest = graph.actor[actor].phases - run.place(actor)
            run.fire(actor, run.fired[actor] + rest % graph.actor[actor].phases)
    return replace(
        graph,
        channels=tuple(
            replace(channel, initial_tokens=run.tokens[channel.name]) for channel in graph.channels
        ),
    )


class _Run:
    """An execution: `fired` per actor, `tokens` per channel."""

    def __init__(self, graph: Graph, initial: InitialPhases) -> None:
        self._graph, self._initial = graph, initial
        self.fired = dict.fromkeys(graph.actor, 0)
        self.tokens = {channel.name: channel.initial_tokens for channel in graph.channels}
        self._inputs = {
            name: [channel for channel in graph.channels if channel.target == name]
            for name in graph.actor
        }
        self._outputs = {
            name: [channel for channel in graph.channels if channel.source == name]
            for name in graph.actor
        }
        self._left = FIRING_LIMIT

    def place(self, actor: str) -> int:
        """Which of its repeated phases the actor fires next."""
        initial = len(self._initial.times[actor])
        return (self.fired[actor] - initial) % self._graph.actor[actor].phases

    def fire(self, actor: str, times: int) -> None:
        """Until it has fired `times` times, and before it whatever it waits for."""
        while self.fired[actor] < times:
            self._fire_once(actor)

    def _fire_once(self, wanted: str) -> None:
        waiting, reasons = [wanted], [""]
        while waiting:
            actor = waiting[-1]
            lack = self._lack(actor)
            if lack is None:
                self._move(actor)
                waiting.pop()
                reasons.pop()
                continue
            channel, missing = lack
            reasons[-1] = self._reason(actor, channel, missing)
            if channel.source in waiting:
                story = "; ".join(reasons[waiting.index(channel.source) :])
                raise DeadlockError(f"Deadlock before all initial phases are over: {story}.")
            waiting.append(channel.source)
            reasons.append("")

    def _lack(self, actor: str) -> tuple[Channel, int] | None:
        """A channel in which the next firing of `actor` lacks tokens, and how many."""
        for channel in self._inputs[actor]:
            rate = self._rate(actor, self._initial.consumption[channel.name], channel.consumption)
            if self.tokens[channel.name] < rate:
                return channel, rate - self.tokens[channel.name]
        return None

    def _reason(self, actor: str, channel: Channel, missing: int) -> str:
        number, initial = self.fired[actor], len(self._initial.times[actor])
        phase = f"initial phase {number}" if number < initial else f"phase {self.place(actor)}"
        tokens = "1 more token" if missing == 1 else f"{missing} more tokens"
        return (
            f"{actor!r} waits in {phase} for {tokens} in channel {channel.name!r}, "
            f"which {channel.source!r} would have to produce"
        )

    def _move(self, actor: str) -> None:
        if self._left == 0:
            raise TooLargeError(f"the initial phases are not over after {FIRING_LIMIT} firings")
        self._left -= 1
        for channel in self._inputs[actor]:
            own = self._initial.consumption[channel.name]
            self.tokens[channel.name] -= self._rate(actor, own, channel.consumption)
        for channel in self._outputs[actor]:
            own = self._initial.production[channel.name]
            self.tokens[channel.name] += self._rate(actor, own, channel.production)
        self.fired[actor] += 1

    def _rate(self, actor: str, initial: Sequence[int], repeated: Sequence[int]) -> int:
        number = self.fired[actor]
        return initial[number] if number < len(initial) else repeated[self.place(actor)]
