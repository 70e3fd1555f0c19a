"""What a distribution of capacities gives, and what must change for more.

If a cycle of waiting firings holds the period, then every distribution that keeps the channels of
that cycle as they are, or smaller, has that period or a longer one. The same holds for a deadlock
and the cycle of its waits. So each look at a distribution yields a **conflict**: a period, and for
each of some channels a capacity, of which at least one must be reached to do better. Nothing else
is known, and nothing else is needed, to find the smallest distributions (`csdf.capacities`).

A capacity is raised as far as the cycle can feel it: in a deadlock by what the waiting firing
lacks; on a cycle of firings until one of them waits for an earlier one.

Source: S. Stuijk, M. Geilen, T. Basten, "Throughput-buffering trade-off exploration for
cyclo-static and synchronous dataflow graphs", IEEE Transactions on Computers, 2008, for searching
along storage dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from csdf import selftimed
from csdf.conflicts import Conflict, Need, PeriodGoal
from csdf.consistency import repetition_vector
from csdf.critical import CriticalLink, critical_cycle
from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.graph import Channel, Graph
from csdf.liveness import check_liveness, waiting_cycle
from csdf.lowered import Arc, Lowered, Origin, lower
from csdf.reverse_channels import mirrors
from csdf.series import pairs
from csdf.sums import Sum, Sums
from csdf.sums import fits as fits_sums
from csdf.throughput import components, overtaking, throughput
from csdf.untimed import Execution
from csdf.waits import Felt, Waits, fits

LOWER_BOUND_STEPS = 10_000
"""Steps in which the smallest capacity of a channel by itself is sought."""


class Storage:
    """A graph of which some channels (`names`) are to be given capacities.

    `least` are capacities below which the graph deadlocks, channel by channel; `grain` are the
    steps in which it feels more than that. `shortest` is the period if none is bounded.
    `overtakes` tells whether firings may overtake each other. `work` counts what has been
    analysed: about microseconds on a processor of the 2020s.
    """

    def __init__(self, graph: Graph, channels: Sequence[str] | None = None) -> None:
        """`channels` are to be sized; by default all without a bound between different actors.

        Raises `CsdfError` if one of them does not exist or is a self-channel, and
        `InconsistentGraphError`, or `DeadlockError` if no capacities make the graph live.
        """
        self.names = tuple(unbounded(graph) if channels is None else dict.fromkeys(channels))
        for name in self.names:
            if name not in graph.channel:
                raise CsdfError(f"{name!r} is no channel of the graph")
            if graph.channel[name].source == graph.channel[name].target:
                raise CsdfError(f"{name!r} is a self-channel, which cannot be sized")
        self.graph = with_capacities(graph, dict.fromkeys(self.names))
        deadlock = check_liveness(self.graph)
        if deadlock is not None:
            raise DeadlockError(str(deadlock))
        self.shortest = throughput(self.graph).period
        by_name = repetition_vector(graph)
        self._repetitions = [by_name[actor.name] for actor in graph.actors]
        self._firings = [by_name[actor.name] * actor.phases for actor in graph.actors]
        self._sized = [graph.channel[name] for name in self.names]
        self._moved = [by_name[channel.source] * sum(channel.production) for channel in self._sized]
        self.grain = tuple(math.gcd(*c.production, *c.consumption) for c in self._sized)
        self.least = tuple(
            least + (channel.initial_tokens - least) % grain
            for least, channel, grain in zip(
                map(self._alone, self._sized), self._sized, self.grain, strict=True
            )
        )
        room = dict(zip(self.names, self.least, strict=True))
        self._lowered = lower(with_capacities(graph, room))
        place = {name: i for i, name in enumerate(self.names)}
        # Arc → place of the channel whose free room it holds.
        self._place = {
            number: place[arc.channel.name]
            for number, arc in enumerate(self._lowered.arcs)
            if arc.origin is Origin.SPACE and arc.channel is not None and arc.channel.name in place
        }
        # The time of all firings of an iteration, one after the other.
        times = zip(self._repetitions, self._lowered.times, strict=True)
        self._one_by_one = sum((q * sum(own) for q, own in times), Fraction(0))
        self.overtakes = bool(overtaking(self._lowered))
        self._timeless = not all(time for times in self._lowered.times for time in times)
        self._sums: Sums | None = None
        if not self.overtakes and fits_sums(self._lowered):
            self._sums = Sums(self._lowered, self._repetitions, self._place)
        self._waits: Waits | None = None
        # What was analysed last of those whose exact period is known, and that.
        self._met: tuple[tuple[int, ...], Fraction] | None = None
        self.work = 0

    @property
    def firings(self) -> int:
        """Of an iteration."""
        return sum(self._firings)

    def token_bytes(self, place: int) -> int:
        """The size of a token of the channel at `place`."""
        return self._sized[place].token_bytes

    def capacities(self, taken: Sequence[int]) -> tuple[int, ...]:
        """In tokens, by place, with so many steps above the least."""
        parts = zip(self.least, self.grain, taken, strict=True)
        return tuple(least + grain * steps for least, grain, steps in parts)

    def ample(self, goal: PeriodGoal) -> tuple[int, ...]:
        """Steps that no cycle which misses the goal can feel, nor more.

        Whoever waits for room then waits for so early an iteration that even a cycle of all firings
        takes less than the goal per iteration.
        """
        iterations = 1
        if goal.period:
            iterations += math.floor(self._one_by_one / goal.period)
        parts = zip(self.least, self.grain, self._sized, self._moved, strict=True)
        return tuple(
            max(0, (channel.initial_tokens + iterations * moved - least) // grain)
            for least, grain, channel, moved in parts
        )

    def missed_sum(self, taken: Sequence[int], goal: PeriodGoal) -> Sum | None:
        """A sum of steps that the goal asks for and these miss, if any is known."""
        if self._sums is None:
            return None
        self.work += 200 + self._sums.edges
        return self._sums.missed(taken, goal)

    def conflict(self, taken: Sequence[int], goal: PeriodGoal) -> Conflict | None:
        """A conflict that shows that these steps miss the goal; None if they meet it.

        Raises `TooLargeError`.
        """
        if goal.period is None or self.overtakes:
            stuck = self._deadlock(taken)
            if stuck is not None or goal.period is None:
                return stuck
        if self.overtakes:
            period = self._followed(taken)
            self._met = tuple(taken), period
            # Nothing is known of why; so any channel may be the one.
            needed = tuple(Need((place,), steps + 1) for place, steps in enumerate(taken))
            return Conflict(period, needed) if goal.misses(period) else None
        found = self._slowest(taken, goal)
        if goal.misses(found.period):
            return found
        if goal.strict and found.period is not None:
            self._met = tuple(taken), found.period
        # A cycle that takes no time may be a deadlock, and not be found above.
        return self._deadlock(taken) if self._timeless else None

    def period(self, taken: Sequence[int]) -> Fraction:
        """The exact period of so many steps that are live. Raises `TooLargeError`."""
        if self._met is not None and self._met[0] == tuple(taken):
            return self._met[1]
        if self.overtakes:
            return self._followed(taken)
        period = self._slowest(taken, None).period
        assert period is not None  # noqa: S101 (they are live)
        return period

    def _deadlock(self, taken: Sequence[int]) -> Conflict | None:
        """None if the graph is live, else what must change."""
        waits = self._waits_with(taken)
        if waits is not None:
            self.work += 300 + 2 * len(taken) + (waits.edges + self.firings) // 20
            felt = waits.deadlock()
            return None if felt is None else self._conflict(None, taken, felt)
        self.work += 200 + 2 * min(self.firings, 1_000_000)
        execution = Execution(self._with(taken), self._firings)
        if execution.run():
            return None
        waiting = waiting_cycle(execution)
        return self._conflict(None, taken, [Felt((arc,), missing) for _, arc, missing in waiting])

    def _waits_with(self, taken: Sequence[int]) -> Waits | None:
        """None if there are too many firings."""
        capacities = self.capacities(taken)
        if not fits(self._lowered, self._repetitions, max(capacities, default=0)):
            return None
        if self._waits is None:
            series = pairs(self._lowered, self._place)
            self._waits = Waits(self._lowered, self._repetitions, self._place, series)
        for arc, place in self._place.items():
            self._waits.hold(arc, capacities[place] - self._sized[place].initial_tokens)
        return self._waits

    def _conflict(
        self, period: Fraction | None, taken: Sequence[int], felt: Iterable[Felt]
    ) -> Conflict:
        """Needs so much that it is felt."""
        needed: dict[tuple[int, ...], int] = {}
        for one in felt:
            if any(arc not in self._place for arc in one.arcs):
                continue
            places = tuple(sorted(self._place[arc] for arc in one.arcs))
            more = -(-one.tokens // self.grain[self._place[one.arcs[-1]]])
            more += sum(taken[place] for place in places)
            needed[places] = min(more, needed.get(places, more))
        return Conflict(period, tuple(Need(places, steps) for places, steps in needed.items()))

    def _slowest(self, taken: Sequence[int], goal: PeriodGoal | None) -> Conflict:
        """The period, or, with a goal, enough to see that it is missed; and why."""
        waits = self._waits_with(taken)
        if waits is None:
            return self._by_cycle_ratio(taken)
        at_least, enough = self.shortest, goal.period if goal is not None else None
        if goal is not None and goal.period is not None and not goal.strict:
            at_least = goal.period
        before = waits.steps
        found = waits.slowest(at_least, enough)
        steps = waits.steps - before + 1
        self.work += 200 + 2 * len(taken) + steps * (60 + waits.edges // 30)
        return self._conflict(found.period, taken, found.felt)

    def _by_cycle_ratio(self, taken: Sequence[int]) -> Conflict:
        """The same for very many firings, of which most need not be looked at one by one."""
        self.work += 5000 + 10 * min(self.firings, 1_000_000)
        graph = self._with(taken)
        found = critical_cycle(graph, self._repetitions)
        felt = [
            Felt((link.arc,), _felt(graph.arcs[link.arc], link))
            for link in found.links
            if link.arc in self._place
        ]
        return self._conflict(found.period, taken, felt)

    def _followed(self, taken: Sequence[int]) -> Fraction:
        """The period where firings may overtake each other."""
        # Following an execution until it recurs costs many times as much as a cycle ratio.
        self.work += 50_000 + 100 * self.firings
        parts = components(self._with(taken))
        periods = [
            selftimed.period(part, [self._repetitions[a] for a in members])
            for part, members in parts
        ]
        return max(periods, default=Fraction(0))

    def _with(self, taken: Sequence[int]) -> Lowered:
        capacities = self.capacities(taken)
        arcs = list(self._lowered.arcs)
        for number, place in self._place.items():
            arc = arcs[number]
            assert arc.channel is not None  # noqa: S101 (it holds the room of a channel)
            room = capacities[place] - arc.channel.initial_tokens
            arcs[number] = replace(arc, tokens=room)
        return replace(self._lowered, arcs=tuple(arcs))

    def _alone(self, channel: Channel) -> int:
        """The smallest capacity with which the channel and its two actors are live."""
        tokens = channel.initial_tokens
        if len(channel.production) == len(channel.consumption) == 1:
            put, taken = channel.production[0], channel.consumption[0]
            grain = math.gcd(put, taken)
            return max(tokens, put + taken - grain + tokens % grain)
        pair = replace(
            self.graph,
            actors=tuple(self.graph.actor[name] for name in (channel.source, channel.target)),
            channels=(replace(channel, capacity=tokens),),
        )
        repetitions = repetition_vector(pair)
        wanted = [repetitions[actor.name] * actor.phases for actor in pair.actors]
        execution = Execution(lower(pair, concurrency=False), wanted, LOWER_BOUND_STEPS)
        room = tokens
        try:
            while not execution.run():
                missing = sum(missing for _, arc, missing in waiting_cycle(execution) if arc == 1)
                execution.state.tokens[1] += missing
                room += missing
        except TooLargeError:
            return max(tokens, *channel.production, *channel.consumption)
        return room


def unbounded(graph: Graph) -> list[str]:
    """Channels between different actors that nothing bounds, nor are themselves a bound."""
    bounds = mirrors(graph)
    bounded = {channel.name for channel in bounds.values()}
    return [
        channel.name
        for channel in graph.channels
        if channel.source != channel.target
        and channel.capacity is None
        and channel.name not in bounded
        and channel.name not in bounds
    ]


def with_capacities(graph: Graph, room: Mapping[str, int | None]) -> Graph:
    """`graph` with these channels' capacities."""
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
    )
    return replace(graph, channels=channels)


def _felt(arc: Arc, link: CriticalLink) -> int:
    """By how many tokens more in `arc` the constraint of `link` becomes another one."""
    put = link.cycles[0] * sum(arc.production)
    taken = link.cycles[1] * sum(arc.consumption)
    before = _sum(arc.production, link.source_firing)
    needed = _sum(arc.consumption, link.target_firing + 1) - arc.tokens
    return int((needed - before - 1) % math.gcd(put, taken)) + 1


def _sum(rates: Sequence[int], firings: int) -> int:
    cycles, phases = divmod(firings, len(rates))
    return cycles * sum(rates) + sum(rates[:phases])
