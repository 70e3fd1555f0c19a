"""Which devices are alike, so that a search may look at one of them in the place of all.

Devices are alike, and of one **kind**, if they differ in nothing that a cost depends on: their own
figures, the measured seconds of the layers, and the machine that they share with others. A device
with pinned layers is like no other. Times of whole copies (`Problem.copies`) are not compared, as
no strategy that goes by kinds reads them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from partition.strategies.base import Problem


def likeness(problem: Problem, number: int, *, machines: bool = True) -> Hashable:
    """What is equal for devices that are alike.

    Without `machines` it does not matter which devices share one, as in costs that count each
    device for itself.
    """
    device = problem.devices[number]
    shared = machines and Counter(other.host for other in problem.devices)[device.host] > 1
    machine = (device.host, device.host_cores) if shared and device.host is not None else None
    return (
        replace(device, name="", host=None, host_cores=1),
        machine,
        number if number in problem.pinned else None,
        None if problem.layer_s is None else problem.layer_s[:, number].tobytes(),
    )


def kinds_of(problem: Problem, *, machines: bool = True) -> tuple[tuple[int, ...], ...]:
    """Device numbers by kind; for `machines` see `likeness`."""
    kinds: dict[Hashable, list[int]] = {}
    for number in range(len(problem.devices)):
        kinds.setdefault(likeness(problem, number, machines=machines), []).append(number)
    return tuple(tuple(members) for members in kinds.values())
