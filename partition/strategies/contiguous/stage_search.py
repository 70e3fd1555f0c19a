"""Exhaustive search over the cuts of a network into stages and the orders of devices.

`Stages` prices many vectors of cut points at once, from tables of what segments cost
(`partition.strategies.contiguous.segments`). It knows that two stages of one device add up, and
that devices of one machine share its cores. The best of its prices are priced again by `CostModel`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from partition.prediction.fair_memory import room_bytes
from partition.pricing.busy import period_s, rate_columns, shared_machines
from partition.pricing.traffic import Floats
from partition.strategies.alike import kind_by_device
from partition.strategies.base import Problem
from partition.strategies.contiguous.segments import Segments

CHUNK = 100_000
"""Vectors of cut points priced at once."""

KEPT = 64
"""How many of the best are priced again exactly."""

Cuts = NDArray[np.intp]
"""Ascending cut points [individuals, stages - 1]; stage i ends before cut i."""


@dataclass(frozen=True)
class Stages:
    """The segments of a problem as stages of a pipeline; see the module's docstring.

    `expand` makes a device number per layer of the problem from one per unit of `priced`.
    """

    problem: Problem
    priced: Segments
    expand: Callable[[NDArray[np.intp]], NDArray[np.intp]]

    @cached_property
    def _kind(self) -> dict[int, int]:
        return kind_by_device(self.priced.kinds)

    @property
    def units(self) -> int:
        """The number of layers or levels to cut between."""
        return len(self.priced.weight_bytes) - 1

    def price(self, order: Sequence[int], cuts: Cuts) -> tuple[Floats, Floats]:
        """Price every row of `cuts` with stage i on device `order[i]`.

        Returns the objective, infinite where pins forbid the row, and the bytes beyond devices'
        limits.
        """
        rows = len(cuts)
        ends = np.column_stack([np.zeros(rows, np.intp), cuts, np.full(rows, self.units)])
        sums = {number: _Sums.none(rows) for number in order}
        allowed = np.ones(rows, dtype=bool)
        response = np.zeros(rows)
        for stage, number in enumerate(order):
            kind, at = self._kind[number], (ends[:, stage], ends[:, stage + 1])
            sums[number].add(self.priced, kind, at)
            allowed &= self.priced.allowed[kind][at]
            response += self.priced.response_s[kind][at]
        value = self._value(sums, response)
        return np.where(allowed, value, np.inf), self._excess(sums)

    def _value(self, sums: dict[int, _Sums], response: Floats) -> Floats:
        devices = self.problem.devices
        match self.problem.objective:
            case "latency":
                return response
            case "memory":
                room = room_bytes(devices)
                return np.max([own.held / room[n] for n, own in sums.items()], axis=0)  # type: ignore[no-any-return]
        used = [devices[number] for number in sums]
        rates = rate_columns(used)
        busy, sent, received, held = (
            np.array([getattr(own, name) for own in sums.values()]) for name in _Sums.__slots__
        )
        period = period_s(shared_machines(used), busy, rates.link_s(sent, received))
        if self.problem.objective == "period":
            return period
        return np.asarray((rates.energy_j(busy, period, sent) * (held > 0)).sum(axis=0))

    def _excess(self, sums: dict[int, _Sums]) -> Floats:
        excess = np.zeros_like(next(iter(sums.values())).held)
        for number, own in sums.items():
            limit = self.problem.devices[number].memory_bytes
            if limit is not None:
                excess += np.maximum(own.held - limit, 0.0)
        return excess


@dataclass(slots=True)
class _Sums:
    """What the stages of one device add up to, one element per row of cuts."""

    busy: Floats
    sent: Floats
    received: Floats
    held: Floats

    @classmethod
    def none(cls, rows: int) -> _Sums:
        return cls(*(np.zeros(rows) for _ in range(4)))

    def add(self, priced: Segments, kind: int, at: tuple[Cuts, Cuts]) -> None:
        self.busy += priced.busy_s[kind][at]
        self.sent += priced.sent_bytes[at]
        self.received += priced.received_bytes[at]
        self.held += priced.held_bytes[at]


def cut_vectors(units: int, stages: int) -> Iterator[Cuts]:
    """Yield all vectors of cut points that leave no stage empty, in chunks.

    >>> next(cut_vectors(units=4, stages=3)).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    found = itertools.combinations(range(1, units), stages - 1)
    while chunk := list(itertools.islice(found, CHUNK)):
        yield np.array(chunk, dtype=np.intp).reshape(len(chunk), stages - 1)


def count_cuts(units: int, stages: int) -> int:
    """Count the vectors of cut points that leave no stage empty: C(units − 1, stages − 1).

    >>> count_cuts(units=4, stages=3)
    3
    """
    return comb(units - 1, stages - 1)


def device_orders(
    kinds: Sequence[Sequence[int]], stages: int, *, again: bool
) -> Iterator[tuple[int, ...]]:
    """Yield every order of devices for so many stages, up to exchanging devices of one kind.

    >>> [*device_orders([(0, 1), (2,)], 2, again=False)]
    [(0, 1), (0, 2), (2, 0)]

    With `again` a device may have several stages, though not two in a row.
    """

    def extend(order: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(order) == stages:
            yield order
            return
        for members in kinds:
            fresh = [number for number in members if number not in order][:1]
            used = [number for number in members if number in order[:-1]] if again else []
            for number in (*used, *fresh):
                yield from extend((*order, number))

    return extend(())


class Best:
    """The best few of all that has been priced: what fits memory limits first, then by value."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._found: list[tuple[float, float, tuple[int, ...], tuple[int, ...]]] = []

    def offer(self, order: tuple[int, ...], cuts: Cuts) -> None:
        """Price `cuts` and keep what is among the best."""
        value, excess = self._stages.price(order, cuts)
        ranked = np.lexsort((value, excess, np.isinf(value)))[:KEPT]
        self._found += [
            (float(excess[row]), float(value[row]), order, tuple(cuts[row].tolist()))
            for row in ranked
            if np.isfinite(value[row])
        ]
        self._found = sorted(self._found)[:KEPT]

    @property
    def value(self) -> float:
        """The best value within the limits so far, infinite if there is none."""
        return min((found[1] for found in self._found if found[0] <= 0), default=np.inf)

    def assignments(self) -> NDArray[np.intp]:
        """The best as device numbers [individuals, layers], empty if nothing was possible."""
        layers = len(self._stages.problem.network.layers)
        rows = np.empty((len(self._found), layers), dtype=np.intp)
        for row, (_, _, order, cuts) in zip(rows, self._found, strict=True):
            sizes = np.diff([0, *cuts, self._stages.units])
            row[:] = self._stages.expand(np.repeat(np.array(order, np.intp), sizes))
        return rows
