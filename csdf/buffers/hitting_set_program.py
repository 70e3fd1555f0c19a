"""The minimum-cost hitting set as an integer program, solved by HiGHS.

Each place has a whole number x of steps. Each number n of steps that a conflict names, in one place
or in several together, has a binary choice y: n steps are taken. Each conflict needs one of its
choices, and x, or the sum of several x, is at least what its choices add up to. HiGHS works in
floating point, so its solution is checked in whole numbers; that nothing is cheaper rests on HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

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
