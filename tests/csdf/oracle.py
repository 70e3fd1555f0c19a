"""The plainest execution of a CSDF graph, to hold the fast algorithms to.

It shares no code with them: it reads `Graph` itself, fires one phase at a time, treats capacities
as what they are (places claimed at the start of a firing, given back at the end of the one that
reads), and stops a timed execution when a whole state has come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from tests.csdf.graphs import connected_parts


class Untimed:
    """Channels' tokens and free places, and how often each actor has fired."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tokens = {c.name: c.initial_tokens for c in graph.channels}
        self.fired = {a.name: 0 for a in graph.actors}

    def phase(self, actor: str) -> int:
        """The phase that the actor fires next."""
        return self.fired[actor] % self.graph.actor[actor].phases

    def time(self, actor: str) -> Fraction:
        """Of the actor's next firing."""
        return self.graph.actor[actor].execution_times[self.phase(actor)]

    def taken(self, c: Channel) -> int:
        """By the next firing of the channel's target."""
        return c.consumption[self.phase(c.target)]

    def given(self, c: Channel) -> int:
        """By the next firing of the channel's source."""
        return c.production[self.phase(c.source)]

    def lacking(self, actor: str) -> dict[tuple[str, bool], int]:
        """(channel, for space) → what is missing for the actor's next firing."""
        found = {}
        for c in self.graph.channels:
            if c.target == actor and self.tokens[c.name] < self.taken(c):
                found[c.name, False] = self.taken(c) - self.tokens[c.name]
            if c.source == actor and c.capacity is not None:
                free = c.capacity - self.tokens[c.name]
                if free < self.given(c):
                    found[c.name, True] = self.given(c) - free
        return found

    def fire(self, actor: str) -> None:
        for c in self.graph.channels:
            taken = self.taken(c) if c.target == actor else 0
            given = self.given(c) if c.source == actor else 0
            self.tokens[c.name] += given - taken
        self.fired[actor] += 1


def executes(graph: Graph, repetitions: Mapping[str, int]) -> bool:
    """Whether one iteration can be executed, firing whatever comes first."""
    wanted = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    state = Untimed(graph)
    while True:
        able = [a for a, fired in state.fired.items() if fired < wanted[a] and not state.lacking(a)]
        if not able:
            return state.fired == wanted
        state.fire(able[0])


def with_change(graph: Graph, channel: Channel) -> Graph:
    """The graph with one channel replaced by another of the same name."""
    replaced = tuple(channel if c.name == channel.name else c for c in graph.channels)
    return Graph(graph.name, graph.actors, replaced)


@dataclass(eq=False)
class Firing:
    """A firing that has started; `left` is the time until it ends."""

    actor: str
    phase: int
    start: Fraction
    left: Fraction


class Timed(Untimed):
    """A self-timed execution: firings claim tokens and places when they start."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.free = {
            c.name: c.capacity - c.initial_tokens for c in graph.channels if c.capacity is not None
        }
        self.running: list[Firing] = []
        self.now = Fraction(0)

    def able(self, actor: str) -> bool:
        """Whether the actor's next firing can start."""
        most = self.graph.actor[actor].concurrency
        return (
            (most is None or sum(one.actor == actor for one in self.running) < most)
            and all(
                self.tokens[c.name] >= self.taken(c)
                for c in self.graph.channels
                if c.target == actor
            )
            and all(
                self.free[c.name] >= self.given(c)
                for c in self.graph.channels
                if c.source == actor and c.name in self.free
            )
        )

    def start(self, actor: str) -> Firing:
        """Start the actor's next firing, which must be able to."""
        for c in self.graph.channels:
            if c.target == actor:
                self.tokens[c.name] -= self.taken(c)
            if c.source == actor and c.name in self.free:
                self.free[c.name] -= self.given(c)
        started = Firing(actor, self.phase(actor), self.now, self.time(actor))
        self.running.append(started)
        self.fired[actor] += 1
        return started

    def end(self, one: Firing) -> None:
        """End a firing."""
        self.running.remove(one)
        for c in self.graph.channels:
            if c.source == one.actor:
                self.tokens[c.name] += c.production[one.phase]
            if c.target == one.actor and c.name in self.free:
                self.free[c.name] += c.consumption[one.phase]

    def end_due(self) -> None:
        """End every firing that is due."""
        for one in [one for one in self.running if one.left == 0]:
            self.end(one)

    def instant(self) -> Iterator[Firing]:
        """Let everything happen that can happen now; yield each firing as it starts."""
        while True:
            self.end_due()
            able = next((actor for actor in self.fired if self.able(actor)), None)
            if able is None:
                return
            yield self.start(able)

    def pass_time(self) -> None:
        """Wait until the next firing is due."""
        step = min(one.left for one in self.running)
        self.now += step
        for one in self.running:
            one.left -= step


def period(graph: Graph) -> Fraction | None:
    """The time of one iteration of a live graph in self-timed execution; None if not found.

    Follows the execution of each connected part: every channel must be bounded, or it may not
    recur.
    """
    longest = Fraction(0)
    for part in connected_parts(graph):
        own = _period(part)
        if own is None:
            return None
        longest = max(longest, own)
    return longest


def _period(graph: Graph) -> Fraction | None:
    if not graph.channels and all(a.concurrency is None for a in graph.actors):
        return Fraction(0)  # nothing waits for anything
    repetitions = repetition_vector(graph)
    per = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    run = Timed(graph)
    seen: dict[object, tuple[Fraction, int]] = {}
    first = graph.actors[0].name
    for _ in range(2000):
        for number, _ in enumerate(run.instant()):
            if number == 500:
                return None  # time may stand still
        key = (
            tuple(run.tokens.values()),
            tuple(run.free.values()),
            tuple(n % per[a] for a, n in run.fired.items()),
            tuple(sorted((one.left, one.actor, one.phase) for one in run.running)),
        )
        then, before = seen.setdefault(key, (run.now, run.fired[first]))
        if run.fired[first] > before:
            return (run.now - then) / Fraction(run.fired[first] - before, per[first])
        run.pass_time()
    return None


class Bounded(Timed):
    """The first iterations of a self-timed execution."""

    def __init__(self, graph: Graph, repetitions: Mapping[str, int], iterations: int) -> None:
        super().__init__(graph)
        self.cycle = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
        self.iterations = iterations

    def able(self, actor: str) -> bool:
        """See `Timed.able`; no firing of a later iteration can start."""
        return self.fired[actor] < self.iterations * self.cycle[actor] and super().able(actor)

    def run(self) -> None:
        """Execute to the end."""
        while True:
            for _ in self.instant():
                pass
            if not self.running:
                return
            self.pass_time()


def timed(
    graph: Graph, repetitions: Mapping[str, int], iterations: int
) -> list[tuple[str, Fraction, Fraction]]:
    """(actor, start, end) of every firing of the first iterations, in self-timed execution.

    In the order of starts; only for graphs whose firings cannot overtake each other.
    """
    run = Bounded(graph, repetitions, iterations)
    found: list[tuple[str, Fraction, Fraction]] = []
    while True:
        found += [(one.actor, one.start, one.start + one.left) for one in run.instant()]
        if not run.running:
            return found
        run.pass_time()


def ratio_of_cycle(
    graph: Graph,
    repetitions: Mapping[str, int],
    around: Sequence[tuple[str, int, str | None, bool]],
) -> Fraction:
    """The most time per iteration that a firing can spend waiting for itself, along this cycle.

    `around` has (actor, phase, channel, for space): a firing of that phase, and the channel through
    which the next one waits for it; None where that is the actor's own. A firing waits for the one
    that put in the last token it takes. One turn need not come back to a firing of the same place
    in its iteration, so there may be several. Looked at are iterations long after the start.
    """
    first, phase = around[0][:2]
    per_iteration = repetitions[first] * graph.actor[first].phases
    begin = 30 * per_iteration
    found = Fraction(0)
    for firing in range(begin, begin + per_iteration):
        if firing % graph.actor[first].phases != phase:
            continue
        reached = {firing: Fraction(0)}
        for _ in range(repetitions[first]):
            reached = _one_turn(graph, around, reached)
            for number, time in reached.items():
                iterations, rest = divmod(number - firing, per_iteration)
                if rest == 0 and iterations > 0:
                    found = max(found, time / iterations)
    return found


def _one_turn(
    graph: Graph,
    around: Sequence[tuple[str, int, str | None, bool]],
    reached: dict[int, Fraction],
) -> dict[int, Fraction]:
    """Firings of the first actor → the longest time until they may start, from some of those."""
    for step, after in zip(around, [*around[1:], around[0]], strict=True):
        further: dict[int, Fraction] = {}
        for number, time in reached.items():
            for waiting, spent in _waiting(graph, step, number):
                if waiting % graph.actor[after[0]].phases == after[1]:
                    further[waiting] = max(further.get(waiting, time), time + spent)
        reached = further
    return reached


def _waiting(
    graph: Graph, step: tuple[str, int, str | None, bool], number: int
) -> list[tuple[int, Fraction]]:
    """Firings of the next actor that wait for this one, and how long after its start they may."""
    name, phase, through, for_space = step
    actor = graph.actor[name]
    time = actor.execution_times[phase]
    if through is None:
        ends = [(number + actor.concurrency, time)] if actor.concurrency is not None else []
        return [*ends, (number + 1, Fraction(0))]
    channel = graph.channel[through]
    given, taken, there = channel.production, channel.consumption, channel.initial_tokens
    if for_space:
        assert channel.capacity is not None
        given, taken, there = taken, given, channel.capacity - there
    before = there + _moved(given, number)
    after = there + _moved(given, number + 1)
    found = []
    waiting = max(0, before // sum(taken) - 1) * len(taken)
    while _moved(taken, waiting) < after:
        if before < _moved(taken, waiting + 1):
            found.append((waiting, time))
        waiting += 1
    return found


def _moved(rates: Sequence[int], firings: int) -> int:
    cycles, phases = divmod(firings, len(rates))
    return cycles * sum(rates) + sum(rates[:phases])
