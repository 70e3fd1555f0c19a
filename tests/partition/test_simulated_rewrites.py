"""The simulated run of plans that rewrite the network: frames dealt out, layers split."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import pytest

from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.prediction.simulation import Prediction, predict
from partition.strategies.base import Problem, Strategy
from partition.strategies.batch_split import BatchSplit
from partition.strategies.rows.horizontal import Horizontal
from partition.strategies.rows.tiles import Tiles
from tests.partition.rewriting_contract import residual_model
from tests.partition.test_batch_split import fast
from tests.partition.test_simulated import costs


def solved(strategy: Strategy, *devices: Device) -> Plan:
    model = residual_model(3)
    problem = Problem(model.network, devices, model=model)
    solution = strategy.solve(problem)
    return plan_solution(problem, solution, "any")


@cache
def dealt() -> Plan:
    """One frame of four to a slow device, three to a fast one."""
    return solved(BatchSplit(), fast("slow", 1), fast("fast", 3))


def simulated(of: Plan, frames: int = 100, order: str = "pipelined") -> Prediction:
    return predict(of, costs(of), order=order, frames=frames, even=True)


@pytest.mark.parametrize("order", ["pipelined", "strict"])
def test_frames_are_dealt_out_as_devices_are_fast(order: str) -> None:
    of = dealt()
    assert sorted(of.dealing) == [0, 1, 1, 1]
    found = simulated(of, order=order)
    assert found.period_s == pytest.approx(of.period_s, rel=0.02)
    own = {phase.device: phase.predicted_s for phase in of.phases}
    for device, share in (("slow", 1 / 4), ("fast", 3 / 4)):
        assert found.executor_s[device] == pytest.approx(own[device] * share)


def test_results_are_taken_in_frame_order() -> None:
    """The fast device's are there before the slow one's of an earlier frame, and wait for it."""
    of = dealt()
    found = simulated(of)
    assert list(found.received_s) == sorted(found.received_s)
    at_once = [one == other for one, other in itertools.pairwise(found.received_s)]
    assert any(at_once)


@pytest.mark.parametrize("frames", [1, 2, 5, 31])
def test_a_run_may_end_within_a_cycle(frames: int) -> None:
    of = dealt()
    found = simulated(of, frames)
    assert len(found.sent_s) == len(found.received_s) == frames
    whole = simulated(of, 32)  # whose later frames take CPUs from threads of earlier ones
    assert found.received_s == pytest.approx(whole.received_s[:frames], rel=0.01)


def test_one_copy_is_the_network_as_it_is() -> None:
    slow = fast("slow", 1)
    of = solved(BatchSplit(), slow)
    assert of.dealing == (0,)
    assert simulated(of).period_s == pytest.approx(of.period_s, rel=0.01)


@pytest.mark.parametrize("strategy", [Horizontal(), Tiles()])
def test_split_layers_are_layers_like_any_other(strategy: Strategy) -> None:
    devices = tuple(replace(fast(name, 1), link_bytes_per_s=1e12) for name in ("a", "b"))
    of = solved(strategy, *devices)
    assert of.rewrites
    found = simulated(of)
    assert found.period_s == pytest.approx(of.period_s, rel=0.05)
    for device in of.devices:
        held = [c for c in of.channels if c.target_device == device.name]
        assert found.fifo_bytes[device.name] <= sum(
            c.capacity_frames * c.tensor.bytes for c in held
        )
