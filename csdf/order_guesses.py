"""Good static orders, quickly: starts for all firings that do not overlap on any processor.

**Packed**: each processor's firings stand one after the other in a given order, each as many turns
late as what it waits for demands. That fills a processor completely, and succeeds wherever buffers
leave room for the turns.

**Iterative modulo scheduling** places one firing after the other, the one with the longest way to
go first, as early as it can be, and takes out again what stands in its way.

Source: B. R. Rau, "Iterative modulo scheduling: an algorithm for software pipelining loops", MICRO
1994.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence

from csdf.order_problem import Clock

TRIES = 8
"""How often a firing is placed, on the average, until a guess gives up."""


def packed(clock: Clock, first: Sequence[int]) -> list[int] | None:
    """Starts in which processors fire in the order of `first`, without a pause; None if none are
    found.
    """
    around = clock.circumference
    place = dict[int, int]()
    for firings in clock.problem.processors.values():
        at = 0
        for firing in sorted(firings, key=lambda v: (first[v], v)):
            place[firing] = at
            at += clock.times[firing]
    starts = [place.get(v, 0) for v in range(len(clock.times))]
    waiting, queued = list(range(len(starts))), [True] * len(starts)
    left = TRIES * len(starts)
    for firing in waiting:  # grows meanwhile
        queued[firing] = False
        left -= 1
        if left < 0:
            return None
        for target, least in clock.waiting[firing]:
            start = starts[firing] + least
            if start <= starts[target]:
                continue
            if target in place:
                start += (place[target] - start) % around
            starts[target] = start
            if not queued[target]:
                queued[target] = True
                waiting.append(target)
    return starts


def modulo_scheduled(clock: Clock, urgency: Sequence[int]) -> list[int] | None:
    """Starts as iterative modulo scheduling finds them, the most urgent first; None if it gives up.

    Urgency is, in Rau's words, height: the longest way from a firing on.
    """
    run = _Iterative(clock, urgency)
    for _ in range(TRIES * len(clock.times)):
        if not run.place_next():
            return run.starts()
    return None


class _Iterative:
    def __init__(self, clock: Clock, urgency: Sequence[int]) -> None:
        self._clock = clock
        self._urgency = urgency
        self._start: list[int | None] = [None] * len(clock.times)
        self._last: list[int | None] = list(self._start)
        self._queue = [(-urgency[v], v) for v in range(len(clock.times))]
        heapq.heapify(self._queue)
        # Per processor (start on the clock, firing), in order.
        self._arcs: dict[str, list[tuple[int, int]]] = {p: [] for p in clock.problem.processors}

    def starts(self) -> list[int]:
        """Not before 0."""
        found = [start for start in self._start if start is not None]
        earliest = min(found, default=0)
        return [start - earliest for start in found]

    def place_next(self) -> bool:
        """Places one firing; False if none is left."""
        while self._queue:
            _, firing = heapq.heappop(self._queue)
            if self._start[firing] is None:
                break
        else:
            return False
        earliest = 0
        for source, least in self._clock.awaited[firing]:
            start = self._start[source]
            if start is not None and source != firing and start + least > earliest:
                earliest = start + least
        start = self._free(firing, earliest)
        last = self._last[firing]
        if start is None:
            start = earliest if last is None or earliest > last else last + 1
        elif last is not None and start <= last:
            start = max(earliest, last + 1)
        self._evict(firing, start)
        self._start[firing] = self._last[firing] = start
        processor = self._clock.problem.on.get(firing)
        if processor is not None:
            insort(self._arcs[processor], (start % self._clock.circumference, firing))
        return True

    def _free(self, firing: int, earliest: int) -> int | None:
        """The first start from `earliest` on at which the processor is free."""
        processor = self._clock.problem.on.get(firing)
        if processor is None:
            return earliest
        around, times = self._clock.circumference, self._clock.times
        arcs, origin = self._arcs[processor], earliest % around
        if not arcs:
            return earliest
        split = bisect_left(arcs, (origin, -1))
        at, time = 0, times[firing]
        before, its = arcs[split - 1]
        over = times[its] - (origin - before) % around
        if over > 0 and not (before == origin and split < len(arcs)):
            at = over
        for start, other in arcs[split:] + arcs[:split]:
            ahead = (start - origin) % around
            if ahead - at >= time:
                return earliest + at
            at = max(at, ahead + times[other])
        first = (arcs[split % len(arcs)][0] - origin) % around
        return earliest + at if at < around and at + time <= around + first else None

    def _evict(self, firing: int, start: int) -> None:
        """Takes out what overlaps `firing` on its processor, or can then not wait for it."""
        clock = self._clock
        around, times = clock.circumference, clock.times
        processor = clock.problem.on.get(firing)
        if processor is not None:
            for at, other in list(self._arcs[processor]):
                after, before = (at - start) % around, (start - at) % around
                if after < times[firing] or before < times[other]:
                    self._take_out(other)
        for target, least in clock.waiting[firing]:
            begun = self._start[target]
            if begun is not None and target != firing and begun < start + least:
                self._take_out(target)
        for source, least in clock.awaited[firing]:
            begun = self._start[source]
            if begun is not None and source != firing and start < begun + least:
                self._take_out(source)

    def _take_out(self, firing: int) -> None:
        start, processor = self._start[firing], self._clock.problem.on.get(firing)
        if start is None:
            return
        self._start[firing] = None
        heapq.heappush(self._queue, (-self._urgency[firing], firing))
        if processor is not None:
            self._arcs[processor].remove((start % self._clock.circumference, firing))
