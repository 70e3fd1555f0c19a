"""Whether firings that may overlap end in the order in which they start all the same.

Firings of an actor start in the order of its phases, and overlap where no channel prevents it. A
later, shorter one could then end before an earlier one: it **overtakes** it, its tokens come first,
and a consumer takes them, for a channel counts tokens and does not distinguish them. The
constraints of `csdf.timing.event_graph` say who waits for whom on the understanding that nobody
overtakes.

Very often nobody can: the cycles that the actor is on keep its firings far enough apart. Let f and
g be consecutive firings. If a way of constraints from f to g, over as many iterations as lie
between them, takes time(f) − time(g) or longer, then g ends no earlier than f. And if that holds
for all of them, the constraints are exact: whatever leads to a first overtaking lies before it,
when tokens have come in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from csdf.timing.event_graph import EventGraph

WORK_LIMIT = 2_000_000
"""Constraints that are looked at; beyond, firings are taken to overtake."""


class Ways:
    """The constraints of `events`, which has all firings of an iteration: delays are whole ones."""

    def __init__(self, events: EventGraph) -> None:
        self._waiting: list[list[tuple[int, int, int]]] = [[] for _ in range(events.nodes)]
        missing = [0] * events.nodes
        columns = (events.source, events.target, events.time, events.delay)
        for source, target, time, delay in zip(*(c.tolist() for c in columns), strict=True):
            self._waiting[source].append((target, time, delay))
            if delay == 0:
                missing[target] += 1
        self._order = [firing for firing, count in enumerate(missing) if count == 0]
        for firing in self._order:  # grows meanwhile
            for target, _, delay in self._waiting[firing]:
                if delay == 0:
                    missing[target] -= 1
                    if missing[target] == 0:
                        self._order.append(target)

    def longest(self, start: int, target: int, iterations: int) -> int | None:
        """The longest way from firing `start` to `target`, so many iterations on, if there is one.

        In units of 1 / `events.time_unit`.
        """
        found = {(0, start): 0}
        for iteration in range(iterations + 1):
            for firing in self._order:
                length = found.get((iteration, firing))
                if length is None:
                    continue
                for other, time, delay in self._waiting[firing]:
                    reached = iteration + delay, other
                    if reached[0] <= iterations and length + time > found.get(reached, -1):
                        found[reached] = length + time
        return found.get((iterations, target))


def first_to_overtake(
    events: EventGraph, times: Sequence[Sequence[int]], actors: Iterable[int]
) -> int | None:
    """The first of `actors` that is not proved to end its firings in order; None if all are.

    `events` has all firings of an iteration of a live graph; `times` has the duration of each phase
    of each actor, in units of 1 / `events.time_unit`.
    """
    ways = Ways(events)
    ends = [*events.first[1:], events.nodes]
    left = WORK_LIMIT
    for actor in actors:
        first, count = events.first[actor], ends[actor] - events.first[actor]
        for place in range(count):
            longer = times[actor][place % len(times[actor])]
            apart = longer - times[actor][(place + 1) % len(times[actor])]
            if apart <= 0:
                continue
            left -= len(events.source)
            if left < 0:
                return actor
            after, iterations = (place + 1) % count, int(place + 1 == count)
            if (ways.longest(first + place, first + after, iterations) or 0) < apart:
                return actor
    return None
