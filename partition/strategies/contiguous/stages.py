"""Pipelines of unlike devices (Velasco-Montero et al. 2023): `two-stage` and `k-stage`.

**`two-stage`** is their Algorithm 1, Two-Stage Network Partitioning: every ordered pair of devices
with every cut point. One cut point is the end of the network, so one device alone competes as well.

**`k-stage`** is their general search (§II-A.2): the best pipeline with one stage, then with two,
and so on while another stage gains more than `LEAST_GAIN`. A device may get several stages, CPU →
GPU → CPU, as long as all cuts and orders are affordable (`AFFORDABLE`). Beyond that each device
gets at most one stage, and the best cuts come from dynamic programming.

The objective is one of theirs: **period**, the largest time of any device (Eq. 3); **energy**, the
sum over the devices (Eq. 4; waiting counts, at `Device.idle_w`); **latency**, the sum of the
stages' times (Eq. 5); or, ours, **memory**, the fullest device. A stage's time includes transfers,
linear in bytes as they measured them (`Device.wire_s_per_message` and `wire_s_per_byte`, which
`partition.pricing.linear_models` fits to measurements).

`Stages` prices many vectors of cut points at once, from tables of the costs of segments
(`partition.strategies.contiguous.segments`). Two stages of one device add up, and devices of one
machine share its cores. `CostModel` prices the best of them again.

Their Algorithm 2, Dynamic Two-Stage Network Partitioning, moves the cut of a running pipeline,
layer by layer, towards shorter measured stage times. It is not a strategy here:
`launcher.core.speeds` measures the stage times while frames stream (with a median in place of the
moving average that α controls), and the strategy searches again instead of taking a step to the
next cut (decision 019).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.objective import PERIOD_FIRST
from partition.pricing.busy import period_s, rate_columns, shared_machines
from partition.pricing.memory_budget import room_bytes
from partition.pricing.traffic import Floats
from partition.strategies.alike import kind_by_device
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.chosen import Chosen, choose
from partition.strategies.contiguous.cuts import affordable_units, best_cuts, expanded, thinned
from partition.strategies.contiguous.segments import Segments, segments
from partition.strategies.contiguous.sequential import least_overfull

CHUNK = 100_000
"""The number of vectors of cut points that are priced at once."""

KEPT = 64
"""The number of best candidates that are priced again exactly."""

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
        """The number of layers or levels between which cuts are possible."""
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
        if self.problem.objective in PERIOD_FIRST:
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
    """The sums over the stages of one device, one element per row of cuts."""

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
        self.held += priced.held_bytes[kind][at]


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
    """Yield every order of devices for `stages` stages, up to exchanging devices of one kind.

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
    """The best candidates so far: those that fit memory limits first, then by value."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._found: list[tuple[float, float, tuple[int, ...], tuple[int, ...]]] = []

    def offer(self, order: tuple[int, ...], cuts: Cuts) -> None:
        """Price `cuts` and keep those that are among the best."""
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
        """Return the best device numbers [individuals, layers]; none if nothing was possible."""
        layers = len(self._stages.problem.network.layers)
        rows = np.empty((len(self._found), layers), dtype=np.intp)
        for row, (_, _, order, cuts) in zip(rows, self._found, strict=True):
            sizes = np.diff([0, *cuts, self._stages.units])
            row[:] = self._stages.expand(np.repeat(np.array(order, np.intp), sizes))
        return rows


AFFORDABLE = 5_000_000
"""The number of stages priced, cuts × orders × stages, up to which all candidates are tried."""

LEAST_GAIN = 0.001
"""The share of the objective that another stage must gain."""


class TwoStage:
    """See the module's docstring."""

    name = "two-stage"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that two stages cannot respect."""
        stages = Stages(problem, segments(problem), lambda numbers: numbers)
        best = Best(stages)
        for count in range(1, min(2, len(problem.devices), stages.units) + 1):
            _try_everything(stages, count, best, again=False)
        problem.on_progress(SearchProgress(1, 1, "every pair of devices"))
        found = best.assignments()
        if not len(found):
            raise PartitionError(
                "no two stages respect the pins: they name more than two devices, or interleave; "
                "remove pins, or choose strategy 'k-stage'"
            )
        return _solution(problem, choose(problem, found), "every cut for every pair of devices")


class KStage:
    """See the module's docstring."""

    name = "k-stage"

    def __init__(self, affordable: int = AFFORDABLE) -> None:
        self._affordable = affordable

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no stages respect.

        Where nothing fits the devices' memory, the solution exceeds the limits least.
        """
        stages = Stages(problem, segments(problem), lambda numbers: numbers)
        most = min(stages.units, len(problem.devices) + 1)
        best: Chosen | None = None
        tried = complete = 0
        for count in range(1, most + 1):
            found, everything = self._with(stages, count)
            tried, complete = count, count if everything else complete
            if found is not None and (best is None or _gains(found, best)):
                best = found
            elif best is not None and best.fits and found is not None:
                break
            shown = "none yet" if best is None else _shown(problem, best)
            problem.on_progress(SearchProgress(count, most, shown))
        if best is None:
            best = choose(problem, least_overfull(problem, stages.priced)[None])
        problem.on_progress(SearchProgress(most, most, _shown(problem, best)))
        way = f"every cut and order of devices for up to {complete} stages"
        if tried > complete:
            way += f", each device once for up to {tried}"
        return _solution(problem, best, way)

    def _with(self, stages: Stages, count: int) -> tuple[Chosen | None, bool]:
        """Return the best with `count` stages, and whether every candidate was tried."""
        affordable = self._affordable // (count * count_cuts(stages.units, count))
        orders = device_orders(stages.priced.kinds, count, again=True)
        everything = sum(1 for _ in itertools.islice(orders, affordable + 1)) <= affordable
        if everything:
            best = Best(stages)
            _try_everything(stages, count, best, again=True)
            found = best.assignments()
        else:
            found = _one_each(stages, count)
        return (choose(stages.problem, found) if len(found) else None), everything


def _try_everything(stages: Stages, count: int, best: Best, *, again: bool) -> None:
    for order in device_orders(stages.priced.kinds, count, again=again):
        for cuts in cut_vectors(stages.units, count):
            best.offer(order, cuts)


def _one_each(stages: Stages, count: int) -> NDArray[np.intp]:
    """Return the best cuts for at most `count` devices with one stage each: [0 or 1, layers]."""
    objective = stages.problem.objective
    priced, places = thinned(stages.priced)
    values = {
        "both": priced.seconds,
        "paper": priced.seconds,
        "period": priced.seconds,
        "memory": priced.memory_share,
        "latency": priced.response_s,
        "energy": priced.joules,
    }[objective]
    values = np.where(priced.fitting(), values, np.inf)
    total = objective in ("latency", "energy")
    members, kinds = _candidates(priced.kinds, values, count)
    found = best_cuts(members, values[kinds], total=total, most=count)
    if found is None:
        return np.empty((0, stages.units), np.intp)
    return expanded(found[1], places)[None]


def _candidates(
    kinds: tuple[tuple[int, ...], ...], values: Floats, count: int
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return device numbers by kind, and the kinds. These are all devices or, if those are too many
    to try in every order, the `count` devices that would be best with half of the layers."""
    units = values.shape[1] - 1
    if units <= affordable_units([len(members) for members in kinds]):
        return list(kinds), list(range(len(kinds)))
    halves = np.minimum(values[:, 0, units // 2], values[:, units // 2, -1])
    chosen: dict[int, tuple[int, ...]] = {}
    for kind in np.argsort(halves, kind="stable").tolist():
        room = count - sum(len(members) for members in chosen.values())
        if room > 0:
            chosen[kind] = kinds[kind][:room]
    in_order = sorted(chosen)
    return [chosen[kind] for kind in in_order], in_order


def _gains(found: Chosen, best: Chosen) -> bool:
    if found.fits != best.fits:
        return found.fits
    return found.value < best.value * (1 - LEAST_GAIN)


def _shown(problem: Problem, chosen: Chosen) -> str:
    return f"{problem.objective} {chosen.value:.4g}"


def _solution(problem: Problem, chosen: Chosen, way: str) -> Solution:
    changes = np.flatnonzero(np.diff(chosen.numbers)) + 1
    order = [problem.devices[number].name for number in chosen.numbers[np.r_[0, changes]]]
    fit = "" if chosen.fits else "; nothing was found to fit every device's memory"
    return Solution(
        problem.assignment(chosen.numbers),
        f"{' → '.join(order)}, the best {problem.objective} of {way}{fit}",
    )
