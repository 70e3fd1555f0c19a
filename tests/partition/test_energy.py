"""Joules per frame of a plan."""

from __future__ import annotations

import pytest

from partition.devices import Device
from partition.planner import make_plan
from partition.prediction.timing import energy_j
from tests.partition.networks import chain


def device(name: str, **power: float) -> Device:
    """One second per layer of 1e9 multiply-accumulates, nothing for anything else."""
    return Device(
        name, macs_per_s=1e9, memory_bytes_per_s=1e15, cut_s_per_byte=0.0, firing_s=0.0,
        wire_s_per_message=0.0, wire_s_per_byte=0.0, **power,  # type: ignore[arg-type]
    )  # fmt: skip


def joules(devices: tuple[Device, ...], assignment: str) -> float:
    network = chain(*[10**9] * len(assignment), elements=1000)
    numbers = {f"l{i}": name for i, name in enumerate(assignment)}
    return energy_j(make_plan(network, "", devices, numbers, strategy="any", explanation=""))


def test_without_waiting_and_sending_it_is_the_energy_of_the_stages() -> None:
    stages = (
        device("a", busy_w=2.0, idle_w=0.0, sent_j_per_byte=0.0),
        device("b", busy_w=5.0, idle_w=0.0, sent_j_per_byte=0.0),
    )
    assert joules(stages, "aab") == pytest.approx(2 * 2.0 + 1 * 5.0)


def test_a_device_that_waits_for_a_slower_one_takes_its_idle_power() -> None:
    stages = (
        device("a", busy_w=2.0, idle_w=1.0, sent_j_per_byte=0.0),
        device("b", busy_w=5.0, idle_w=3.0, sent_j_per_byte=0.0),
    )
    assert joules(stages, "aab") == pytest.approx(2 * 2.0 + 1 * 5.0 + 1 * 3.0)


def test_bytes_cost_whoever_sends_them() -> None:
    stages = (
        device("a", busy_w=0.0, idle_w=0.0, sent_j_per_byte=1e-3),
        device("b", busy_w=0.0, idle_w=0.0, sent_j_per_byte=1e-2),
    )
    assert joules(stages, "ab") == pytest.approx(4000 * 1e-3 + 4000 * 1e-2)


def test_a_device_without_layers_is_switched_off() -> None:
    alone = device("a", busy_w=2.0)
    assert joules((alone, device("b", idle_w=100.0)), "aa") == pytest.approx(joules((alone,), "aa"))
