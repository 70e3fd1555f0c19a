"""Chooses how many frames nodes compute at once (`batch: auto`), and holds plans to `max_latency`.

More frames per firing shorten the period per frame, because firings, messages and weights cost
once. They lengthen the latency, because every frame waits for the others of its batch and is
computed with them. Memory grows with tensors and channels. How long a firing takes is measured
(`Profile.in_batches`); the cost model prices the rest.

Candidates are powers of two. All are priced with plans of the quick strategy `sequential`. Batches
that meet the bound on latency are then searched by the user's strategy, the shortest period per
frame first, until a plan meets the bound. Of periods that differ by at most `EQUAL`, the smaller
batch counts as shorter, because it needs less memory and less patience. If no quick plan meets the
bound, the one of least latency is searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from launcher.config.load import Cluster
from launcher.config.units import AUTO_BATCH
from launcher.errors import BadInputError
from launcher.plan.profile.file import ProfileFile
from partition.plan import Plan

CANDIDATES = (1, 2, 4, 8, 16, 32)

EQUAL = 1.01
"""Periods whose ratio is at most this count as equal."""

QUICK = "sequential"
"""The strategy of plans that must be found at once."""


@dataclass(frozen=True, slots=True)
class BatchCandidate:
    """A number of frames that was priced: the period per frame, the latency of a frame, and the
    memory of the fullest device."""

    batch: int
    period_s: float
    latency_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The chosen number of frames, why it was chosen, and the candidates.

    Candidates that the user's strategy was not asked for have the figures of a quick plan.
    `refused` says why the others have no plan.
    """

    batch: int
    reason: str
    candidates: tuple[BatchCandidate, ...]
    refused: Mapping[int, str]


class PlanSearch(Protocol):
    """Finds a plan in batches of `batch` frames by a strategy, the user's if it is None."""

    def __call__(self, batch: int, strategy: str | None) -> Plan:
        """Return the plan; raises `BadInputError` if there is none."""
        ...


def fill_s(cluster: Cluster, *, is_pushed: bool) -> Callable[[int], float]:
    """Return the longest wait of a batch's first frame for the others, by their number.

    Frames of files are available at once unless the cluster has a `rate`. Frames that programs,
    clients or a source push (`is_pushed`) arrive at any time.
    """
    wait_s, pace = cluster.config.run.batch_wait_s, cluster.config.pace

    def fill(batch: int) -> float:
        if pace is not None:
            return min((batch - 1) / pace.rate, wait_s)
        return wait_s if is_pushed and batch > 1 else 0.0

    return fill


def check_curves(cluster: Cluster, file: ProfileFile | None) -> None:
    """Raise `BadInputError` if `batch: auto` lacks the measurements that it goes by."""
    if cluster.config.batch != AUTO_BATCH:
        return
    lacking = "there is no profile"
    if file is not None:
        single = [
            node.name
            for node in cluster.config.nodes
            if not node.standby and file.nodes[node.name].measured.batched is None
        ]
        if not single:
            return
        lacking = f"the profile has only single frames of {', '.join(single)}"
    raise cluster.error(
        ("batch",),
        f"auto needs measured batches, but {lacking}; measure them with csdf-edge partition "
        "profile --batch auto --cluster FILE, and plan with that profile, or write a number",
    )


def choose(
    cluster: Cluster, search: PlanSearch, fill: Callable[[int], float]
) -> tuple[Plan, BatchChoice]:
    """Return the plan of the best batch, and the choice; see the module's docstring.

    Raises `BadInputError` if no batch has a plan, or none meets the bound.
    """
    plans: dict[int, Plan] = {}
    errors: dict[int, BadInputError] = {}

    def price(batch: int, strategy: str | None) -> None:
        plans.pop(batch, None)
        try:
            plans[batch] = search(batch, strategy)
        except BadInputError as error:
            errors[batch] = error

    def priced() -> list[BatchCandidate]:
        return [_candidate(plans[batch], fill) for batch in sorted(plans)]

    for batch in CANDIDATES:
        price(batch, QUICK)
    quick, given_s = priced(), cluster.config.max_latency
    bound_s = math.inf if given_s is None else given_s
    order = _fastest_first([each for each in quick if each.latency_s <= bound_s])
    for tried in order or sorted(quick, key=_latency_s)[:1]:
        if cluster.config.strategy != QUICK:
            price(tried.batch, None)
        found = next((each for each in priced() if each.batch == tried.batch), None)
        if found is not None and found.latency_s <= bound_s:
            reason = _reason(found, priced(), errors, given_s)
            refused = {batch: str(error) for batch, error in errors.items()}
            return plans[found.batch], BatchChoice(found.batch, reason, tuple(priced()), refused)
    if not plans:
        raise errors[min(errors)]
    least = min(priced(), key=_latency_s)
    raise cluster.error(
        ("max_latency",),
        f"no number of frames per batch meets {_ms(bound_s)}: the least latency found is "
        f"{_ms(least.latency_s)}, with batch {least.batch}; allow more, or use faster nodes or "
        "fewer of them",
    )


def check_latency(cluster: Cluster, plan: Plan, fill: Callable[[int], float]) -> None:
    """Raise `BadInputError` if a plan is predicted to take longer than the cluster allows."""
    bound_s = cluster.config.max_latency
    latency_s = plan.latency_s + fill(plan.batch)
    if bound_s is None or latency_s <= bound_s:
        return
    smaller = "a smaller `batch`, " if plan.batch > 1 else ""
    times = "measured times" if plan.times == "measured" else "estimates"
    raise cluster.error(
        ("max_latency",),
        f"with batch {plan.batch} a frame is predicted to take {_ms(latency_s)}, by {times}, but "
        f"may take only {_ms(bound_s)}; choose {smaller}faster nodes or fewer of them, or allow "
        "more",
    )


def _candidate(plan: Plan, fill: Callable[[int], float]) -> BatchCandidate:
    fullest = max(memory.total_bytes for memory in plan.memory.values())
    return BatchCandidate(plan.batch, plan.frame_s, plan.latency_s + fill(plan.batch), fullest)


def _latency_s(candidate: BatchCandidate) -> float:
    return candidate.latency_s


def _fastest_first(candidates: Sequence[BatchCandidate]) -> list[BatchCandidate]:
    """Sort by the period per frame; of those that are equal to the shortest, the smallest batch is
    next."""
    left, found = list(candidates), []
    while left:
        shortest_s = min(each.period_s for each in left)
        best = next(each for each in left if each.period_s <= EQUAL * shortest_s)
        left.remove(best)
        found.append(best)
    return found


def _reason(
    chosen: BatchCandidate,
    candidates: Sequence[BatchCandidate],
    errors: Mapping[int, BadInputError],
    given_s: float | None,
) -> str:
    within = "" if given_s is None else f" within {_ms(given_s)}"
    others = [
        f"{each.batch}: {_ms(each.period_s)}, {_ms(each.latency_s)}"
        for each in candidates
        if each.batch != chosen.batch
    ]
    parts = [
        f"the shortest period per frame{within}: {_ms(chosen.period_s)}, latency "
        f"{_ms(chosen.latency_s)}",
        *([f"others: {'; '.join(others)}"] if others else []),
        *(f"none of {batch}: {error}" for batch, error in sorted(errors.items())[:1]),
    ]
    return "; ".join(parts)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
