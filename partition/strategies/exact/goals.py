"""The goals of the exact strategy, minimised in lexicographic order.

- **memory**, as Yin et al. do: ① the largest weights of any stage, of unlike devices relative to
  their room (their Eq. 7), ② weights beyond the devices' caches (Eq. 8), ③ bytes between devices
  (Eq. 9 and 10).
- **period**: of the busiest device, link or machine; then bytes.
- **latency**, of a frame that finds the pipeline empty: what all devices do for it, and the
  transfers; then bytes.
- **energy**: joules per frame, waiting included; then bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from partition.pricing.cost import Costs
from partition.pricing.traffic import Floats
from partition.strategies.chosen import unloaded_latency_s
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Expression
from partition.strategies.exact.terms import SHARE_UNIT, Terms


@dataclass(frozen=True)
class Goal:
    """`expression` × `unit` is what is meant, `value` says what it is in priced assignments
    [individuals], `show` writes it for people, and `loads` [layers] is what every layer adds to its
    stage's part of the expression at least, empty if it does not go by stages. A goal that does not
    count only chooses among equals."""

    name: str
    expression: Callable[[], Expression]
    unit: float
    value: Callable[[Costs], Floats]
    show: Callable[[float], str]
    loads: Sequence[int] = ()
    counts: bool = True


def goals(terms: Terms, loads: LoadVariables) -> tuple[Goal, ...]:
    """Return the goals of the problem's objective, the most important first."""
    problem = terms.problem
    traffic = Goal(
        "bytes between devices",
        loads.traffic.total,
        terms.traffic_unit,
        lambda costs: costs.wire_bytes,
        megabytes,
        counts=problem.objective == "memory",
    )
    if problem.objective == "memory":
        return (*_memory(terms, loads), traffic)
    if problem.objective == "period":
        seconds = problem.costs.layer_s.min(axis=1)
        each = [terms.ticks(float(layer_s)) for layer_s in seconds]
        first = Goal(
            "period", lambda: loads.period, terms.tick_s, lambda c: c.period_s, milliseconds, each
        )
    elif problem.objective == "latency":
        first = Goal(
            "latency of a lone frame",
            lambda: loads.latency,
            terms.tick_s,
            lambda costs: unloaded_latency_s(problem, costs),
            milliseconds,
        )
    else:
        first = Goal(
            "energy per frame",
            lambda: loads.energy,
            terms.tick_s * terms.watts,
            lambda costs: costs.energy_j,
            lambda joules: f"{joules:.3f} J",
        )
    return first, traffic


def _memory(terms: Terms, loads: LoadVariables) -> tuple[Goal, ...]:
    devices = terms.problem.devices
    room = np.array(terms.rooms) / SHARE_UNIT
    unlike = len(set(terms.rooms)) > 1
    share = Goal(
        "largest weights" + (" relative to their room" if unlike else ""),
        lambda: loads.largest_share,
        terms.weight_unit / terms.share_unit,
        lambda costs: (costs.weight_bytes / room).max(axis=1),
        megabytes,
        terms.least_shares,
    )
    if all(device.cache_bytes is None for device in devices):
        return (share,)
    uncached = Goal(
        "weights beyond the caches",
        lambda: sum(loads.uncached),
        terms.weight_unit,
        lambda costs: costs.cache_overrun_bytes.sum(axis=1),
        megabytes,
    )
    return share, uncached


def megabytes(size: float) -> str:
    """`12.346 MB`."""
    return f"{size / 1e6:.3f} MB"


def milliseconds(seconds: float) -> str:
    """`12.346 ms`."""
    return f"{seconds * 1e3:.3f} ms"
