"""The tokens and firings of an execution, and the actors that a change may have enabled.

The state, which all engines share, is the number of tokens in each arc and the number of firings
that each actor has begun. A firing consumes tokens when it begins and produces tokens when it ends;
an actor is *enabled* if all arcs that it consumes from hold enough. The engines differ in when they
begin and end firings: in any order, without time (`csdf.execution.untimed`); as soon as possible
(`csdf.timing.selftimed`); on processors (`csdf.execution.simulation`); or only where another firing
needs it (`csdf.execution.prologue`).

An actor that is not enabled awaits one arc that holds too few tokens, and joins the queue `woken`
when that arc holds enough. So an engine that examines only the actors of this queue does work in
proportion to the firings and the arcs that they touch, however many actors there are.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

from csdf.model.lowered import Lowered

Rates = Sequence[tuple[int, int]]
"""The tokens that one firing consumes or produces, as (arc, tokens) without zero rates."""

NOTHING = (-1, 0)
"""The value of `awaited` for an actor that awaits no arc."""


class TokenState:
    """The tokens in the arcs of `graph`, and the firings that its actors have begun.

    `tokens` is indexed by arc. Indexed by actor are `fired`, the number of firings begun;
    `consumes` and `produces`, the rates of each phase; and `awaited`, the arc for which an actor
    waits and the tokens that it must hold. At first, all actors are `woken`.
    """

    __slots__ = ("awaited", "consumes", "fired", "graph", "produces", "targets", "tokens", "woken")

    def __init__(self, graph: Lowered) -> None:
        self.graph = graph
        self.tokens = [arc.tokens for arc in graph.arcs]
        self.fired = [0] * len(graph.names)
        self.consumes: list[list[list[tuple[int, int]]]] = [[[] for _ in t] for t in graph.times]
        self.produces: list[list[list[tuple[int, int]]]] = [[[] for _ in t] for t in graph.times]
        for number, arc in enumerate(graph.arcs):
            for phase in itertools.compress(itertools.count(), arc.production):
                self.produces[arc.source][phase].append((number, arc.production[phase]))
            for phase in itertools.compress(itertools.count(), arc.consumption):
                self.consumes[arc.target][phase].append((number, arc.consumption[phase]))
        self.targets = [arc.target for arc in graph.arcs]
        self.awaited: list[tuple[int, int]] = []
        self.woken: deque[int] = deque()
        self.wake_all()

    def wake_all(self) -> None:
        """Put every actor into the queue, as after a change of `tokens` by hand."""
        self.awaited = [NOTHING] * len(self.fired)
        self.woken = deque(range(len(self.fired)))

    def phase(self, actor: int) -> int:
        """Return the phase that `actor` fires next."""
        return self.fired[actor] % len(self.consumes[actor])

    def missing(self, actor: int) -> list[tuple[int, int]]:
        """Return (arc, missing tokens) for all arcs that keep `actor` from firing."""
        return [
            (arc, rate - self.tokens[arc])
            for arc, rate in self.consumes[actor][self.phase(actor)]
            if self.tokens[arc] < rate
        ]

    def is_enabled(self, actor: int) -> bool:
        """Return whether `actor` can fire; if it cannot, it awaits an arc from now on."""
        tokens, phases = self.tokens, self.consumes[actor]
        for arc, rate in phases[self.fired[actor] % len(phases)]:
            if tokens[arc] < rate:
                self.awaited[actor] = (arc, rate)
                return False
        return True

    def consume(self, actor: int) -> int:
        """Begin the next firing of `actor`; return its index among the actor's firings."""
        index, tokens, phases = self.fired[actor], self.tokens, self.consumes[actor]
        for arc, rate in phases[index % len(phases)]:
            tokens[arc] -= rate
        self.fired[actor] = index + 1
        return index

    def begin(self, actor: int) -> int:
        """Begin the next firing of `actor` if it is enabled; return its phase, −1 if it is not.

        The same as `is_enabled` and `consume` in one call, for engines whose firings are short.
        """
        tokens, phases = self.tokens, self.consumes[actor]
        phase = self.fired[actor] % len(phases)
        rates = phases[phase]
        for arc, rate in rates:
            if tokens[arc] < rate:
                self.awaited[actor] = (arc, rate)
                return -1
        for arc, rate in rates:
            tokens[arc] -= rate
        self.fired[actor] += 1
        return phase

    def produce(self, rates: Iterable[tuple[int, int]]) -> None:
        """Put tokens into arcs, and wake the actors that await just those."""
        tokens, targets, awaited = self.tokens, self.targets, self.awaited
        for arc, rate in rates:
            tokens[arc] += rate
            target = targets[arc]
            waits_for, enough = awaited[target]
            if waits_for == arc and tokens[arc] >= enough:
                awaited[target] = NOTHING
                self.woken.append(target)
