"""The plainest execution of a graph on processors that keep to pipelined static orders.

In period n a processor comes to
each of its entries in turn; one with an offset l fires its actor if n ≥ l, and is skipped if not.
Which firing of its actor that is, is never said: it is the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.model.graph import Graph
from tests.csdf.oracle import Firing, Timed

Order = Sequence[tuple[str, int | None, int]]
"""(actor, phase or None, offset) per entry."""


@dataclass(frozen=True)
class Execution:
    """(start, end) of each actor's firings; if a state came back, the period, and per actor the
    firings before its first and its second visit, in iterations; or a deadlock.
    """

    firings: Mapping[str, Sequence[tuple[Fraction, Fraction]]]
    period: Fraction | None
    visits: Mapping[str, tuple[int, int]]
    deadlocks: bool


class _Ordered(Timed):
    def __init__(self, graph: Graph, orders: Mapping[str, Order]) -> None:
        super().__init__(graph)
        self.orders = orders
        self.firings: dict[str, list[tuple[Fraction, Fraction]]] = {name: [] for name in self.fired}
        self.place = dict.fromkeys(orders, 0)

    def entry(self, processor: str) -> tuple[str, int | None]:
        order = self.orders[processor]
        while True:
            period, place = divmod(self.place[processor], len(order))
            actor, phase, offset = order[place]
            if period >= offset:
                return actor, phase
            self.place[processor] += 1

    def processor(self, actor: str, phase: int) -> str | None:
        for name, order in self.orders.items():
            if any(a == actor and p in (None, phase) for a, p, _ in order):
                return name
        return None

    def busy(self, processor: str) -> bool:
        return any(self.processor(one.actor, one.phase) == processor for one in self.running)

    def able(self, actor: str) -> bool:
        phase = self.phase(actor)
        on = self.processor(actor, phase)
        if on is not None:
            turn, its_phase = self.entry(on)
            if self.busy(on) or turn != actor or its_phase not in (None, phase):
                return False
        return super().able(actor)

    def start(self, actor: str) -> Firing:
        on = self.processor(actor, self.phase(actor))
        if on is not None:
            self.place[on] += 1
        one = super().start(actor)
        self.firings[actor].append((one.start, one.start + one.left))
        return one

    def under_way(self) -> bool:
        """Whether no entry will be skipped any more."""
        return all(
            self.place[p] >= len(order) * max(offset for _, _, offset in order)
            for p, order in self.orders.items()
        )

    def state(self, per_iteration: Mapping[str, int]) -> object:
        return (
            tuple(self.tokens.values()),
            tuple(self.free.values()),
            tuple(self.place[p] % len(order) for p, order in self.orders.items()),
            tuple(fired % per_iteration[a] for a, fired in self.fired.items()),
            tuple(sorted((one.left, one.actor, one.phase) for one in self.running)),
        )


def execute(
    graph: Graph,
    repetitions: Mapping[str, int],
    orders: Mapping[str, Order],
    more: int,
    instants: int = 400,
) -> Execution | None:
    """Until a state has come back after the prologues, and once more as long and `more` iterations.

    Or until nothing moves.

    None if neither happens within so many instants, or time stands still.
    """
    run = _Ordered(graph, orders)
    per_iteration = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    seen: dict[object, tuple[Fraction, dict[str, int]]] = {}
    period, visits = None, dict[str, tuple[int, int]]()
    for _ in range(instants):
        for started, _ in enumerate(run.instant()):
            if started == 50 * sum(per_iteration.values()):
                return None
        count = dict(run.fired)
        if period is None and run.under_way():
            state = run.state(per_iteration)
            then, before = seen.setdefault(state, (run.now, count))
            # Components without a channel between them each have their own period.
            if all(count[a] > before[a] for a in count):
                turns = [per_iteration[a] / Fraction(count[a] - before[a]) for a in count]
                period = (run.now - then) * max(turns)
                visits = {
                    a: (-(-before[a] // per), -(-count[a] // per))
                    for a, per in per_iteration.items()
                }
        if visits and all(
            count[a] >= (3 * to + more) * per_iteration[a] for a, (_, to) in visits.items()
        ):
            return Execution(run.firings, period, visits, deadlocks=False)
        if not run.running:
            return Execution(run.firings, None, {}, deadlocks=True)
        run.pass_time()
    return None
