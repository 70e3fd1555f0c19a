"""The plainest execution of a graph on processors that keep to pipelined static orders.

Like `tests.csdf.oracle` it shares no code with what it checks. In period n a processor comes to
each of its entries in turn; one with an offset l fires its actor if n ≥ l, and is skipped if not.
Which firing of its actor that is, is never said: it is the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.model.graph import Graph

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


class _Ordered:
    def __init__(self, graph: Graph, orders: Mapping[str, Order]) -> None:
        self.graph, self.orders = graph, orders
        self.tokens = {c.name: c.initial_tokens for c in graph.channels}
        self.free = {
            c.name: c.capacity - c.initial_tokens for c in graph.channels if c.capacity is not None
        }
        self.firings: dict[str, list[tuple[Fraction, Fraction]]] = {
            a.name: [] for a in graph.actors
        }
        self.place = dict.fromkeys(orders, 0)
        self.busy = dict.fromkeys(orders, False)
        self.running: list[tuple[Fraction, str, int, str | None]] = []
        self.now = Fraction(0)

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

    def able(self, actor: str) -> bool:
        about = self.graph.actor[actor]
        phase = len(self.firings[actor]) % about.phases
        on = self.processor(actor, phase)
        if on is not None:
            turn, its_phase = self.entry(on)
            if self.busy[on] or turn != actor or its_phase not in (None, phase):
                return False
        overlapping = sum(one[1] == actor for one in self.running)
        if about.concurrency is not None and overlapping >= about.concurrency:
            return False
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
        phase = len(self.firings[actor]) % self.graph.actor[actor].phases
        on = self.processor(actor, phase)
        if on is not None:
            self.place[on] += 1
            self.busy[on] = True
        for c in self.graph.channels:
            if c.target == actor:
                self.tokens[c.name] -= c.consumption[phase]
            if c.source == actor and c.name in self.free:
                self.free[c.name] -= c.production[phase]
        end = self.now + self.graph.actor[actor].execution_times[phase]
        self.firings[actor].append((self.now, end))
        self.running.append((end, actor, phase, on))

    def end(self) -> bool:
        """Ends one firing that is due, if there is one."""
        for one in self.running:
            if one[0] == self.now:
                break
        else:
            return False
        self.running.remove(one)
        _, actor, phase, on = one
        if on is not None:
            self.busy[on] = False
        for c in self.graph.channels:
            if c.source == actor:
                self.tokens[c.name] += c.production[phase]
            if c.target == actor and c.name in self.free:
                self.free[c.name] += c.consumption[phase]
        return True

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
            tuple(self.busy.values()),
            tuple(len(own) % per_iteration[a] for a, own in self.firings.items()),
            tuple(sorted((end - self.now, a, phase) for end, a, phase, _ in self.running)),
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
        started = 0
        while True:
            if run.end():
                continue
            able = [a for a in run.firings if run.able(a)]
            if not able:
                break
            run.start(able[-1])
            started += 1
            if started > 50 * sum(per_iteration.values()):
                return None
        count = {a: len(own) for a, own in run.firings.items()}
        if period is None and run.under_way():
            state = run.state(per_iteration)
            then, before = seen.setdefault(state, (run.now, count))
            # Components without a channel between them each have a period of their own.
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
        run.now = min(run.running)[0]
    return None
