"""What keeps a device busy, and the period that follows, are the same wherever they are counted: in
plans, populations, segments, stages, tiles, whole copies, and the linear model of `exact`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Network
from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.prediction.timing import loads
from partition.pricing.busy import linear_s, rates_of
from partition.strategies.alike import kind_by_device
from partition.strategies.base import Problem, Solution
from partition.strategies.batch_split import CopyLoads
from partition.strategies.contiguous.segments import segments
from partition.strategies.contiguous.stages import Stages
from partition.strategies.exact.strategy import Exact
from partition.strategies.rows.tilings import LoadEstimate
from tests.partition.networks import chain, device_sets, partitioned


@dataclass(frozen=True)
class Counted:
    """An assignment, its plan, and what the plan says that each device is busy for."""

    problem: Problem
    plan: Plan
    busy_s: tuple[float, ...]

    @property
    def numbers(self) -> np.ndarray:
        """The device number of each layer."""
        return self.problem.numbers(self.plan.assignment)


def counted(
    network: Network,
    devices: tuple[Device, ...],
    assignment: Mapping[str, str],
    pins: Mapping[str, str] | None = None,
) -> Counted:
    problem = Problem(network, devices, pins or {})
    solution = Solution(assignment, "as given")
    plan = plan_solution(problem, solution, "manual")
    load = loads(plan.devices, plan.phases, plan.channels)
    return Counted(problem, plan, tuple(load[device.name].busy_s for device in devices))


def busy_by_coefficients(case: Counted, device: Device) -> float:
    """Σ seconds × how often, with the numbers of the plan for the linear model's decisions."""
    network, plan = case.problem.network, case.plan
    number = case.problem.devices.index(device)
    layer_s = case.problem.costs.layer_s[:, number]
    phases = [phase for phase in plan.phases if phase.device == device.name]
    reads, sends, leaves = (dict.fromkeys(network.tensors, 0) for _ in range(3))
    for channel in plan.channels:
        name = channel.tensor.name
        if channel.target_device == device.name:
            reads[name] += 1
        if channel.source_device == device.name:
            leaves[name] = 1
            sends[name] += not channel.is_local
    held = network.weight_bytes({layer for phase in phases for layer in phase.layers})
    summands = linear_s(
        rates_of(device),
        ((seconds, n == number) for seconds, n in zip(layer_s, case.numbers, strict=True)),
        len(phases),
        ((network.tensors[x].bytes, reads[x], leaves[x], sends[x]) for x in network.tensors),
        (1, max(0, held - device.cache_bytes) if device.cache_bytes is not None else 0),
    )
    return sum(seconds * often for seconds, often in summands)


@st.composite
def cut_chains(draw: st.DrawFn) -> Counted:
    """A chain in runs of layers, each on its own device, to which all layers are pinned.

    Only links that cost next to nothing join devices of one machine, because stages count all that
    a device sends as if it left its machine.
    """
    devices = draw(device_sets(max_devices=3))
    if any(device.host for device in devices):
        devices = tuple(replace(device, link_bytes_per_s=1e18) for device in devices)
    length = draw(st.integers(len(devices), 6))
    macs = draw(st.lists(st.sampled_from((1024, 65536, 1 << 20)), min_size=length, max_size=length))
    weights = draw(st.lists(st.sampled_from((0, 16, 4096)), min_size=length, max_size=length))
    inner = st.integers(1, length - 1) if length > 1 else st.nothing()
    count = len(devices) - 1
    cuts = sorted(draw(st.lists(inner, min_size=count, max_size=count, unique=True)))
    network = chain(*macs, elements=draw(st.sampled_from((16, 4096))), weights=weights)
    numbers = np.searchsorted(cuts, np.arange(length), side="right")
    names = [layer.name for layer in network.layers]
    pins = {name: devices[number].name for name, number in zip(names, numbers, strict=True)}
    return counted(network, devices, pins, pins)


@given(st.one_of(cut_chains(), partitioned().map(lambda case: counted(*case))))
@settings(max_examples=40)
def test_all_forms_count_what_the_plan_counts(case: Counted) -> None:
    problem, plan = case.problem, case.plan
    costs = problem.costs.evaluate(case.numbers[None])
    if costs.phases.sum() == len(plan.phases):  # otherwise hoisting has merged some
        assert costs.busy_s[0] == pytest.approx(case.busy_s)
        assert costs.period_s[0] == pytest.approx(plan.period_s)
    if not any(channel.is_local for channel in plan.channels):  # which the coefficients leave out
        found = [busy_by_coefficients(case, device) for device in problem.devices]
        assert found == pytest.approx(case.busy_s)
    if problem.pins:
        _check_contiguous(case)
        _check_tiles(case)
    _check_whole_copies(problem)


def _check_contiguous(case: Counted) -> None:
    """Segments, stages and the linear model of `exact`, for a run of layers on each device."""
    problem, devices = case.problem, range(len(case.problem.devices))
    ends = [0, *(np.flatnonzero(np.diff(case.numbers)) + 1).tolist(), len(case.numbers)]
    priced = segments(problem)
    kind_of = kind_by_device(priced.kinds)
    found = [priced.busy_s[kind_of[n], ends[n], ends[n + 1]] for n in devices]
    assert found == pytest.approx(case.busy_s)
    stages = Stages(problem, priced, lambda numbers: numbers)
    period_s, _ = stages.price(devices, np.array([ends[1:-1]], dtype=np.intp))
    assert period_s == pytest.approx(case.plan.period_s)
    # All is pinned, so its bound is the period that it counts; had it counted more than this
    # assignment has, which it starts from, there would be no solution.
    bounded = Exact().solve(problem)
    assert bounded.gap is not None
    assert bounded.gap <= 1e-3


def _check_whole_copies(problem: Problem) -> None:
    """A cycle whose frames all go to one device is the whole network on that device."""
    layers, devices = len(problem.network.layers), len(problem.devices)
    everything = np.arange(devices)[:, None].repeat(layers, axis=1)
    expected = problem.costs.evaluate(everything).period_s
    loads_of_copies = CopyLoads(problem)
    found = [loads_of_copies.period_s(row) for row in np.eye(devices, dtype=int).tolist()]
    assert found == pytest.approx(expected)


def _check_tiles(case: Counted) -> None:
    """Without tiles the estimate is that of the layers, without what they send each other."""
    quiet = replace(
        case.problem,
        devices=tuple(
            replace(device, wire_is_free=True, cut_s_per_byte=0.0, link_bytes_per_s=1e18)
            for device in case.problem.devices
        ),
    )
    costs = quiet.costs.evaluate(case.numbers[None])
    nothing, output = slice(0, 0), quiet.network.layers[-1].outputs[0]
    found = LoadEstimate(quiet).loads(case.numbers, nothing, output, {})
    assert found.busy_s == pytest.approx(costs.busy_s[0])
    assert found.period_s == pytest.approx(costs.period_s[0])
