"""Analyse a storage distribution: the period that given capacities allow, and what limits it.

If a cycle of waiting firings determines the period, every distribution that does not enlarge the
channels of that cycle has that period or a longer one. The same holds for a deadlock and the cycle
of its waits. So the analysis of a distribution yields a **conflict**: a period, and capacities of
some channels, of which at least one must be reached to do better. These channels are the
distribution's storage dependencies. The search for the smallest distributions
(`csdf.buffers.capacities`) needs nothing else; cycle bounds (`csdf.buffers.conflicts`) only shorten
it.

The room that a conflict requires is the sensitivity of the cycle: in a deadlock, what the waiting
firing lacks; on a cycle of firings, the least room that lets one of them wait for an earlier one.

Source: S. Stuijk, M. Geilen, T. Basten, "Throughput-buffering trade-off exploration for
cyclo-static and synchronous dataflow graphs", IEEE Transactions on Computers, 2008, for searching
along storage dependencies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from csdf.buffers.conflicts import Conflict, CycleBound, CycleBounds, Need, PeriodGoal
from csdf.buffers.conflicts import fits as bounds_fit
from csdf.errors import CsdfError, TooLargeError
from csdf.execution.liveness import refuse_deadlock
from csdf.execution.untimed import Execution, waiting_cycle
from csdf.model.channels import reverse_channels
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from csdf.model.graph_algorithms import components
from csdf.model.lowered import Arc, Lowered, Origin, lower, moved
from csdf.timing import selftimed
from csdf.timing.cycle_ratio import CriticalLink, critical_cycle
from csdf.timing.throughput import overtaking, throughput
from csdf.timing.waits import Sensitivity, Waits, arcs_in_series, fits

LOWER_BOUND_STEPS = 10_000
"""Steps of the execution that finds the least capacity of a single channel."""


class Storage:
    """A graph of which some channels (`names`) are sized, and the analysis of their capacities.

    `least` are capacities below which each channel alone causes a deadlock; `grain` are the sizes
    in tokens of the steps above them. `shortest` is the period without bounds on these channels.
    `overtakes` says whether firings may overtake each other. `work` counts the effort of all
    analyses, in about microseconds on a processor of the 2020s.
    """

    def __init__(self, graph: Graph, channels: Sequence[str] | None = None) -> None:
        """`channels` are the names of those to size, by default those of `unbounded`.

        Raises `CsdfError` if one of them does not exist or is a self-channel, and
        `InconsistentGraphError`, or `DeadlockError` if no capacities make the graph live.
        """
        self.names = tuple(unbounded(graph) if channels is None else dict.fromkeys(channels))
        for name in self.names:
            if name not in graph.channel:
                raise CsdfError(f"{name!r} is not a channel of the graph")
            if graph.channel[name].source == graph.channel[name].target:
                raise CsdfError(f"{name!r} is a self-channel, which cannot be sized")
        self.graph = with_capacities(graph, dict.fromkeys(self.names))
        refuse_deadlock(self.graph)
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
        self._bounds: CycleBounds | None = None
        if not self.overtakes and bounds_fit(self._lowered):
            self._bounds = CycleBounds(self._lowered, self._repetitions, self._place)
        self._waits: Waits | None = None
        # The last steps whose exact period is known, and that period.
        self._met: tuple[tuple[int, ...], Fraction] | None = None
        self.work = 0

    @property
    def firings(self) -> int:
        """The firings of an iteration."""
        return sum(self._firings)

    def token_bytes(self, place: int) -> int:
        """Return the size of a token of the channel at `place`."""
        return self._sized[place].token_bytes

    def capacities(self, taken: Sequence[int]) -> tuple[int, ...]:
        """Return the capacities in tokens, by place, with `taken` steps above the least."""
        parts = zip(self.least, self.grain, taken, strict=True)
        return tuple(least + grain * steps for least, grain, steps in parts)

    def sufficient(self, goal: PeriodGoal) -> tuple[int, ...]:
        """Return steps by place beyond which more room does not help to meet the goal.

        With so much room, a firing that waits for room waits for so early an iteration that even a
        cycle of all firings takes less than the goal per iteration.
        """
        iterations = 1
        if goal.period:
            iterations += math.floor(self._one_by_one / goal.period)
        parts = zip(self.least, self.grain, self._sized, self._moved, strict=True)
        return tuple(
            max(0, (channel.initial_tokens + iterations * moved - least) // grain)
            for least, grain, channel, moved in parts
        )

    def violated_bound(self, taken: Sequence[int], goal: PeriodGoal) -> CycleBound | None:
        """Return a cycle bound of the goal that these steps violate; None if none is known."""
        if self._bounds is None:
            return None
        self.work += 200 + self._bounds.edges
        return self._bounds.violated(taken, goal)

    def conflict(self, taken: Sequence[int], goal: PeriodGoal) -> Conflict | None:
        """Return a conflict that shows why these steps miss the goal; None if they meet it.

        Raises `TooLargeError`.
        """
        if goal.period is None or self.overtakes:
            stuck = self._deadlock(taken)
            if stuck is not None or goal.period is None:
                return stuck
        if self.overtakes:
            period = self._followed(taken)
            self._met = tuple(taken), period
            # The execution does not show why, so every channel counts as a storage dependency.
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
        """Return the exact period of these steps, which are live. Raises `TooLargeError`."""
        if self._met is not None and self._met[0] == tuple(taken):
            return self._met[1]
        if self.overtakes:
            return self._followed(taken)
        period = self._slowest(taken, None).period
        assert period is not None  # noqa: S101 (they are live)
        return period

    def _deadlock(self, taken: Sequence[int]) -> Conflict | None:
        """Return a conflict if the graph deadlocks with these steps, None if it is live."""
        waits = self._waits_with(taken)
        if waits is not None:
            self.work += 300 + 2 * len(taken) + (waits.edges + self.firings) // 20
            found = waits.deadlock()
            return None if found is None else self._conflict(None, taken, found)
        self.work += 200 + 2 * min(self.firings, 1_000_000)
        execution = Execution(self._with(taken), self._firings)
        if execution.run():
            return None
        waiting = waiting_cycle(execution)
        return self._conflict(
            None, taken, [Sensitivity((arc,), missing) for _, arc, missing in waiting]
        )

    def _waits_with(self, taken: Sequence[int]) -> Waits | None:
        """Return the waits of an iteration with these steps; None if there are too many firings."""
        capacities = self.capacities(taken)
        if not fits(self._lowered, self._repetitions, max(capacities, default=0)):
            return None
        if self._waits is None:
            series = arcs_in_series(self._lowered, self._place)
            self._waits = Waits(self._lowered, self._repetitions, self._place, series)
        for arc, place in self._place.items():
            self._waits.set_tokens(arc, capacities[place] - self._sized[place].initial_tokens)
        return self._waits

    def _conflict(
        self, period: Fraction | None, taken: Sequence[int], sensitivities: Iterable[Sensitivity]
    ) -> Conflict:
        """Return the conflict that these sensitivities imply."""
        needed: dict[tuple[int, ...], int] = {}
        for one in sensitivities:
            if any(arc not in self._place for arc in one.arcs):
                continue
            places = tuple(sorted(self._place[arc] for arc in one.arcs))
            more = -(-one.tokens // self.grain[self._place[one.arcs[-1]]])
            more += sum(taken[place] for place in places)
            needed[places] = min(more, needed.get(places, more))
        return Conflict(period, tuple(Need(places, steps) for places, steps in needed.items()))

    def _slowest(self, taken: Sequence[int], goal: PeriodGoal | None) -> Conflict:
        """Return a slowest cycle, or, with a goal, a cycle that is slow enough to miss it."""
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
        return self._conflict(found.period, taken, found.sensitivities)

    def _by_cycle_ratio(self, taken: Sequence[int]) -> Conflict:
        """Return a slowest cycle, for iterations of too many firings to expand."""
        self.work += 5000 + 10 * min(self.firings, 1_000_000)
        graph = self._with(taken)
        found = critical_cycle(graph, self._repetitions)
        sensitivities = [
            Sensitivity((link.arc,), _sensitivity(graph.arcs[link.arc], link))
            for link in found.links
            if link.arc in self._place
        ]
        return self._conflict(found.period, taken, sensitivities)

    def _followed(self, taken: Sequence[int]) -> Fraction:
        """Return the period by execution, for firings that may overtake each other."""
        # An execution until a state recurs costs many times as much as a cycle ratio.
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
        """Return the smallest capacity with which the channel and its two actors are live."""
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
    """Return the channels between different actors that are unbounded and bound no channel."""
    bounds = reverse_channels(graph)
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
    """Return `graph` with the capacities of the channels in `room` replaced."""
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
    )
    return replace(graph, channels=channels)


def _sensitivity(arc: Arc, link: CriticalLink) -> int:
    """Return how many more tokens in `arc` make the target of `link` wait for another firing."""
    put = link.cycles[0] * sum(arc.production)
    taken = link.cycles[1] * sum(arc.consumption)
    before = moved(arc.production, link.source_firing)
    needed = moved(arc.consumption, link.target_firing + 1) - arc.tokens
    return int((needed - before - 1) % math.gcd(put, taken)) + 1
