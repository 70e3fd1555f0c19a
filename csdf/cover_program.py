"""The cheapest numbers of steps that fulfil conflicts and sums, as an integer program.

Each place has a whole number of steps x and, for each number n that some conflict asks for, a
choice y: at least n steps are taken. Conflicts want one of their choices; x is at least what its
choices add up to. HiGHS solves it in floating point, with whole numbers in and out; what it chooses
is checked in whole numbers, and that nothing is cheaper is its word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Needs = Mapping[int, int]
"""Place → steps; one of them is to be reached."""

NODE_LIMIT = 5000
"""Nodes of a search tree after which a bound has to do."""


@dataclass(frozen=True, slots=True)
class Total:
    """Σ weight × steps must be `at_least`, with weights by place."""

    weights: Mapping[int, int]
    at_least: int

    def lacks(self, steps: Mapping[int, int]) -> int:
        """How much is missing."""
        return self.at_least - sum(w * steps[p] for p, w in self.weights.items())


def solve(
    floor: Mapping[int, int],
    price: Mapping[int, int],
    needs: Sequence[Needs],
    totals: Sequence[Total],
) -> tuple[dict[int, int], int, int]:
    """Steps by place, no less than `floor`; a bound from below of their price; nodes searched.

    The bound is the price of the steps, unless the tree grew too large. No need may be fulfilled
    by the floor.
    """
    import numpy as np  # noqa: PLC0415 (slow to import; few graphs need it)
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415
    from scipy.sparse import coo_array  # noqa: PLC0415

    column = {place: i for i, place in enumerate(floor)}
    levels = {p: sorted({one[p] for one in needs if p in one}) for p in floor}
    choice = {
        one: i for i, one in enumerate(((p, n) for p in floor for n in levels[p]), len(floor))
    }
    rows: list[dict[int, int]] = []
    at_least: list[int] = []
    for p, own in levels.items():
        ladder = [floor[p], *own]
        rises = {choice[p, high]: low - high for low, high in pairwise(ladder)}
        rows.append({column[p]: 1, **rises})
        at_least.append(floor[p])
        rows += [{choice[p, low]: 1, choice[p, high]: -1} for low, high in pairwise(own)]
        at_least += [0] * (len(own) - 1 if own else 0)
    rows += [{choice[p, n]: 1 for p, n in one.items()} for one in needs]
    at_least += [1] * len(needs)
    rows += [{column[p]: w for p, w in total.weights.items()} for total in totals]
    at_least += [total.at_least for total in totals]
    unit = math.gcd(*price.values()) or 1
    size = len(floor) + len(choice)
    entries = [(v, r, c) for r, row in enumerate(rows) for c, v in row.items()]
    values, numbers, columns = zip(*entries, strict=True)
    found = milp(
        [*(price[p] // unit for p in floor), *[0] * len(choice)],
        integrality=np.ones(size),
        bounds=Bounds(
            [*floor.values(), *[0] * len(choice)], [np.inf] * len(floor) + [1] * len(choice)
        ),
        constraints=LinearConstraint(
            coo_array((values, (numbers, columns)), shape=(len(rows), size)).tocsr(),
            at_least,
            np.inf,
        ),
        options={"mip_rel_gap": 0, "node_limit": NODE_LIMIT},
    )
    steps = dict(floor)
    if found.x is not None:
        steps = {p: max(floor[p], round(found.x[i])) for p, i in column.items()}
    proved = not _completed(steps, price, needs, totals) and found.status == 0
    cost = sum(price[p] * count for p, count in steps.items())
    bound = cost
    if not proved:
        least = sum(price[p] * count for p, count in floor.items())
        bound = max(least, unit * math.ceil((found.mip_dual_bound or 0) - 1e-6))
    return steps, bound, int(found.mip_node_count or 0)


def _completed(
    steps: dict[int, int],
    price: Mapping[int, int],
    needs: Sequence[Needs],
    totals: Sequence[Total],
) -> bool:
    """Fulfils what `steps` do not; returns whether there was anything."""
    missing = False
    for one in needs:
        if all(steps[p] < n for p, n in one.items()):
            place = min(one, key=lambda p: (one[p] - steps[p]) * price[p])
            steps[place], missing = one[place], True
    for total in totals:
        if (lacks := total.lacks(steps)) > 0:
            place = min(total.weights, key=lambda p: price[p] / total.weights[p])
            steps[place] += -(-lacks // total.weights[place])
            missing = True
    return missing
