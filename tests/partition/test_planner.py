"""From an assignment to a plan, or to a sentence that says why there is none."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings

from cnn.network import Layer, Network, Tensor
from csdf.conversion.from_network import HOST
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.plan import Plan
from partition.planner import make_plan, plan_solution
from partition.strategies.base import Problem, Solution
from tests.partition.networks import chain, partitioned

MB = 10**6


def two_devices(limit: int | None) -> Plan:
    """A chain of three, back and forth between two devices, 5 MB of weights, tensors of 4 MB."""
    network = chain(1, 1, 1, elements=MB, weights=[MB // 2, MB // 4, MB // 2])
    devices = (Device("a", limit), Device("b", limit))
    assignment = {"l0": "a", "l1": "b", "l2": "a"}
    return make_plan(network, "digest", devices, assignment, strategy="some", explanation="why")


@given(partitioned())
@settings(max_examples=30)
def test_every_assignment_of_every_network_has_a_plan(
    case: tuple[Network, tuple[Device, ...], Mapping[str, str]],
) -> None:
    network, devices, assignment = case
    plan = make_plan(network, "digest", devices, assignment, strategy="some", explanation="why")
    assert sorted(layer for phase in plan.phases for layer in phase.layers) == sorted(assignment)
    assert all(assignment[layer] == p.device for p in plan.phases for layer in p.layers)
    assert set(plan.memory) == {device.name for device in devices}
    assert all(channel.capacity_frames >= 1 for channel in plan.channels)
    assert plan.period_s >= 0
    assert plan.latency_s >= plan.period_s
    assert plan.proof


def test_a_plan_says_where_it_comes_from() -> None:
    plan = two_devices(None)
    assert (plan.network, plan.model_digest) == ("example", "digest")
    assert (plan.strategy, plan.explanation) == ("some", "why")
    assert plan.times == "estimated"


def test_when_memory_is_tight_channels_have_no_room_to_spare() -> None:
    roomy = two_devices(None)
    need = max(part.total_bytes for part in roomy.memory.values())
    tight = two_devices(need - 1)
    for wide, narrow in zip(roomy.channels, tight.channels, strict=True):
        launchers = HOST in (narrow.source_device, narrow.target_device)
        assert narrow.capacity_frames <= wide.capacity_frames - launchers
    assert "memory is tight" in tight.explanation


def test_a_frame_of_slack_is_room_for_a_margin_and_every_further_one_for_a_period() -> None:
    """Both phases take a whole period: the frame that is made and the one that is read."""
    network, devices = chain(10**9, 10**9), (Device("a"), Device("b"))

    def between(slack_frames: int) -> int:
        plan = make_plan(
            network, "", devices, {"l0": "a", "l1": "b"}, strategy="", explanation="",
            slack_frames=slack_frames,
        )  # fmt: skip
        return next(c.capacity_frames for c in plan.channels if c.target_device == "b")

    assert [between(slack_frames) for slack_frames in range(4)] == [3, 3, 4, 5]


def test_what_does_not_fit_is_refused_with_need_limit_and_help() -> None:
    with pytest.raises(DoesNotFitError) as refusal:
        two_devices(71 * MB)
    sentence = str(refusal.value)
    assert "device 'a' would hold" in sentence
    assert "may hold only 71.0 MB" in sentence
    assert "weights 4.0 MB" in sentence
    assert "choose strategy 'vertical'" in sentence


def test_a_device_that_cannot_even_hold_the_engine_is_reported_so() -> None:
    with pytest.raises(DoesNotFitError, match="engine alone needs more"):
        two_devices(10 * MB)


def test_too_much_for_all_devices_together_needs_more_of_them() -> None:
    network = chain(1, weights=[100 * MB])
    with pytest.raises(DoesNotFitError, match="or add devices") as refusal:
        make_plan(
            network, "", (Device("a", 200 * MB),), {"l0": "a"}, strategy="some", explanation=""
        )
    assert "vertical" not in str(refusal.value)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(PartitionError, match=r"'l0' is assigned to 'c'.* a, b"):
        make_plan(
            chain(1), "", (Device("a"), Device("b")), {"l0": "c"}, strategy="", explanation=""
        )


def test_a_layer_without_device_and_a_foreign_layer_are_named() -> None:
    devices = (Device("a"),)
    with pytest.raises(PartitionError, match="'l1'"):
        make_plan(chain(1, 1), "", devices, {"l0": "a"}, strategy="", explanation="")
    with pytest.raises(PartitionError, match="'other'"):
        make_plan(chain(1), "", devices, {"l0": "a", "other": "a"}, strategy="", explanation="")


def test_measured_seconds_of_layers_reach_the_plan() -> None:
    network = chain(1, 1)
    problem = Problem(network, (Device("a"), Device("b")), layer_s=np.array([[1.0, 9], [9, 2.0]]))
    plan = plan_solution(problem, Solution({"l0": "a", "l1": "b"}, "why"), "some")
    assert [phase.predicted_s for phase in plan.phases] == pytest.approx([1.0, 2.0], rel=1e-3)


def test_a_rewritten_network_divides_the_seconds_of_its_layers() -> None:
    network = chain(100)
    halves = tuple(
        Layer(f"l0[{i}/2]", "Conv", ("t0",), (f"t1[{i}/2]",), (), 50, "l0") for i in (1, 2)
    )
    parts = {f"t1[{i}/2]": Tensor(f"t1[{i}/2]", (1, 4), "float32") for i in (1, 2)}
    rewritten = Network(
        "halves", halves, {"t0": network.tensors["t0"], **parts}, {}, ("t0",), tuple(parts)
    )
    problem = Problem(network, (Device("a"), Device("b")), layer_s=np.array([[4.0, 6.0]]))
    given = {"l0[1/2]": "a", "l0[2/2]": "b"}
    plan = plan_solution(problem, Solution(given, "why", network=rewritten), "some")
    assert [phase.predicted_s for phase in plan.phases] == pytest.approx([2.0, 3.0], rel=1e-3)
