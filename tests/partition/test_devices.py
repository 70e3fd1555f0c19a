"""Devices and problems refuse what means nothing."""

from __future__ import annotations

import pytest

from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from tests.partition.networks import chain


@pytest.mark.parametrize(
    "changes",
    [
        {"macs_per_s": 0.0},
        {"macs_per_s": float("nan")},
        {"link_bytes_per_s": -1.0},
        {"memory_bytes_per_s": 0.0},
        {"wire_s_per_byte": -1e-9},
        {"host_cores": 0},
        {"memory_bytes": 0},
        {"cache_bytes": -1},
        {"cache_s_per_byte": float("nan")},
        {"busy_w": -1.0},
        {"idle_w": float("inf")},
        {"sent_j_per_byte": -1e-9},
    ],
)
def test_a_device_of_impossible_figures_is_refused(changes: dict[str, float]) -> None:
    with pytest.raises(PartitionError, match=f"'pi': {next(iter(changes))}"):
        Device("pi", **changes)  # type: ignore[arg-type]


def test_a_problem_needs_devices_of_different_names() -> None:
    with pytest.raises(PartitionError, match="no device"):
        Problem(chain(1), ())
    with pytest.raises(PartitionError, match="two devices are called 'a'"):
        Problem(chain(1), (Device("a"), Device("a")))


@pytest.mark.parametrize(("pins", "named"), [({"nowhere": "a"}, "'nowhere'"), ({"l0": "b"}, "'b'")])
def test_a_pin_to_nothing_is_refused(pins: dict[str, str], named: str) -> None:
    with pytest.raises(PartitionError, match=named):
        Problem(chain(1), (Device("a"),), pins)
