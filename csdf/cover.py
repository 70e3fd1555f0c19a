"""The smallest distribution that all that is known of a goal allows.

Each conflict (`csdf.conflicts`) wants one of its channels to reach a capacity, each sum
(`csdf.sums`) some channels to reach one together. What it costs least to give all of them what they
want is a bound from below for what the goal costs, and rises as more becomes known. They fall apart
into groups that share no channel; each is solved by itself, and again only when something joins it:
two channels by going through the capacities of one, more as an integer program
(`csdf.cover_program`).

Capacities count here as steps of their channel's grain above the least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from csdf.conflicts import Conflict
from csdf.cover_program import Needs, Total, solve
from csdf.sums import Sum

_PROGRAM = 2000
_PER_NODE = 300
_PER_NEED = 20
_PER_CHOICE = 20


@dataclass(frozen=True, slots=True)
class _Group:
    """What is known of some channels."""

    needs: Sequence[Needs]
    totals: Sequence[Total]

    @property
    def places(self) -> list[int]:
        parts = [*self.needs, *(total.weights for total in self.totals)]
        return sorted({place for part in parts for place in part})


class Cover:
    """What is known of one goal, and the smallest distribution that it allows.

    `work` counts what has been spent on it, in the unit of `csdf.storage.Storage.work`.
    """

    def __init__(self, least: Sequence[int], grain: Sequence[int], cost: Sequence[int]) -> None:
        """`cost` is that of a token, by place."""
        self._least, self._grain, self._cost = least, grain, cost
        self._floor = [0] * len(least)
        # Places → conflicts of just these, none of which follows from another conflict.
        self._by_places: dict[frozenset[int], list[Needs]] = {}
        # Weights → the largest total that is wanted.
        self._totals: dict[tuple[tuple[int, int], ...], int] = {}
        self._solved: dict[object, tuple[Needs, int]] = {}
        self.work = 0

    def add(self, conflict: Conflict) -> None:
        """Of conflicts that follow from each other only the strongest is kept."""
        new = {
            place: -((self._least[place] - needed) // self._grain[place])
            for place, needed in conflict.needed
        }
        if len(new) == 1:
            ((place, steps),) = new.items()
            self._floor[place] = max(self._floor[place], steps)
            return
        places = frozenset(new)
        for others, known in list(self._by_places.items()):
            if others <= places and any(_implies(one, new) for one in known):
                return
            if places <= others:
                self._by_places[others] = [one for one in known if not _implies(new, one)]
        self._by_places.setdefault(places, []).append(new)

    def add_sum(self, wanted: Sum) -> None:
        """Of sums with the same weights only the largest is kept."""
        rest = wanted.at_least - sum(w * self._least[p] for p, w in wanted.weights)
        weights = {p: w * self._grain[p] for p, w in wanted.weights}
        unit = math.gcd(*weights.values())
        total = -(-rest // unit)
        if len(weights) == 1:
            ((place, _),) = weights.items()
            self._floor[place] = max(self._floor[place], total)
            return
        key = tuple(sorted((p, w // unit) for p, w in weights.items()))
        self._totals[key] = max(total, self._totals.get(key, total))

    def smallest(self) -> tuple[tuple[int, ...], int]:
        """The distribution, and a bound from below of the size of any that is allowed.

        The bound is the distribution's own size, unless that took too long to prove.
        """
        steps = list(self._floor)
        bound = 0
        solved = {}
        for group in self._groups():
            key = self._key(group)
            if key not in self._solved:
                self._solved[key] = self._solve(group)
            solved[key] = self._solved[key]
            taken, least = solved[key]
            bound += least
            for place, count in taken.items():
                bound -= self._price(place, self._floor[place])
                steps[place] = count
        self._solved = solved
        bound += sum(self._price(p, count) for p, count in enumerate(self._floor))
        bound += sum(c * cost for c, cost in zip(self._least, self._cost, strict=True))
        parts = zip(self._least, self._grain, steps, strict=True)
        return tuple(least + grain * count for least, grain, count in parts), bound

    def _price(self, place: int, steps: int) -> int:
        return steps * self._grain[place] * self._cost[place]

    def _key(self, group: _Group) -> object:
        """All that decides the solution of a group."""
        return (
            tuple(self._floor[p] for p in group.places),
            frozenset(tuple(sorted(needs.items())) for needs in group.needs),
            frozenset((tuple(total.weights.items()), total.at_least) for total in group.totals),
        )

    def _groups(self) -> list[_Group]:
        """What the floor does not fulfil, by channels that are shared."""
        floor = self._floor
        group: dict[int, int] = {}
        members: dict[int, list[int]] = {}

        def join(places: Sequence[int]) -> None:
            joined = {group.get(place, place) for place in places}
            name = min(joined)
            members[name] = [one for old in joined for one in members.pop(old, [old])]
            group.update(dict.fromkeys(members[name], name))

        for known in self._by_places.values():
            known[:] = [one for one in known if all(n > floor[p] for p, n in one.items())]
            if known:
                join(list(known[0]))
        totals = [
            Total(dict(weights), at_least)
            for weights, at_least in self._totals.items()
            if sum(w * floor[p] for p, w in weights) < at_least
        ]
        for total in totals:
            join(list(total.weights))
        found: dict[int, _Group] = {}
        for known in self._by_places.values():
            if known:
                name = group[next(iter(known[0]))]
                old = found.setdefault(name, _Group([], []))
                found[name] = _Group([*old.needs, *known], [])
        for total in totals:
            name = group[next(iter(total.weights))]
            old = found.setdefault(name, _Group([], []))
            found[name] = _Group(old.needs, [*old.totals, total])
        return list(found.values())

    def _solve(self, group: _Group) -> tuple[Needs, int]:
        """Steps by place, and a bound from below of what they cost."""
        self.work += _PER_NEED * (len(group.needs) + len(group.totals))
        if len(group.places) == 2 and not group.totals:
            return self._of_two(group.needs, *group.places)
        floor = {p: self._floor[p] for p in group.places}
        price = {p: self._price(p, 1) for p in group.places}
        taken, bound, nodes = solve(floor, price, group.needs, group.totals)
        size = len(group.needs) * sum(
            len({one[p] for one in group.needs if p in one}) for p in floor
        )
        self.work += _PROGRAM + _PER_NODE * nodes + _PER_CHOICE * size * (1 + size // 1000)
        return taken, bound

    def _of_two(self, group: Sequence[Needs], one: int, other: int) -> tuple[Needs, int]:
        """None follows from another: whoever wants more of the one wants less of the other."""
        ordered = sorted((needs[one], needs[other]) for needs in group)
        ones = [self._floor[one], *(steps for steps, _ in ordered)]
        others = [*(steps for _, steps in ordered), self._floor[other]]
        bound, first, second = min(
            (self._price(one, a) + self._price(other, b), a, b)
            for a, b in zip(ones, others, strict=True)
        )
        return {one: first, other: second}, bound


def _implies(strong: Needs, weak: Needs) -> bool:
    """Whether what fulfils `strong` fulfils `weak`, which speaks of the same places or more."""
    return all(needed >= weak[place] for place, needed in strong.items())
