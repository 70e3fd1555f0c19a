"""The choice for the objectives `both` and `paper`: the least memory within a tolerance of the
shortest period.

Of all plans whose period is at most `Problem.within` longer than the shortest, it takes the one
whose fullest device holds least of its memory limit (in bytes where no device has a limit). Where
periods are estimates, a plan that divides the network spends less of that on memory
(`Problem.within_margin`): what is left covers the estimates' errors.

Copies of the whole network are often the fastest plans, and save no memory. If no plan that divides
the network is within the tolerance of them, the fastest that divides it, and plans that take up to
`NEARLY` longer, may be taken instead. They must take at most (1 + `Problem.within`)² times as long
as the copies.

An engine's start takes longer than a small subnet does, so many plans are equal in that. Of these,
those with the fewest bytes of weights, activations and channels on their fullest device come first.
Differences of up to `ALIKE` are smaller than the error of the prediction, so they do not count: of
plans that are so alike, the one with the shortest period is taken.

For `paper` memory is Eq. 2 of Tang and Stefanov (2021), without engine and channels. It is exact,
so no difference is too small to count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from partition.alone import beside_idle_bytes, fullest_eq2_bytes, plan_alone, saved_percent
from partition.plan import MemoryPrediction, Plan
from partition.pricing.memory_budget import room_bytes
from partition.strategies.base import Problem

ALIKE = 0.04
"""The relative difference up to which two predictions of memory count as equal."""


NEARLY = 0.02
"""The tolerance among plans that divide the network where copies are faster by more than
`Problem.within`."""


@dataclass(frozen=True, slots=True)
class Shortest:
    """The shortest periods known: of plans that divide the network, and of copies of all of it."""

    divided_s: float = math.inf
    copied_s: float = math.inf


UNKNOWN = Shortest()


@dataclass(frozen=True, slots=True)
class Columns:
    """The two columns of a plan: seconds per frame, and what the fullest device holds.

    `memory` and `tensors` are shares of the devices' limits, in bytes where there are none. A plan
    `divides` the network if no device holds all of it.
    """

    period_s: float
    memory: float
    tensors: float
    divides: bool = True


def columns(problem: Problem, plan: Plan) -> Columns:
    """Return the columns of a plan."""
    rooms = dict(
        zip((device.name for device in problem.devices), room_bytes(problem.devices), strict=True)
    )
    if problem.objective == "paper":
        held = max(each.eq2_bytes / float(rooms[name]) for name, each in plan.memory.items())
        return Columns(plan.period_s, held, held, divides(plan))
    memory = [(each, float(rooms[name])) for name, each in plan.memory.items()]
    return Columns(
        plan.period_s,
        max(each.total_bytes / room for each, room in memory),
        max(tensor_bytes(each) / room for each, room in memory),
        divides(plan),
    )


def divides(plan: Plan) -> bool:
    """Return whether no device holds all layers of a copy of the network."""
    whole: dict[int, int] = {}
    held: dict[tuple[int, str], int] = {}
    for phase in plan.phases:
        own = phase.copy, phase.device
        whole[phase.copy] = whole.get(phase.copy, 0) + len(phase.layers)
        held[own] = held.get(own, 0) + len(phase.layers)
    return all(held[copy, device] < whole[copy] for copy, device in held)


def shortest(found: Iterable[Columns], known: Shortest = UNKNOWN) -> Shortest:
    """Return the shortest periods of `found` and `known`."""
    divided_s, copied_s = known.divided_s, known.copied_s
    for each in found:
        if each.divides:
            divided_s = min(divided_s, each.period_s)
        else:
            copied_s = min(copied_s, each.period_s)
    return Shortest(divided_s, copied_s)


def longest_s(within: float, known: Shortest, margin: float = 0.0) -> float:
    """Return the longest period that may be taken, with `margin` for `Problem.within_margin`; see
    the module's docstring.

    >>> round(longest_s(0.1, Shortest(divided_s=1.0, copied_s=0.95)), 3)
    1.045
    >>> longest_s(0.1, Shortest(divided_s=1.0, copied_s=0.85))
    1.02
    >>> round(longest_s(0.1, Shortest(divided_s=1.0, copied_s=0.8)), 3)
    0.88
    >>> round(longest_s(0.1, Shortest(divided_s=1.0), margin=0.5), 3)
    1.05
    >>> round(longest_s(0.1, Shortest(divided_s=1.0, copied_s=0.94), margin=0.5), 3)
    1.034
    """
    limit_s = min(known.divided_s, known.copied_s) * (1 + within)
    if limit_s < known.divided_s <= limit_s * (1 + within):
        return known.divided_s * (1 + NEARLY)
    if known.divided_s <= limit_s:
        return min(limit_s, known.divided_s * (1 + within * (1 - margin)))
    return limit_s


def order(problem: Problem, found: Sequence[Columns], known: Shortest = UNKNOWN) -> list[int]:
    """Return the indices of `found`, the best for the objective `both` or `paper` first.

    `known` are the shortest periods that are known otherwise. Plans beyond the tolerance come last,
    the shortest period first.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from partition.devices import Device
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xy"}
    >>> network = Network("net", (Layer("l", "Relu", ("x",), ("y",)),), tensors, {}, ("x",), ("y",))
    >>> problem = Problem(network, (Device("a"),), within=0.1)
    >>> order(problem, [Columns(1.0, 9.0, 9.0), Columns(1.2, 1.0, 1.0), Columns(1.09, 5.0, 5.0)])
    [2, 0, 1]
    """
    limit_s = longest_s(problem.within, shortest(found, known), problem.within_margin)
    every = range(len(found))
    close = [number for number in every if found[number].period_s <= limit_s * (1 + 1e-9)]
    if not close:
        return sorted(every, key=lambda number: found[number].period_s)
    alike_share = 0.0 if problem.objective == "paper" else ALIKE
    least = min(found[number].memory for number in close)
    full = [number for number in close if found[number].memory <= least * (1 + alike_share)]
    fewest = min(found[number].tensors for number in full)
    alike = {number for number in full if found[number].tensors <= fewest * (1 + alike_share)}

    def key(number: int) -> tuple[float, ...]:
        each = found[number]
        if number in alike:
            return 0, each.period_s, each.memory, each.tensors
        if number in close:
            return 1, each.memory, each.tensors, each.period_s
        return 2, each.period_s, each.memory, each.tensors

    return sorted(every, key=key)


def explained(problem: Problem, plan: Plan, shortest_s: float) -> str:
    """Return both columns of a plan in words: its period, and its memory against one device's."""
    late = plan.period_s / shortest_s - 1 if shortest_s else 0.0
    period = f"{late:.1%} above the shortest found" if late > 1e-9 else "the shortest found"
    alone = plan_alone(problem)
    if problem.objective == "paper":
        held, whole = fullest_eq2_bytes(plan), fullest_eq2_bytes(alone)
        return (
            f"the period is {period}, and the fullest device holds {held / 1e6:.1f} MB by Eq. 2 of "
            f"Tang & Stefanov (2021), {saved_percent(held, whole):.1f}% less than the whole network"
        )
    held, whole = beside_idle_bytes(plan), beside_idle_bytes(alone)
    return (
        f"the period is {period}, and the fullest device holds {held / 1e6:.1f} MB in addition to "
        f"its idle agent, {saved_percent(held, whole):.0f}% less than one with the whole network"
    )


def tensor_bytes(memory: MemoryPrediction) -> int:
    """Return the bytes of weights, activations and channels together."""
    return memory.weights_bytes + memory.activations_bytes + memory.channels_bytes
