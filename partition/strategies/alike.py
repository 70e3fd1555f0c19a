"""Symmetry of devices: groups of devices that a search may treat as interchangeable.

Devices are alike, and of one **kind**, if they differ in nothing that a cost depends on: their own
figures, the measured seconds of the layers, and the machine that they share with others. A device
with pinned layers is like no other. Times of whole copies (`Problem.copies`) are not compared,
because no strategy that uses kinds reads them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from partition.devices import machines
from partition.strategies.base import Problem


def likeness(problem: Problem, number: int, *, ignore_machines: bool = False) -> Hashable:
    """Return a key that is equal for devices that are alike.

    With `ignore_machines` it does not matter which devices share a machine, as in costs that count
    each device separately.
    """
    device = problem.devices[number]
    members = next(own for own in machines(problem.devices) if number in own)
    alone = ignore_machines or len(members) == 1
    machine = None if alone else (device.host, device.host_cores)
    return (
        replace(device, name="", host=None, host_cores=1),
        machine,
        number if number in problem.pinned else None,
        None if problem.layer_s is None else problem.layer_s[:, number].tobytes(),
    )


def kinds_of(problem: Problem, *, ignore_machines: bool = False) -> tuple[tuple[int, ...], ...]:
    """Group the device numbers by kind; for `ignore_machines` see `likeness`."""
    kinds: dict[Hashable, list[int]] = {}
    for number in range(len(problem.devices)):
        kinds.setdefault(likeness(problem, number, ignore_machines=ignore_machines), []).append(
            number
        )
    return tuple(tuple(members) for members in kinds.values())


def kind_by_device(kinds: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the index in `kinds` of each device number.

    >>> kind_by_device([(0, 2), (1,)])
    {0: 0, 2: 0, 1: 1}
    """
    return {number: kind for kind, members in enumerate(kinds) for number in members}
