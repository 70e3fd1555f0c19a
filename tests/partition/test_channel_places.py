"""What either end of a channel holds: the same in plans and in the vectorised cost model."""

from __future__ import annotations

import numpy as np
import pytest

from cnn.network import Layer, Network, Tensor
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.traffic import LONG_BYTES
from partition.strategies.base import Problem

WORK = 10**9


def chain(*sizes: int) -> Network:
    """Layers that each make a tensor of so many times `LONG_BYTES`, or a short one."""
    names = [f"t{number}" for number in range(len(sizes))]
    tensors = {
        name: Tensor(name, (size * LONG_BYTES or 8,), "uint8")
        for name, size in zip(names, sizes, strict=True)
    }
    layers = tuple(
        Layer(f"l{number}", "Conv", (before,), (name,), (), WORK)
        for number, (before, name) in enumerate(zip(["x", *names], names, strict=False))
    )
    return Network(
        "net", layers, {"x": Tensor("x", (8,), "uint8"), **tensors}, {}, ("x",), (names[-1],)
    )


def planned(network: Network, places: str, **changes: float) -> Plan:
    """Layer i is on the device that letter i names."""
    devices = tuple(Device(name, macs_per_s=1e9, **changes) for name in sorted(set(places)))
    assignment = {layer.name: place for layer, place in zip(network.layers, places, strict=True)}
    return make_plan(network, "", devices, assignment, strategy="", explanation="")


def frames(plan: Plan, tensor: str) -> tuple[int, int]:
    """Of a tensor at its producer and at its last consumer."""
    channel = [c for c in plan.channels if c.tensor.name == tensor][-1]
    return channel.unsent_frames, channel.consumer_frames


def test_devices_that_are_always_busy_hold_two_frames_at_either_end() -> None:
    """One that leaves and one that is made; one that is read and one that has come."""
    assert frames(planned(chain(9, 0), "ab"), "t0") == (2, 2)


def test_a_brief_phase_makes_a_frame_while_nothing_waits_to_be_sent() -> None:
    plan = planned(chain(9, 0, 0, 0, 0, 0), "abbbbb")
    assert frames(plan, "t0")[0] == 1


def test_frames_that_wait_for_a_later_phase_wait_where_it_is() -> None:
    network = chain(9, 0, 0, 0)
    skipping = Layer("l3", "Concat", ("t2", "t0"), ("t3",), (), WORK)
    network = Network("net", (*network.layers[:3], skipping), network.tensors, {}, ("x",), ("t3",))
    unsent, waiting = frames(planned(network, "abcd"), "t0")
    assert unsent == 2
    assert waiting >= 3


def test_short_tensors_have_places_at_both_ends_at_once() -> None:
    assert frames(planned(chain(0, 0, 0), "abb"), "t0") == (0, 3)


def test_results_that_are_long_wait_at_their_device_for_the_launcher() -> None:
    assert frames(planned(chain(0, 9), "ab"), "t1") == (2, 3)


@pytest.mark.parametrize("places", ["abab", "ababababab", "aabbaabb", "abcabcabc"])
def test_the_cost_model_charges_what_the_plan_does(places: str) -> None:
    network = chain(*[1 + 5 * number % 7 for number in range(len(places))])
    plan = planned(network, places)
    problem = Problem(network, plan.devices)
    costs = problem.costs.evaluate(problem.numbers(plan.assignment)[None])
    exact = [
        part.weights_bytes + part.activations_bytes + part.channels_bytes
        for part in (plan.memory[device.name] for device in plan.devices)
    ]
    assert np.allclose(costs.tensor_bytes[0], exact, rtol=0.2)
