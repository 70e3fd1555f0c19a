"""Period and latency of a plan."""

from __future__ import annotations

import pytest

from partition.devices import Device
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.timing import with_measured_phases
from tests.partition.networks import chain

FAST_WIRE = {"firing_s": 0.0, "wire_s_per_message": 0.0, "wire_s_per_byte": 0.0}


def plan(devices: tuple[Device, ...], assignment: str, elements: int = 8) -> Plan:
    """A chain of layers of one second each (at 1e9 MAC/s), the i-th on device assignment[i]."""
    network = chain(*[10**9] * len(assignment), elements=elements)
    numbers = {f"l{i}": name for i, name in enumerate(assignment)}
    return make_plan(network, "", devices, numbers, strategy="any", explanation="")


def device(name: str, **changes: float | str | int | None) -> Device:
    return Device(
        name, macs_per_s=1e9, memory_bytes_per_s=1e15, cut_s_per_byte=0.0, **(FAST_WIRE | changes)
    )  # type: ignore[arg-type]


def test_the_period_is_that_of_the_heaviest_device() -> None:
    assert plan((device("a"), device("b")), "aab").period_s == pytest.approx(2.0)


def test_a_slow_link_sets_the_period() -> None:
    devices = (device("a", link_bytes_per_s=1e3), device("b"))
    assert plan(devices, "ab", elements=1000).period_s == pytest.approx(4.0)


def test_a_link_carries_both_directions_at_once() -> None:
    devices = (device("a"), device("b", link_bytes_per_s=1e3))
    assert plan(devices, "aba", elements=1000).period_s == pytest.approx(4.0)


def test_the_launchers_own_link_carries_what_all_devices_get() -> None:
    behind = tuple(device(name, launcher_bytes_per_s=1e3) for name in "ab")
    assert plan(behind, "ab", elements=1000).period_s == pytest.approx(4.0)  # in or out
    assert plan(behind, "ab", elements=8).period_s == pytest.approx(1.0)
    beside = (device("a"), behind[1])  # only b's result passes the link
    assert plan(beside, "ab", elements=2000).period_s == pytest.approx(8.0)
    assert plan(beside, "ba", elements=2000).period_s == pytest.approx(8.0)
    assert plan(beside, "aa", elements=2000).period_s == pytest.approx(2.0)


def test_what_stays_on_one_machine_burdens_no_link() -> None:
    devices = tuple(device(n, link_bytes_per_s=1e3, host="box", host_cores=2) for n in "ab")
    planned = plan(devices, "ab", elements=1000)
    assert planned.bytes_per_frame == 3 * 4000
    # Only what comes from and goes to the launcher: 4000 bytes into a, 4000 out of b.
    assert planned.period_s == pytest.approx(4.0)


def test_devices_of_one_machine_share_its_cores() -> None:
    devices = tuple(device(n, host="box", host_cores=2) for n in "abc")
    assert plan(devices, "abc").period_s == pytest.approx(1.5)


def test_sending_and_receiving_cost_the_processor() -> None:
    devices = (device("a", wire_s_per_byte=1e-3, wire_s_per_message=0.5), device("b"))
    # a receives the input and sends one tensor, each 4000 bytes.
    assert plan(devices, "ab", elements=1000).period_s == pytest.approx(1 + 2 * (4.0 + 0.5))


def test_every_firing_costs() -> None:
    devices = (device("a", firing_s=0.25), device("b"))
    assert plan(devices, "aba").period_s == pytest.approx(2 + 2 * 0.25)


def test_latency_counts_the_periods_in_the_pipeline() -> None:
    one = plan((device("a"),), "aa")
    assert one.latency_s == pytest.approx(2 * one.period_s)
    three = plan(tuple(device(n) for n in "abc"), "abc")
    assert three.latency_s == pytest.approx(4 * three.period_s)


def test_measured_times_replace_the_estimate() -> None:
    estimated = plan((device("a"), device("b")), "ab")
    assert estimated.times == "estimated"
    measured = with_measured_phases(estimated, {"a/0": 0.5, "b/0": 3.0})
    assert measured.times == "measured"
    assert [phase.predicted_s for phase in measured.phases] == [0.5, 3.0]
    assert measured.period_s == pytest.approx(3.0)
    assert measured.latency_s == pytest.approx(9.0)
    assert measured.channels == estimated.channels


def test_a_phase_without_a_measured_time_is_named() -> None:
    with pytest.raises(PartitionError, match="'b/0'"):
        with_measured_phases(plan((device("a"), device("b")), "ab"), {"a/0": 0.5})
