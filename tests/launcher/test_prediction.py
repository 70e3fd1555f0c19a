"""What is told of a plan before it runs: closed forms, and what they leave out."""

from __future__ import annotations

import pytest

from partition.devices import Device
from partition.measured.profiles import NodeProfile, Profile, profiled_devices
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.foreseen import RunFacts, foreseen
from partition.prediction.timing import with_measured_phases
from partition.pricing.run_costs import ThreadCosts
from tests.partition.networks import chain

HERE = "here"


def plan_of(phase_s: float, message_s: float) -> tuple[Plan, Profile]:
    """A layer on each of two devices of the launcher's machine."""
    network = chain(10, 10)
    node = NodeProfile({"l0": phase_s, "l1": phase_s}, message_s=message_s)
    profile = Profile({"a": node, "b": node})
    devices = profiled_devices(
        [Device(name, host=HERE, host_cores=2, firing_s=2e-4) for name in "ab"], profile
    )
    plan = make_plan(
        network, "", devices, {"l0": "a", "l1": "b"}, strategy="", explanation="", slack_frames=1
    )
    return with_measured_phases(plan, {phase.name: phase_s for phase in plan.phases}), profile


def test_the_launchers_own_work_bounds_a_network_of_microseconds() -> None:
    plan, profile = plan_of(phase_s=5e-6, message_s=1e-4)
    costs = ThreadCosts.measured(1e-4)
    found = foreseen(plan, RunFacts("pipelined", HERE), profile)
    assert found.period_s > costs.source_s + costs.sink_s
    assert found.period_s > 1.3 * plan.period_s
    assert found.phases == plan.phases


def test_beside_real_work_it_is_nothing() -> None:
    plan, profile = plan_of(phase_s=0.1, message_s=1e-4)
    found = foreseen(plan, RunFacts("pipelined", HERE), profile)
    assert found.period_s == pytest.approx(plan.period_s, rel=0.05)
    strict = foreseen(plan, RunFacts("strict", HERE), profile)
    assert strict.latency_s > 0


def test_a_plan_that_is_too_large_to_simulate_at_once_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan, profile = plan_of(phase_s=5e-6, message_s=1e-4)
    monkeypatch.setattr("partition.prediction.foreseen.FORESEEN_FIRINGS", 10)
    assert foreseen(plan, RunFacts("pipelined", HERE), profile) == plan


def test_what_a_firing_costs_follows_from_the_measured_message_but_is_not_less_than_usual() -> None:
    (device,) = profiled_devices([Device("a")], Profile({"a": NodeProfile({}, message_s=3e-3)}))
    costs = ThreadCosts.measured(3e-3)
    assert device.firing_s == costs.executor_s + costs.ended_s > Device("a").firing_s
    (quick,) = profiled_devices([Device("a")], Profile({"a": NodeProfile({}, message_s=1e-5)}))
    assert quick.firing_s == Device("a").firing_s
    (usual,) = profiled_devices([Device("a")], Profile({"a": NodeProfile({})}))
    assert usual.firing_s == Device("a").firing_s
