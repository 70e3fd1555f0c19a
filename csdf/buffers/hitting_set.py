"""Find a cheapest storage distribution that satisfies all known requirements of a goal.

Each conflict requires one of several numbers of steps, each cycle bound a weighted sum of steps
(`csdf.buffers.conflicts`). The least cost at which all these requirements are met is a lower bound
on the cost of the goal; it rises as more requirements become known. Requirements are divided into
groups that share no channel. Each group is solved by itself, and again only when a requirement
joins it: conflicts between the same two needs by enumeration, all others as an integer program by
HiGHS.

In the integer program, each place has an integer x of steps. Each number n of steps that a conflict
names, for one place or for several together, has a binary choice y: n steps are taken. Each
conflict needs one of its choices, and x, or the sum of several x, is at least what its choices
imply. HiGHS works in floating point. So its solution is checked in integers, but that no solution
is cheaper rests on HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from csdf.buffers.conflicts import Conflict, CycleBound

Needs = Mapping[tuple[int, ...], int]
"""A conflict: steps by set of places, which take them together; one entry must be satisfied."""

NODE_LIMIT = 5000
"""Nodes of the search tree after which HiGHS ends with a lower bound."""

# Work of an integer program: a constant, per node searched, per requirement and per choice.
_PROGRAM = 2000

_PER_NODE = 300

_PER_NEED = 20

_PER_CHOICE = 20


@dataclass(frozen=True, slots=True)
class LinearBound:
    """The requirement Σ weight × steps ≥ `at_least`, with weights by place."""

    weights: Mapping[int, int]
    at_least: int

    def lacks(self, steps: Mapping[int, int]) -> int:
        """Return by how much `steps` miss the bound; 0 or less if they meet it."""
        return self.at_least - sum(w * steps[p] for p, w in self.weights.items())


def solve(
    floor: Mapping[int, int],
    price: Mapping[int, int],
    needs: Sequence[Needs],
    bounds: Sequence[LinearBound],
) -> tuple[dict[int, int], int, int]:
    """Return steps by place, at least `floor`; a lower bound on their cost; the nodes searched.

    The lower bound equals the cost of the steps, unless the search tree grew too large. `floor`
    must not satisfy any of the `needs`.
    """
    import numpy as np  # noqa: PLC0415 (slow to import; few graphs need it)
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    column = {place: i for i, place in enumerate(floor)}
    place_sets = dict.fromkeys(places for one in needs for places in one)
    levels = {s: sorted({one[s] for one in needs if s in one}) for s in place_sets}
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
    """Raise `steps` until they meet all requirements; return whether that was necessary."""
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


@dataclass(frozen=True, slots=True)
class _Group:
    """Requirements that share channels with each other but with no other group."""

    needs: Sequence[Needs]
    bounds: Sequence[LinearBound]

    @property
    def place_sets(self) -> set[tuple[int, ...]]:
        """The sets of places in the needs."""
        return {places for one in self.needs for places in one}

    @property
    def places(self) -> list[int]:
        parts: list[Iterable[int]] = [*self.place_sets, *(bound.weights for bound in self.bounds)]
        return sorted({place for part in parts for place in part})


class HittingSet:
    """The known requirements of one goal, and a cheapest distribution that meets all of them.

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
        """Add a conflict, unless a known one implies it; drop conflicts that it implies."""
        new = {need.places: need.steps for need in conflict.needed}
        if len(new) == 1:
            ((places, steps),) = new.items()
            self._require(dict.fromkeys(places, 1), steps)
            return
        named = frozenset(new)
        for others, known in list(self._conflicts.items()):
            if others <= named and any(_implies(one, new) for one in known):
                return
            if named <= others:
                self._conflicts[others] = [one for one in known if not _implies(new, one)]
        self._conflicts.setdefault(named, []).append(new)

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

        The lower bound equals the cost of these steps, unless that took too long to prove.
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
        """Return a key of all that determines the solution of a group."""
        return (
            tuple(self._floor[p] for p in group.places),
            frozenset(tuple(sorted(one.items())) for one in group.needs),
            frozenset((tuple(bound.weights.items()), bound.at_least) for bound in group.bounds),
        )

    def _groups(self) -> list[_Group]:
        """Group the requirements that the floor misses by the channels that they share."""
        floor = self._floor
        parts: list[tuple[list[int], _Group]] = []
        for named, known in self._conflicts.items():
            base = {places: sum(floor[p] for p in places) for places in named}
            known[:] = [one for one in known if all(n > base[s] for s, n in one.items())]
            if known:
                parts.append(([p for places in named for p in places], _Group(known, [])))
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
        named = sorted(group.place_sets)
        if len(named) == 2 and not group.bounds and set(named[0]).isdisjoint(named[1]):
            return self._of_two(group.needs, *named)
        floor = {p: self._floor[p] for p in group.places}
        price = {p: self._price[p] for p in group.places}
        taken, bound, nodes = solve(floor, price, group.needs, group.bounds)
        size = len(group.needs) * sum(len({one.get(s) for one in group.needs}) for s in named)
        self.work += _PROGRAM + _PER_NODE * nodes + _PER_CHOICE * size * (1 + size // 1000)
        return taken, bound

    def _of_two(
        self, needs: Sequence[Needs], one: tuple[int, ...], other: tuple[int, ...]
    ) -> tuple[dict[int, int], int]:
        """Solve conflicts between two needs by enumeration.

        No conflict implies another, so a conflict that needs more of the one needs less of the
        other.
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
    """Return whether whatever meets `strong` meets `weak`, which has the same needs or more."""
    return all(steps >= weak[places] for places, steps in strong.items())
