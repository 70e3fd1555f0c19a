"""Returns the actions that cause and end a fault of a board; pure.

Faults that need more than actions (a signal to processes, a full disk) are in `benchmarks.lab.lab`.
"""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.lab.actions import Action, Run
from benchmarks.lab.layout import INTERFACE, Layout, Place
from benchmarks.lab.plans import shape
from launcher.errors import BadInputError


def cut(layout: Layout, place: Place) -> Iterable[Action]:
    """Pull the cable at the switch: the board sees its interface without a carrier."""
    _needs_isolation(layout, place, "its link cannot be cut")
    yield _port(layout, place, "down")


def restore(layout: Layout, place: Place) -> Iterable[Action]:
    """Put the cable back, and give the link the rate that `lab.yaml` says."""
    _needs_isolation(layout, place, "it has no link of its own")
    yield _port(layout, place, "up")
    if place.slice.link is not None:
        yield from shape(layout, place, place.slice.link)
        return
    ends = ((place.namespace, INTERFACE), (layout.switch, place.switch_port))
    for namespace, interface in ends:
        yield Run(
            ("tc", "-n", namespace, "qdisc", "delete", "dev", interface, "root"), required=False
        )


def slow(layout: Layout, place: Place, bytes_per_s: float) -> Iterable[Action]:
    """Give the link another rate, in both directions."""
    _needs_isolation(layout, place, "its link has no rate")
    yield from shape(layout, place, bytes_per_s)


def starve(layout: Layout, place: Place, cores: float) -> Iterable[Action]:
    """Give the slice another CPU quota."""
    _needs_isolation(layout, place, "it has no CPU quota")
    yield from layout.group_of(place).set_cpu(cores)


def freeze(layout: Layout, place: Place, *, frozen: bool) -> tuple[Action, ...] | None:
    """Stop the whole board or let it go on; None where only signals can."""
    if not layout.isolated or not layout.group_of(place).freezable:
        return None
    return layout.group_of(place).freeze(frozen)


def _port(layout: Layout, place: Place, state: str) -> Run:
    return Run(("ip", "-n", layout.switch, "link", "set", place.switch_port, state))


def _needs_isolation(layout: Layout, place: Place, what: str) -> None:
    if not layout.isolated:
        raise BadInputError(
            f"device {place.slice.name!r}: {what}, because this laboratory is of plain processes; "
            "`python -m benchmarks.lab status` says what is missing for more"
        )
