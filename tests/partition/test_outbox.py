"""What producers hold until it is sent: the same in plans and in the vectorised cost model."""

from __future__ import annotations

import numpy as np
import pytest

from cnn.network import Layer, Network, Tensor
from csdf.conversion.from_network import convert
from partition.devices import Device
from partition.planner import make_plan
from partition.prediction.outbox import unsent_bytes
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


def rooms(places: str, sizes: tuple[int, ...], share: float = 0.0) -> dict[str, int]:
    """Room by device in multiples of `LONG_BYTES`; layer i is on the device that letter i names."""
    network = chain(*sizes)
    partition = {layer.name: place for layer, place in zip(network.layers, places, strict=True)}
    dataflow = convert(network, partition)
    frames = {flow.name: 3 for flow in dataflow.flows}
    found = unsent_bytes(dataflow, frames, dict.fromkeys(dataflow.devices, share))
    return {device: size // LONG_BYTES for device, size in found.items()}


def test_there_is_room_for_the_largest_tensors_of_four_phases() -> None:
    assert rooms("abababababa", (9, 0, 1, 0, 7, 0, 5, 0, 3, 0, 0))["a"] == 9 + 7 + 5 + 3


def test_where_a_device_has_fewer_phases_they_fire_again() -> None:
    assert rooms("abab", (5, 0, 3, 0))["a"] == 2 * 5 + 2 * 3


def test_no_more_frames_of_a_tensor_count_than_its_channel_holds() -> None:
    assert rooms("ab", (5, 0))["a"] == 3 * 5


def test_a_busy_link_may_keep_several_frames_of_the_largest_waiting() -> None:
    assert rooms("ababababa", (9, 0, 1, 0, 7, 0, 5, 0, 0), share=0.5)["a"] == 3 * 9 + 7


def test_short_tensors_are_charged_by_the_capacity_of_their_channels() -> None:
    assert rooms("aba", (0, 0, 0)) == {}


@pytest.mark.parametrize("places", ["abab", "ababababab", "aabbaabb", "abcabcabc"])
def test_the_cost_model_charges_what_the_plan_does(places: str) -> None:
    network = chain(*[1 + 5 * number % 7 for number in range(len(places))])
    devices = tuple(Device(name, macs_per_s=1e9) for name in sorted(set(places)))
    assignment = {layer.name: place for layer, place in zip(network.layers, places, strict=True)}
    plan = make_plan(network, "", devices, assignment, strategy="", explanation="")
    problem = Problem(network, devices)
    costs = problem.costs.evaluate(problem.numbers(assignment)[None])
    exact = [
        part.weights_bytes + part.activations_bytes + part.channels_bytes
        for part in (plan.memory[device.name] for device in devices)
    ]
    assert np.allclose(costs.tensor_bytes[0], exact, rtol=0.25)
    assert all(plan.memory[device.name].unsent_bytes for device in devices)
