"""A minimum-cost hitting set of the conflicts and cycle bounds that are known of a goal.

Each conflict (`csdf.buffers.conflicts`) requires that one of several numbers of steps is taken,
each cycle bound (`csdf.buffers.conflicts`) that a weighted sum of steps is large enough. The
least cost at which all these requirements are met is a lower bound on what the goal costs; it rises
as more becomes known. The requirements fall apart into groups that share no channel. Each group is
solved by itself, and again only when something joins it: conflicts between the same two needs by
enumeration, all others as an integer program (`csdf.buffers.hitting_set`).

The minimum-cost hitting set as an integer program, solved by HiGHS.

Each place has a whole number x of steps. Each number n of steps that a conflict names, in one place
or in several together, has a binary choice y: n steps are taken. Each conflict needs one of its
choices, and x, or the sum of several x, is at least what its choices add up to. HiGHS works in
floating point, so its solution is checked in whole numbers; that nothing is cheaper rests on HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from csdf.buffers.conflicts import Conflict, CycleBound

Needs = Mapping[tuple[int, ...], int]
"""A conflict: sets of places → the steps that they must take together; one of these suffices."""

NODE_LIMIT = 5000
"""Nodes of the search tree after which the search ends with a lower bound."""


@dataclass(frozen=True, slots=True)
class LinearBound:
    """The requirement Σ weight × steps ≥ `at_least`, with weights by place."""

    weights: Mapping[int, int]
    at_least: int

    def lacks(self, steps: Mapping[int, int]) -> int:
        """Return by how much `steps` fall short; 0 or less if they do not."""
        return self.at_least - sum(w * steps[p] for p, w in self.weights.items())


def solve(
    floor: Mapping[int, int],
    price: Mapping[int, int],
    needs: Sequence[Needs],
    bounds: Sequence[LinearBound],
) -> tuple[dict[int, int], int, int]:
    """Return steps by place, at least `floor`; a lower bound on their cost; the nodes searched.

    The bound equals the cost of the steps, unless the search tree grew too large. The floor must
    not meet any of the `needs`.
    """
    import numpy as np  # noqa: PLC0415 (slow to import; few graphs need it)
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    column = {place: i for i, place in enumerate(floor)}
    asked = dict.fromkeys(places for one in needs for places in one)
    levels = {s: sorted({one[s] for one in needs if s in one}) for s in asked}
    named = ((places, n) for places, own in levels.items() for n in own)
    choice = {one: i for i, one in enumerate(named, len(floor))}
    rows: list[tuple[Mapping[int, int], int]] = []
    for places, own in levels.items():
        base = sum(floor[p] for p in places)
        rises = {choice[places, high]: low - high for low, high in pairwise([base, *own])}
        rows.append(({**{column[p]: 1 for p in places}, **rises}, base))
        steps_up = [(choice[places, low], choice[places, high]) for low, high in pairwise(own)]
        rows += [({low: 1, high: -1}, 0) for low, high in steps_up]
    rows += [({choice[s, n]: 1 for s, n in one.items()}, 1) for one in needs]
    rows += [({column[p]: w for p, w in t.weights.items()}, t.at_least) for t in bounds]
    entries = [(v, r, c) for r, (row, _) in enumerate(rows) for c, v in row.items()]
    values, numbers, columns = zip(*entries, strict=True)
    size = len(floor) + len(choice)
    matrix = coo_array((values, (numbers, columns)), shape=(len(rows), size)).tocsr()
    unit = math.gcd(*price.values()) or 1
    least = [*floor.values(), *[0] * len(choice)]
    most = [*[np.inf] * len(floor), *[1] * len(choice)]
    found = milp(
        [*(price[p] // unit for p in floor), *[0] * len(choice)],
        integrality=np.ones(size),
        bounds=Bounds(least, most),
        constraints=LinearConstraint(matrix, [low for _, low in rows], np.inf),
        options={"mip_rel_gap": 0, "node_limit": NODE_LIMIT},
    )
    steps = dict(floor)
    if found.x is not None:
        steps = {p: max(floor[p], round(found.x[i])) for p, i in column.items()}
    proved = not _completed(steps, price, needs, bounds) and found.status == 0
    cost = bound = sum(price[p] * count for p, count in steps.items())
    if not proved:
        known = sum(price[p] * count for p, count in floor.items())
        bound = min(cost, max(known, unit * math.ceil((found.mip_dual_bound or 0) - 1e-6)))
    return steps, bound, int(found.mip_node_count or 0)


def _completed(
    steps: dict[int, int],
    price: Mapping[int, int],
    needs: Sequence[Needs],
    bounds: Sequence[LinearBound],
) -> bool:
    """Raise `steps` until they meet all requirements; return whether they met some not."""
    missing = False
    for one in needs:
        lacks = {places: n - sum(steps[p] for p in places) for places, n in one.items()}
        if min(lacks.values()) > 0:
            cheapest = {places: min(places, key=lambda p: price[p]) for places in one}
            places = min(one, key=lambda s: lacks[s] * price[cheapest[s]])
            steps[cheapest[places]] += lacks[places]
            missing = True
    for bound in bounds:
        if (more := bound.lacks(steps)) > 0:
            place = min(bound.weights, key=lambda p: price[p] / bound.weights[p])
            steps[place] += -(-more // bound.weights[place])
            missing = True
    return missing


_PROGRAM = 2000
_PER_NODE = 300
_PER_NEED = 20
_PER_CHOICE = 20


@dataclass(frozen=True, slots=True)
class _Group:
    """Requirements that share channels with each other but with no other group."""

    needs: Sequence[Needs]
    bounds: Sequence[LinearBound]

    @property
    def asked(self) -> set[tuple[int, ...]]:
        """The sets of places that needs name."""
        return {places for one in self.needs for places in one}

    @property
    def places(self) -> list[int]:
        parts: list[Iterable[int]] = [*self.asked, *(bound.weights for bound in self.bounds)]
        return sorted({place for part in parts for place in part})


class HittingSet:
    """The requirements known of one goal, and the cheapest distribution that meets them all.

    `work` counts the effort spent on solving, in the unit of `csdf.buffers.storage.Storage.work`.
    """

    def __init__(self, price: Sequence[int]) -> None:
        """`price` is the cost of a step, by place."""
        self._price = price
        self._floor = [0] * len(price)
        # Sets of places → the conflicts that name just these; none follows from another conflict.
        self._conflicts: dict[frozenset[tuple[int, ...]], list[Needs]] = {}
        # Weights → the largest weighted sum that is required.
        self._linear_bounds: dict[tuple[tuple[int, int], ...], int] = {}
        self._solved: dict[object, tuple[dict[int, int], int]] = {}
        self.work = 0

    def add(self, conflict: Conflict) -> None:
        """Add a conflict, unless it follows from a known one; drop those that follow from it."""
        new = {need.places: need.steps for need in conflict.needed}
        if len(new) == 1:
            ((places, steps),) = new.items()
            self._require(dict.fromkeys(places, 1), steps)
            return
        asked = frozenset(new)
        for others, known in list(self._conflicts.items()):
            if others <= asked and any(_implies(one, new) for one in known):
                return
            if asked <= others:
                self._conflicts[others] = [one for one in known if not _implies(new, one)]
        self._conflicts.setdefault(asked, []).append(new)

    def add_bound(self, bound: CycleBound) -> None:
        """Add a cycle bound; of those with the same weights only the largest is kept."""
        self._require(dict(bound.weights), bound.at_least)

    def _require(self, weights: dict[int, int], at_least: int) -> None:
        unit = math.gcd(*weights.values())
        total = -(-at_least // unit)
        if len(weights) == 1:
            (place,) = weights
            self._floor[place] = max(self._floor[place], total)
            return
        key = tuple(sorted((place, weight // unit) for place, weight in weights.items()))
        self._linear_bounds[key] = max(total, self._linear_bounds.get(key, total))

    def smallest(self) -> tuple[tuple[int, ...], int]:
        """Return the steps of a cheapest distribution, by place, and a lower bound on its cost.

        The bound equals the cost of these steps, unless that took too long to prove.
        """
        taken = list(self._floor)
        bound = sum(price * steps for price, steps in zip(self._price, self._floor, strict=True))
        solved = {}
        for group in self._groups():
            key = self._key(group)
            if key not in self._solved:
                self._solved[key] = self._solve(group)
            solved[key] = self._solved[key]
            steps, least = solved[key]
            for place, count in steps.items():
                taken[place] = count
            bound += least - sum(self._price[p] * self._floor[p] for p in steps)
        self._solved = solved
        return tuple(taken), bound

    def _key(self, group: _Group) -> object:
        """Return all that decides the solution of a group."""
        return (
            tuple(self._floor[p] for p in group.places),
            frozenset(tuple(sorted(one.items())) for one in group.needs),
            frozenset((tuple(bound.weights.items()), bound.at_least) for bound in group.bounds),
        )

    def _groups(self) -> list[_Group]:
        """Group the requirements that the floor does not meet by the channels that they share."""
        floor = self._floor
        parts: list[tuple[list[int], _Group]] = []
        for asked, known in self._conflicts.items():
            base = {places: sum(floor[p] for p in places) for places in asked}
            known[:] = [one for one in known if all(n > base[s] for s, n in one.items())]
            if known:
                parts.append(([p for places in asked for p in places], _Group(known, [])))
        for weights, at_least in self._linear_bounds.items():
            bound = LinearBound(dict(weights), at_least)
            if sum(w * floor[p] for p, w in weights) < at_least:
                parts.append((list(bound.weights), _Group([], [bound])))
        name: dict[int, int] = {}
        members: dict[int, list[int]] = {}
        for places, _ in parts:
            joined = {name.get(place, place) for place in places}
            first = min(joined)
            members[first] = [one for old in joined for one in members.pop(old, [old])]
            name.update(dict.fromkeys(members[first], first))
        found: dict[int, list[_Group]] = {}
        for places, part in parts:
            found.setdefault(name[places[0]], []).append(part)
        return [
            _Group(
                [n for part in own for n in part.needs], [t for part in own for t in part.bounds]
            )
            for own in found.values()
        ]

    def _solve(self, group: _Group) -> tuple[dict[int, int], int]:
        """Return steps by place, and a lower bound on their cost."""
        self.work += _PER_NEED * (len(group.needs) + len(group.bounds))
        asked = sorted(group.asked)
        if len(asked) == 2 and not group.bounds and set(asked[0]).isdisjoint(asked[1]):
            return self._of_two(group.needs, *asked)
        floor = {p: self._floor[p] for p in group.places}
        price = {p: self._price[p] for p in group.places}
        taken, bound, nodes = solve(floor, price, group.needs, group.bounds)
        size = len(group.needs) * sum(len({one.get(s) for one in group.needs}) for s in asked)
        self.work += _PROGRAM + _PER_NODE * nodes + _PER_CHOICE * size * (1 + size // 1000)
        return taken, bound

    def _of_two(
        self, needs: Sequence[Needs], one: tuple[int, ...], other: tuple[int, ...]
    ) -> tuple[dict[int, int], int]:
        """Solve conflicts between two needs by enumeration.

        No conflict follows from another, so one that asks for more of the one need asks for less of
        the other.
        """
        cheap = [min(places, key=lambda p: (self._price[p], p)) for places in (one, other)]
        base = [sum(self._floor[p] for p in places) for places in (one, other)]
        ordered = sorted((need[one], need[other]) for need in needs)
        firsts = [0, *(steps - base[0] for steps, _ in ordered)]
        seconds = [*(steps - base[1] for _, steps in ordered), 0]
        price = [self._price[place] for place in cheap]
        cost, *more = min(
            (price[0] * a + price[1] * b, a, b) for a, b in zip(firsts, seconds, strict=True)
        )
        taken = {place: self._floor[place] for place in (*one, *other)}
        bound = cost + sum(self._price[p] * steps for p, steps in taken.items())
        for place, steps in zip(cheap, more, strict=True):
            taken[place] += steps
        return taken, bound


def _implies(strong: Needs, weak: Needs) -> bool:
    """Return whether all that meets `strong` meets `weak`, which names the same needs or more."""
    return all(steps >= weak[places] for places, steps in strong.items())
