"""The smallest distribution of which no known conflict speaks.

Each conflict (`csdf.conflicts`) wants one of its channels to reach a capacity. What it costs least
to give all of them what they want is a bound from below for what the goal costs, and rises as
conflicts become known. They fall apart into groups that share no channel; each is solved by
itself, and again only when a conflict joins it: two channels by going through the capacities of
one, more by HiGHS, as a choice of steps of capacity in which each conflict wants one of those that
fulfil it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from csdf.conflicts import Conflict

Needs = Mapping[int, int]
"""A conflict as place → capacity."""

NODE_LIMIT = 20_000
"""Nodes of a search tree after which HiGHS is content with a bound."""

_HIGHS = 3000
_PER_NODE = 300


@dataclass(frozen=True, slots=True)
class _Solution:
    """Capacities by place, and a bound from below of what they cost beyond the least."""

    capacities: Needs
    bound: int


class Cover:
    """Conflicts of one goal, and the smallest distribution that fulfils them.

    `work` counts what has been spent on it, in the unit of `csdf.storage.Storage.work`.
    """

    def __init__(self, least: Sequence[int], cost: Sequence[int]) -> None:
        self._least, self._cost = list(least), tuple(cost)
        # Places of a conflict → those conflicts, of which none follows from another conflict.
        self._by_places: dict[frozenset[int], list[Needs]] = {}
        self._solved: dict[frozenset[tuple[tuple[int, int], ...]], _Solution] = {}
        self.work = 0

    def add(self, conflict: Conflict) -> None:
        """Of conflicts that follow from each other only the strongest is kept."""
        new = dict(conflict.needed)
        if len(new) == 1:
            ((place, needed),) = new.items()
            self._least[place] = max(self._least[place], needed)
            return
        places = frozenset(new)
        for others, known in list(self._by_places.items()):
            if others <= places and any(_implies(one, new) for one in known):
                return
            if places <= others:
                self._by_places[others] = [one for one in known if not _implies(new, one)]
        self._by_places.setdefault(places, []).append(new)

    def smallest(self) -> tuple[tuple[int, ...], int]:
        """The distribution, and a bound from below of the size of any that fulfils all conflicts.

        The bound is the distribution's own size, unless that took too long to prove.
        """
        capacities = list(self._least)
        bound = sum(c * cost for c, cost in zip(capacities, self._cost, strict=True))
        solved = {}
        for group in self._groups():
            key = self._key(group)
            solution = self._solved.get(key) or self._solve(group)
            solved[key] = solution
            bound += solution.bound
            for place, capacity in solution.capacities.items():
                capacities[place] = capacity
        self._solved = solved
        return tuple(capacities), bound

    def _key(self, group: Sequence[Needs]) -> frozenset[tuple[tuple[int, int], ...]]:
        """What decides the solution of a group."""
        least = tuple((p, self._least[p]) for p in sorted({p for needs in group for p in needs}))
        return frozenset([least, *(tuple(sorted(needs.items())) for needs in group)])

    def _groups(self) -> list[list[Needs]]:
        """The conflicts that the least capacities do not fulfil, by channels that they share."""
        group: dict[int, int] = {}
        members: dict[int, list[int]] = {}
        unmet: list[tuple[int, list[Needs]]] = []
        for places, known in self._by_places.items():
            known[:] = [one for one in known if all(n > self._least[p] for p, n in one.items())]
            if not known:
                continue
            unmet.append((min(places), known))
            joined = {group.get(place, place) for place in places}
            name = min(joined)
            merged = [m for one in joined for m in members.pop(one, [one])]
            members[name] = merged
            group.update(dict.fromkeys(merged, name))
        found: dict[int, list[Needs]] = {}
        for place, known in unmet:
            found.setdefault(group[place], []).extend(known)
        return list(found.values())

    def _solve(self, group: Sequence[Needs]) -> _Solution:
        places = sorted({place for needs in group for place in needs})
        if len(places) == 2:
            return self._of_two(group, places[0], places[1])
        return self._of_many(group, places)

    def _price(self, place: int, capacity: int) -> int:
        return (capacity - self._least[place]) * self._cost[place]

    def _of_two(self, group: Sequence[Needs], one: int, other: int) -> _Solution:
        """None follows from another: whoever wants more of the one, wants less of the other."""
        ordered = sorted((needs[one], needs[other]) for needs in group)
        self.work += 2 * len(group)
        ones = [self._least[one], *(needed for needed, _ in ordered)]
        others = [*(needed for _, needed in ordered), self._least[other]]
        bound, capacity, rest = min(
            (self._price(one, a) + self._price(other, b), a, b)
            for a, b in zip(ones, others, strict=True)
        )
        return _Solution({one: capacity, other: rest}, bound)

    def _of_many(self, group: Sequence[Needs], places: Sequence[int]) -> _Solution:
        levels = {p: sorted({needs[p] for needs in group if p in needs}) for p in places}
        step = {one: i for i, one in enumerate((p, n) for p in places for n in levels[p])}
        ladders = [[self._least[p], *levels[p]] for p in places]
        prices = [
            self._price(p, high) - self._price(p, low)
            for p, ladder in zip(places, ladders, strict=True)
            for low, high in pairwise(ladder)
        ]
        # No step before the one below it.
        order = [(step[p, low], step[p, high]) for p in places for low, high in pairwise(levels[p])]
        wanted = [[step[p, needed] for p, needed in needs.items()] for needs in group]
        taken, bound, nodes = choice(prices, order, wanted)
        self.work += _HIGHS + _PER_NODE * nodes + 10 * len(step)
        capacities = {p: self._least[p] for p in places}
        for (p, needed), i in step.items():
            if i in taken:
                capacities[p] = max(capacities[p], needed)
        return _Solution(capacities, bound)


def choice(
    prices: Sequence[int], order: Sequence[tuple[int, int]], wanted: Sequence[Sequence[int]]
) -> tuple[set[int], int, int]:
    """The cheapest steps of which each of `wanted` has one, and a bound from below of their price.

    Of each pair in `order`, the second is taken only if the first is. Also returns the nodes of
    HiGHS's search tree. The bound is the price itself, unless the tree grew too large.
    """
    import numpy as np  # noqa: PLC0415 (slow to import; few graphs need it)
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    unit = math.gcd(*prices) or 1
    entries = [
        *(
            (row, column, sign)
            for row, pair in enumerate(order)
            for column, sign in zip(pair, (1, -1), strict=True)
        ),
        *((row, column, 1) for row, steps in enumerate(wanted, len(order)) for column in steps),
    ]
    rows, columns, values = zip(*entries, strict=True)
    shape = (len(order) + len(wanted), len(prices))
    found = milp(
        [price // unit for price in prices],
        integrality=np.ones(len(prices)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(
            coo_array((values, (rows, columns)), shape=shape).tocsr(),
            [0] * len(order) + [1] * len(wanted),
            np.inf,
        ),
        options={"mip_rel_gap": 0, "node_limit": NODE_LIMIT},
    )
    taken = set() if found.x is None else set(np.flatnonzero(found.x > 0.5).tolist())
    proved = found.status == 0 and not any(taken.isdisjoint(steps) for steps in wanted)
    for steps in wanted:
        if taken.isdisjoint(steps):  # where HiGHS has found nothing in time
            taken.add(min(steps, key=lambda one: prices[one]))
    below = {second: first for first, second in order}
    for one in list(taken):
        lower = below.get(one)
        while lower is not None:
            taken.add(lower)
            lower = below.get(lower)
    price = sum(prices[one] for one in taken)
    bound = price if proved else unit * math.ceil((found.mip_dual_bound or 0) - 1e-6)
    return taken, bound, int(found.mip_node_count or 0)


def _implies(strong: Needs, weak: Needs) -> bool:
    """Whether what fulfils `strong` fulfils `weak`, which speaks of the same places or more."""
    return all(needed >= weak[place] for place, needed in strong.items())
