"""Decides which links between machines to measure, and by which tensors.

The cost model has one rate per machine, that of its interface, so not every pair of machines has to
be measured. A pair carries what the slower of the two interfaces carries, so a machine is as fast
as the fastest of its pairs. Machines meet as in the rounds of a tournament, each in at most one
pair at a time. A machine is settled if it is fast (`FAST_BYTES_PER_S`) or has met a fast one. A
pair of settled ones is left out. After `ROUNDS` others, a machine is taken to be as slow as
measured.

In each pair, tensors of growing size cross the link. So a slow link carries little, and a fast one
as much as its rate needs.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

Pair: TypeAlias = tuple[str, str]

Test: TypeAlias = tuple[Pair, int]
"""A pair, and the bytes of the tensors that cross its link."""

SIZES_BYTES = tuple(1 << power for power in (12, 14, 16, 18, 20))

COUNT = 5
"""The number of tensors of a size that cross a link."""

MOST_FRAME_S = 0.05
"""Sizes whose tensors are expected to take longer are left out, except for the second one: one size
does not tell the rate from the latency."""

SURVEY_S = 1.0
"""The time from the first result after which nothing new begins."""

ROUNDS, MOST_PAIRS = 3, 32
"""The most rounds, and the most pairs whose networks are loaded at once if one round has fewer."""

FAST_BYTES_PER_S = 60e6
"""The rate from which a link is fast: half of what is assumed of an unknown one."""


def tournament(names: Sequence[str]) -> list[Pair]:
    """Return the pairs of the first rounds of a tournament, in which each meets each other once.

    The names of a pair are in the order of `names`.

    >>> tournament(["a", "b", "c"])
    [('b', 'c'), ('a', 'c'), ('a', 'b')]
    """
    seats = list(range(len(names) + len(names) % 2))  # the one who meets the last of these rests
    half, found = len(seats) // 2, []
    for _ in range(min(ROUNDS, len(seats) - 1, max(1, MOST_PAIRS // max(1, half)))):
        meeting = (sorted((seats[k], seats[-1 - k])) for k in range(half))
        found += [(names[one], names[other]) for one, other in meeting if other < len(names)]
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found


def rates_of(pairs: Mapping[Pair, float]) -> dict[str, float]:
    """Return the rate of each machine: that of the fastest of its pairs."""
    found: dict[str, float] = {}
    for pair, rate in pairs.items():
        for name in pair:
            found[name] = max(rate, found.get(name, 0.0))
    return found


class Survey:
    """Measures pairs of machines, in the given order as far as they are free.

    `known` are the rates of pairs that were measured before, and `stated` those of machines, in
    bytes per second. `COUNT` tensors are to be sent for each test that `begin` or `took` returns.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        known: Mapping[Pair, float] = MappingProxyType({}),
        stated: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.seconds: dict[Pair, dict[int, float]] = {}
        """The seconds between two tensors, by pair and size, as far as they are known."""
        self.has_results = False
        self._waiting = [pair for pair in pairs if pair not in known]
        self._known = dict(known)
        self._stated = stated
        self._until_s = math.inf
        self._active: dict[Pair, tuple[int, list[float]]] = {}

    @property
    def is_over(self) -> bool:
        """Whether no test is in progress."""
        return not self._active

    def begin(self) -> list[Test]:
        """Return the tests of the pairs that can begin."""
        rates = rates_of(self._known) | dict(self._stated)
        fast = {name for name, rate in rates.items() if rate >= FAST_BYTES_PER_S}
        met = {name for pair in self._known if fast.intersection(pair) for name in pair}
        settled, found = fast | met | self._stated.keys(), []
        for pair in tuple(self._waiting):
            if not any(set(pair) & set(busy) for busy in self._active):
                self._waiting.remove(pair)
                if not settled.issuperset(pair):
                    found.append(self._test(pair, SIZES_BYTES[0]))
        return found

    def _test(self, pair: Pair, size: int) -> Test:
        self._active[pair] = size, []
        return pair, size

    def took(self, pair: Pair, now_s: float) -> list[Test]:
        """Note the result of a tensor; return the tests that follow."""
        if not self.has_results:
            self.has_results, self._until_s = True, now_s + SURVEY_S
        size, times = self._active[pair]
        times.append(now_s)
        if len(times) > 1:
            between = (after - before for before, after in itertools.pairwise(times))
            self.seconds.setdefault(pair, {})[size] = statistics.median(between)
        if len(times) < COUNT:
            return []
        is_late, larger = now_s >= self._until_s, _larger(size, self.seconds[pair])
        if larger is not None and not is_late:
            return [self._test(pair, larger)]
        del self._active[pair]
        self._known[pair] = _rate(self.seconds[pair])
        return [] if is_late else self.begin()


def _larger(size: int, seconds: Mapping[int, float]) -> int | None:
    """Return the size that follows one in a test, or None."""
    larger = next((each for each in SIZES_BYTES if each > size), None)
    if larger is None or size == SIZES_BYTES[0]:
        return larger
    return larger if seconds[size] + (larger - size) / _rate(seconds) < MOST_FRAME_S else None


def _rate(seconds: Mapping[int, float]) -> float:
    """Return the bytes per second by the two largest sizes; infinity if they took equally long."""
    sizes = [0, *seconds][-2:]
    longer_s = seconds[sizes[1]] - seconds.get(sizes[0], 0.0)
    return (sizes[1] - sizes[0]) / longer_s if longer_s > 0 else math.inf
