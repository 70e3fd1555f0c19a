"""The plainest execution of a CSDF graph, to hold the fast algorithms to.

It shares no code with them: it reads `Graph` itself, fires one phase at a time, treats capacities
as what they are (places claimed at the start of a firing, given back at the end of the one that
reads), and stops a timed execution when a whole state has come back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from csdf.model.graph import Channel, Graph


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


def period(graph: Graph, repetitions: Mapping[str, int]) -> Fraction | None:
    """The time of one iteration of a live graph in self-timed execution; None if not found.

    Follows the execution of the whole graph: every channel must be bounded, or it may not recur.
    """
    if not graph.channels and all(a.concurrency is None for a in graph.actors):
        return Fraction(0)  # nothing waits for anything
    now = Fraction(0)
    state = Untimed(graph)
    # (end, actor, what it gives, what room it frees)
    running: list[
        tuple[Fraction, str, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
    ] = []
    # Untimed moves tokens at once; here they are claimed at the start and given at the end.
    free = {c.name: c.capacity - c.initial_tokens for c in graph.channels if c.capacity is not None}
    seen: dict[object, tuple[Fraction, int]] = {}
    first = graph.actors[0]
    for _ in range(2000):
        firings_now = 0
        while True:
            ended = [one for one in running if one[0] == now]
            if ended:
                running.remove(ended[0])
                for name, tokens in ended[0][2]:
                    state.tokens[name] += tokens
                for name, places in ended[0][3]:
                    free[name] += places
                continue
            able = [
                a.name
                for a in graph.actors
                if (a.concurrency is None or sum(r[1] == a.name for r in running) < a.concurrency)
                and all(
                    state.tokens[c.name] >= state.taken(c)
                    for c in graph.channels
                    if c.target == a.name
                )
                and all(
                    free[c.name] >= state.given(c)
                    for c in graph.channels
                    if c.source == a.name and c.name in free
                )
            ]
            if not able:
                break
            firings_now += 1
            if firings_now > 500:
                return None  # time may stand still
            actor = able[0]
            inputs = [(c, state.taken(c)) for c in graph.channels if c.target == actor]
            outputs = [(c, state.given(c)) for c in graph.channels if c.source == actor]
            end = now + state.time(actor)
            for c, tokens in inputs:
                state.tokens[c.name] -= tokens
            for c, places in outputs:
                if c.name in free:
                    free[c.name] -= places
            state.fired[actor] += 1
            given = tuple((c.name, tokens) for c, tokens in outputs)
            freed = tuple((c.name, tokens) for c, tokens in inputs if c.name in free)
            running.append((end, actor, given, freed))
        key = (
            tuple(state.tokens.values()),
            tuple(free.values()),
            tuple(n % (repetitions[a] * graph.actor[a].phases) for a, n in state.fired.items()),
            tuple(sorted((end - now, *rest) for end, *rest in running)),
        )
        if key in seen:
            then, before = seen[key]
            iterations = Fraction(
                state.fired[first.name] - before, repetitions[first.name] * first.phases
            )
            return (now - then) / iterations
        seen[key] = (now, state.fired[first.name])
        now = min(running)[0]
    return None


def timed(
    graph: Graph, repetitions: Mapping[str, int], iterations: int
) -> list[tuple[str, Fraction, Fraction]]:
    """(actor, start, end) of every firing of the first iterations, in self-timed execution.

    In the order of starts; only for graphs whose firings cannot overtake each other.
    """
    wanted = {a.name: iterations * repetitions[a.name] * a.phases for a in graph.actors}
    tokens = {c.name: c.initial_tokens for c in graph.channels}
    free = {c.name: c.capacity - c.initial_tokens for c in graph.channels if c.capacity is not None}
    fired = dict.fromkeys(wanted, 0)
    running: list[tuple[Fraction, str, int]] = []
    found: list[tuple[str, Fraction, Fraction]] = []
    now = Fraction(0)
    while True:
        for one in [r for r in running if r[0] == now]:
            running.remove(one)
            for c in graph.channels:
                if c.source == one[1]:
                    tokens[c.name] += c.production[one[2]]
                if c.target == one[1] and c.name in free:
                    free[c.name] += c.consumption[one[2]]
        started = False
        for a in graph.actors:
            phase = fired[a.name] % a.phases
            if (
                fired[a.name] == wanted[a.name]
                or (
                    a.concurrency is not None
                    and sum(r[1] == a.name for r in running) >= a.concurrency
                )
                or any(
                    tokens[c.name] < c.consumption[phase]
                    for c in graph.channels
                    if c.target == a.name
                )
                or any(
                    free[c.name] < c.production[phase]
                    for c in graph.channels
                    if c.source == a.name and c.name in free
                )
            ):
                continue
            started = True
            fired[a.name] += 1
            end = now + a.execution_times[phase]
            found.append((a.name, now, end))
            running.append((end, a.name, phase))
            for c in graph.channels:
                if c.target == a.name:
                    tokens[c.name] -= c.consumption[phase]
                if c.source == a.name and c.name in free:
                    free[c.name] -= c.production[phase]
        if not started and not running:
            return found
        if not started or any(r[0] == now for r in running):
            now = min(running)[0]


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
