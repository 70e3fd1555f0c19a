"""The best contiguous cuts by dynamic programming, over every order of the devices.

Devices that are alike are interchangeable, so the dynamic program runs over how many of each kind
are used: for n equal devices that is n + 1 states, for n different ones 2^n, which covers every
order of the devices. Its work also grows with the square of the number of cut points.

Where that exceeds `MAX_WORK`, cut points are thinned first: the network is divided into windows of
about equal time and weights, and each window keeps only the cut point with the fewest bytes, and
those around pinned layers. If fewer than `FEWEST` windows would remain, all cut points are kept,
and the devices are used in the user's order only.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from partition.pricing.traffic import Floats
from partition.strategies.contiguous.segments import Segments

MAX_WORK = 5e8
"""The number of transitions × segments beyond which the devices are used in the user's order only
(half a second)."""

TRANSITION = 23_000
"""The cost of a transition in addition to its segments, in segments."""


def best_cuts(
    kinds: Sequence[Sequence[int]], values: Floats, *, total: bool, most: int | None = None
) -> tuple[float, NDArray[np.intp]] | None:
    """Minimise the largest value of any segment, or with `total` the sum of values, over all cuts.

    `values` is [kinds, layers + 1, layers + 1], infinite where a segment is forbidden. At most
    `most` devices get layers. Returns the minimum and a device number per layer, or None if no cut
    is possible. Segments may be empty.
    """
    count = values.shape[1] - 1
    states, steps = _states([len(members) for members in kinds], count)
    best: dict[tuple[int, ...], Floats] = {states[0]: np.full(count + 1, np.inf)}
    best[states[0]][0] = 0.0
    choice: dict[tuple[int, ...], tuple[NDArray[np.intp], list[int]]] = {}
    for state in states[1:]:
        options, cuts, used = [], [], []
        for kind in steps[state]:
            before = best[_without(state, kind)][:, None]
            through = before + values[kind] if total else np.maximum(before, values[kind])
            at = through.argmin(axis=0)
            options.append(through[at, np.arange(count + 1)])
            cuts.append(at)
            used.append(kind)
        pick = np.argmin(options, axis=0)
        columns = np.arange(count + 1)
        best[state] = np.asarray(options)[pick, columns]
        choice[state] = (np.asarray(cuts)[pick, columns], [used[number] for number in pick])
    used_up = min(sum(states[-1]), most or sum(states[-1]))
    final = min(
        (state for state in states if sum(state) == used_up), key=lambda state: best[state][count]
    )
    if not np.isfinite(best[final][count]):
        return None
    return float(best[final][count]), _trace(kinds, choice, final, count)


def affordable_units(counts: Sequence[int]) -> int:
    """Return the most layers for which every order of `counts` devices per kind can be tried."""
    transitions = float(np.prod([count + 1.0 for count in counts])) * len(counts)
    return int(np.sqrt(max(MAX_WORK / transitions - TRANSITION, 0.0)))


def _trace(
    kinds: Sequence[Sequence[int]],
    choice: dict[tuple[int, ...], tuple[NDArray[np.intp], list[int]]],
    state: tuple[int, ...],
    end: int,
) -> NDArray[np.intp]:
    pieces: list[tuple[int, int, int]] = []
    position = end
    while any(state):
        starts, used = choice[state]
        kind, start = used[position], int(starts[position])
        pieces.append((kind, start, position))
        state, position = _without(state, kind), start
    left = [list(members) for members in kinds]
    numbers = np.empty(end, dtype=np.intp)
    for kind, start, stop in reversed(pieces):
        numbers[start:stop] = left[kind].pop(0)
    return numbers


def _states(
    counts: Sequence[int], layers: int
) -> tuple[list[tuple[int, ...]], dict[tuple[int, ...], list[int]]]:
    """Return the numbers used of each kind, ascending, and the kinds that may come last."""
    if layers <= affordable_units(counts):
        states = sorted(itertools.product(*(range(count + 1) for count in counts)), key=sum)
        return states, {
            state: [kind for kind, used in enumerate(state) if used] for state in states
        }
    states = [tuple(0 for _ in counts)]
    steps: dict[tuple[int, ...], list[int]] = {}
    for kind, count in enumerate(counts):
        for used in range(1, count + 1):
            states.append((*counts[:kind], used, *(0 for _ in counts[kind + 1 :])))
            steps[states[-1]] = [kind]
    return states, steps


def _without(state: tuple[int, ...], kind: int) -> tuple[int, ...]:
    return (*state[:kind], state[kind] - 1, *state[kind + 1 :])


FEWEST = 48


def thinned(priced: Segments) -> tuple[Segments, NDArray[np.intp]]:
    """Return the segments between an affordable number of cut points, and these cut points."""
    units = len(priced.weight_bytes) - 1
    most = affordable_units([len(members) for members in priced.kinds])
    if units <= most or most < FEWEST:
        return priced, np.arange(units + 1)
    spent = _share(priced.layer_s[:, 0, :].mean(axis=0)) + _share(priced.weight_bytes[0])
    window = np.minimum(spent / 2 * (most - 1), most - 2).astype(np.intp)
    crossing = priced.received_bytes[:, -1]
    inner = np.arange(1, units)
    order = inner[np.lexsort((crossing[inner], window[inner]))]
    _, first = np.unique(window[order], return_index=True)
    pinned = np.flatnonzero(~np.diagonal(priced.allowed, offset=1, axis1=1, axis2=2).all(axis=0))
    places = np.unique(np.concatenate([[0], order[first], pinned, pinned + 1, [units]]))
    return priced.at(places.tolist()), places


def _share(added_up: Floats) -> Floats:
    """Turn cumulative sums into shares of the whole."""
    return np.asarray(added_up / added_up[-1] if added_up[-1] > 0 else added_up)


def expanded(of_unit: NDArray[np.intp], places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return a device number per unit before thinning, from one per segment between `places`."""
    return np.repeat(of_unit, np.diff(places))
