"""The vectorised cost model says what the exact prediction of a plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cnn.network import Network
from partition.cost import CostModel
from partition.devices import Device
from partition.planner import make_plan
from partition.strategies.base import Problem
from partition.timing import loads
from tests.partition.networks import chain, partitioned, residual

Partitioned = tuple[Network, tuple[Device, ...], Mapping[str, str]]


@given(partitioned())
@settings(deadline=None, max_examples=30)
def test_population_and_plan_agree(case: Partitioned) -> None:
    network, devices, assignment = case
    plan = make_plan(network, "", devices, assignment, strategy="any", explanation="")
    problem = Problem(network, devices)
    costs = problem.costs.evaluate(problem.numbers(assignment)[None])
    exact = [loads(devices, plan.phases, plan.channels)[device.name] for device in devices]
    assert costs.compute_s[0] == pytest.approx([load.compute_s for load in exact])
    assert costs.sent_bytes[0].tolist() == [load.sent_bytes for load in exact]
    assert costs.received_bytes[0].tolist() == [load.received_bytes for load in exact]
    assert costs.wire_bytes[0] == plan.bytes_per_frame
    memory = [plan.memory[device.name] for device in devices]
    assert costs.weight_bytes[0].tolist() == [part.weights_bytes for part in memory]


@given(partitioned())
@settings(deadline=None, max_examples=30)
def test_the_only_difference_in_time_is_that_of_merged_phases(case: Partitioned) -> None:
    network, devices, assignment = case
    plan = make_plan(network, "", devices, assignment, strategy="any", explanation="")
    problem = Problem(network, devices)
    costs = problem.costs.evaluate(problem.numbers(assignment)[None])
    exact = loads(devices, plan.phases, plan.channels)
    for number, device in enumerate(devices):
        fired = sum(phase.device == device.name for phase in plan.phases)
        merged = costs.phases[0, number] - fired
        assert merged >= 0
        expected = exact[device.name].busy_s + merged * device.firing_s
        assert costs.busy_s[0, number] == pytest.approx(expected)
    if costs.phases.sum() == len(plan.phases):
        assert costs.period_s[0] == pytest.approx(plan.period_s)


@given(partitioned())
@settings(deadline=None, max_examples=30)
def test_a_row_costs_the_same_among_others(case: Partitioned) -> None:
    network, devices, assignment = case
    problem = Problem(network, devices)
    row = problem.numbers(assignment)
    others = np.random.default_rng(0).integers(0, len(devices), (3, len(row)))
    alone = problem.costs.evaluate(row[None])
    among = problem.costs.evaluate(np.concatenate([others, row[None]]))
    assert among.period_s[3] == pytest.approx(alone.period_s[0])
    assert among.memory_bytes[3].tolist() == alone.memory_bytes[0].tolist()


def test_estimated_memory_is_close_to_the_plans() -> None:
    network = residual()
    devices = tuple(Device(f"d{i}") for i in range(4))
    problem = Problem(network, devices)
    contiguous = np.arange(len(network.layers)) * 4 // len(network.layers)
    plan = make_plan(
        network, "", devices, problem.assignment(contiguous), strategy="any", explanation=""
    )
    estimated = problem.costs.evaluate(contiguous[None]).memory_bytes[0]
    exact = [plan.memory[device.name].total_bytes for device in devices]
    assert estimated == pytest.approx(exact, rel=0.02)


def test_a_tensor_goes_once_to_each_device_that_reads_it() -> None:
    network = residual(1)  # x is read by the first convolution only, t1 by the second only
    reader = next(layer for layer in network.layers if layer.name == "l2").name
    devices = (Device("a"), Device("b"))
    problem = Problem(network, devices)
    everything = {layer.name: "a" for layer in network.layers}
    together = problem.costs.evaluate(problem.numbers(everything)[None])
    apart = problem.costs.evaluate(problem.numbers(everything | {reader: "b"})[None])
    there_and_back = network.tensors["t1"].bytes + network.tensors["t2"].bytes
    assert apart.wire_bytes[0] - together.wire_bytes[0] == there_and_back


def test_devices_of_one_machine_share_its_cores() -> None:
    network = chain(10**9, 10**9)
    spread = np.array([[0, 1]])
    alone = CostModel(network, (Device("a"), Device("b"))).evaluate(spread)
    shared = [Device(name, host="box", host_cores=1) for name in "ab"]
    together = CostModel(network, shared).evaluate(spread)
    assert together.period_s[0] == pytest.approx(together.busy_s[0].sum())
    assert alone.period_s[0] == pytest.approx(alone.busy_s[0].max())


def test_a_free_wire_does_not_delay_the_layers_but_still_takes_its_time() -> None:
    network = chain(1024, 1024, elements=1 << 20)
    slow = Device("a", wire_s_per_byte=1e-6, memory_bytes_per_s=1e12)
    spread = np.array([[0, 1]])
    paying = CostModel(network, (slow, replace(slow, name="b"))).evaluate(spread)
    free = [replace(slow, name=name, wire_is_free=True) for name in "ab"]
    costs = CostModel(network, free).evaluate(spread)
    assert costs.busy_s.max() < 0.01 < paying.busy_s.min()
    assert costs.period_s[0] == pytest.approx((4 << 20) / slow.link_bytes_per_s)


def test_what_exceeds_a_limit_is_counted() -> None:
    network = chain(1, 1, weights=[1 << 23, 1 << 23])
    free = CostModel(network, (Device("a"), Device("b"))).evaluate(np.array([[0, 0], [0, 1]]))
    limit = int(free.memory_bytes[1].max())
    bound = CostModel(network, (Device("a", limit), Device("b", limit)))
    overrun = bound.evaluate(np.array([[0, 0], [0, 1]])).overrun_bytes
    assert overrun[1] == 0
    assert overrun[0] == free.memory_bytes[0, 0] - limit > 0
