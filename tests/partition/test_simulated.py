"""The simulated run of a plan: what goes in comes out, and simple plans do what a formula says."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from csdf.conversion.from_network import HOST
from partition.devices import Device, slower
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.simulation import Prediction, predict
from partition.pricing.run_costs import RunCosts, Site, ThreadCosts
from tests.partition.networks import chain, partitioned
from tests.partition.test_timing import device, plan

FREE = ThreadCosts(**{key.name: 0.0 for key in fields(ThreadCosts) if key.name != "wire_is_free"})
"""Nothing but the layers takes time."""


def costs(of: Plan, **changes: object) -> RunCosts:
    """Free threads, links and machines as the devices have them."""
    known = RunCosts.known(of.devices)
    threads = dict.fromkeys([HOST, *(d.name for d in of.devices)], FREE)
    return replace(known, threads=threads, rouse_s=0.0, **changes)


def simulated(of: Plan, order: str = "pipelined", **changes: object) -> Prediction:
    return predict(of, costs(of, **changes), order=order, frames=300, even=True)


@pytest.mark.parametrize("assignment", ["a", "aab", "ab", "abb", "aba", "abab", "aabbab"])
def test_without_costs_the_period_is_the_closed_form(assignment: str) -> None:
    of = plan((device("a"), device("b")), assignment)
    assert simulated(of).period_s == pytest.approx(of.period_s, rel=0.006)


def test_strictly_in_order_devices_wait_for_each_other() -> None:
    of = plan((device("a"), device("b")), "abab")
    assert simulated(of).period_s == pytest.approx(2.0)
    assert simulated(of, "strict").period_s == pytest.approx(3.0)  # b's last beside a's next first


def test_a_full_pipeline_holds_as_many_frames_as_fit() -> None:
    """With the slowest device at the end, all places are taken, and latency counts them."""
    of = plan((device("a"), replace(device("b"), macs_per_s=2.5e8)), "ab")
    found = simulated(of)
    assert found.period_s == pytest.approx(4.0)
    capacities = [channel.capacity_frames for channel in of.channels]
    assert capacities == [3, 3, 3]
    # Three places before either; only the second of a's work, at whose beginning the place behind
    # it is claimed, is not waited for twice.
    assert found.latency_s == pytest.approx(6 * 4.0 - 1.0)
    assert found.fifo_bytes == {"a": 3 * 32, "b": 3 * 32}


def test_frames_that_are_not_sent_wait_beside_those_of_the_consumer() -> None:
    """Tensors of a megabyte: while b works on one, another waits at b, and the next at a."""
    of = plan((device("a"), replace(device("b"), macs_per_s=2.5e8)), "ab", elements=1 << 18)
    between = next(c for c in of.channels if c.target_device == "b")
    assert (between.unsent_frames, between.consumer_frames) == (1, 2)
    found = simulated(of)
    assert found.period_s == pytest.approx(4.0, rel=0.01)
    assert found.fifo_bytes["b"] == 2 * between.tensor.bytes
    assert found.latency_s == pytest.approx(6 * 4.0 - 1.0, rel=0.01)


def test_a_slow_link_sets_the_period() -> None:
    devices = (device("a", link_bytes_per_s=1e3), device("b"))
    of = plan(devices, "ab", elements=1000)
    assert simulated(of).period_s == pytest.approx(of.period_s, rel=0.006)


def test_a_slow_link_of_the_launcher_sets_the_period() -> None:
    of = plan(tuple(device(name, launcher_bytes_per_s=1e3) for name in "ab"), "ab", elements=1000)
    assert of.period_s == pytest.approx(4.0)
    assert simulated(of).period_s == pytest.approx(of.period_s, rel=0.006)


def test_a_message_crosses_both_interfaces_in_pieces() -> None:
    """Both at 1000 bytes/s: 4 s and a fourth of that, not 8 s."""
    devices = tuple(device(name, link_bytes_per_s=1e3) for name in "ab")
    of = plan(devices, "ab", elements=1000)
    (first,) = predict(of, costs(of), frames=1, even=True).received_s
    # Into a, 1 s in a, a → b, 1 s in b, out of b: the launcher's own link takes no time.
    assert first == pytest.approx(4.0 + 1.0 + 5.0 + 1.0 + 4.0)


def test_devices_of_one_machine_share_its_cores() -> None:
    devices = tuple(device(name, host="box", host_cores=2) for name in "abc")
    of = plan(devices, "abc")
    assert simulated(of).period_s == pytest.approx(1.5, rel=0.01)


def test_devices_bound_to_one_cpu_share_that() -> None:
    devices = tuple(device(name, host="box", host_cores=2) for name in "abc")
    of = plan(devices, "abc")
    known = RunCosts.known(devices, cpus={"a": (0,), "b": (1,), "c": (0,)})
    assert simulated(of, sites=known.sites).period_s == pytest.approx(2.0, rel=0.01)


def test_cores_that_slow_each_other_down() -> None:
    """Work of 2 and 1 s at half speed together: 2 s for b's 1, in which a does 1, then 1 alone."""
    devices = tuple(device(name, host="box", host_cores=2) for name in "ab")
    of = plan(devices, "aab")
    site = Site(("0", "1"), {"a": ("0",), "b": ("1",)}, (Fraction(1), Fraction(1, 2)))
    host = Site(("cpu",), {HOST: ("cpu",)})
    assert simulated(of, sites=(site, host)).period_s == pytest.approx(3.0, rel=0.01)


def test_what_messages_cost_is_in_the_period() -> None:
    of = plan((device("a"), device("b")), "ab", elements=1000)
    busy = replace(FREE, each_s=0.125, ended_s=0.25, received_byte_s=1e-4)
    found = predict(of, replace(costs(of), threads={"a": busy, "b": FREE, HOST: FREE}), even=True)
    # a takes in a tensor and a credit and sends one of each: 4 × 0.125; 0.25 besides; 4000 bytes.
    assert found.io_s["a"] == pytest.approx(0.5 + 0.25 + 0.4)
    assert found.executor_s == pytest.approx({"a": 1.0, "b": 1.0})
    assert found.period_s == pytest.approx(1.0 + 1.15, rel=0.01)


def test_a_free_wire_does_not_delay_the_layers() -> None:
    of = plan((device("a"), device("b")), "ab")
    busy = replace(FREE, ended_s=0.5)
    both = {"b": FREE, HOST: FREE}
    delayed = predict(of, replace(costs(of), threads={"a": busy, **both}), even=True)
    free = replace(busy, wire_is_free=True)
    beside = predict(of, replace(costs(of), threads={"a": free, **both}), even=True)
    assert delayed.period_s == pytest.approx(1.5, rel=0.01)
    assert beside.period_s == pytest.approx(1.0, rel=0.01)


@settings(max_examples=25)
@given(partitioned(), st.sampled_from(["pipelined", "strict"]))
def test_every_frame_that_goes_in_comes_out_in_order(given_, order: str) -> None:
    network, devices, assignment = given_
    roomy = tuple(replace(one, memory_bytes=None) for one in devices)
    try:
        of = make_plan(network, "", roomy, assignment, strategy="any", explanation="")
    except PartitionError:
        return
    found = predict(of, order=order, frames=12)
    assert len(found.sent_s) == len(found.received_s) == 12
    assert list(found.sent_s) == sorted(found.sent_s)
    assert list(found.received_s) == sorted(found.received_s)
    assert all(
        sent <= received for sent, received in zip(found.sent_s, found.received_s, strict=True)
    )
    for one in of.devices:
        held = [c for c in of.channels if c.target_device == one.name]
        assert found.fifo_bytes[one.name] <= sum(c.capacity_frames * c.tensor.bytes for c in held)
        own = sum(phase.predicted_s for phase in of.phases if phase.device == one.name)
        assert found.executor_s[one.name] >= own * 0.85


def test_a_small_message_costs_what_its_parts_do() -> None:
    """The costs are shares of one figure, and that figure is the cost of these shares."""
    found = ThreadCosts.measured(1e-4, 1e-9)
    threads = found.wake_s + 2 * (found.message_s(1) + found.wire_s)
    assert 1e-4 <= threads <= 2e-4  # in a rehearsal, nobody else wants the CPU
    assert found.sent_byte_s + found.received_byte_s == pytest.approx(1e-9)


def test_costs_that_were_not_measured_are_those_of_the_device() -> None:
    b = slower(Device("b", host="box"), 8.0)
    devices = (Device("a", host="box", wire_s_per_byte=3e-10), b)
    known = RunCosts.known(devices, host="box", message_s={"a": 3e-4, "b": 0.0})
    assert known.of("a") == ThreadCosts.measured(3e-4, 6e-10)
    assert known.of("b") == ThreadCosts.measured(2 * b.wire_s_per_message, 2 * b.wire_s_per_byte)
    assert known.of(HOST) == ThreadCosts.measured(3e-4)


@settings(max_examples=6)
@given(st.integers(1, 40), st.sampled_from(["ab", "aab", "abab"]))
def test_slow_boards_that_nobody_measured_take_as_many_times_as_long(
    factor: int, assignment: str
) -> None:
    """Also for serving the wire, which costs a slow board more than a usual one."""
    of = plan(tuple(slower(Device(name), factor) for name in "ab"), assignment, elements=10**6)
    usual = plan((Device("a"), Device("b")), assignment, elements=10**6)
    fast, slow = (predict(each, frames=60, even=True) for each in (usual, of))
    for name in "ab":
        assert slow.io_s[name] == pytest.approx(factor * fast.io_s[name], rel=0.02)
        assert slow.executor_s[name] == pytest.approx(factor * fast.executor_s[name], rel=0.02)


def test_thousands_of_phases() -> None:
    devices = tuple(Device(f"d{i}") for i in range(300))
    layers = {f"l{i}": f"d{i % 300}" for i in range(900)}
    network = chain(*[10**6] * 900)
    of = make_plan(network, "", devices, layers, strategy="any", explanation="")
    assert len(of.phases) == 900
    assert predict(of, frames=3).received_s[0] > 900 * 10**6 / 2e10 * 0.9
