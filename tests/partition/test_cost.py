"""The vectorised cost model says what the exact prediction of a plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from cnn.network import Network
from partition.devices import ONNX_RUNTIME, Device, EngineOverhead
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.timing import energy_j, latency_s, loads
from partition.pricing.cost import CostModel, Costs
from partition.strategies.base import Problem
from tests.partition.networks import chain, partitioned, residual

Partitioned = tuple[Network, tuple[Device, ...], Mapping[str, str]]


@given(partitioned())
@settings(max_examples=30)
def test_population_and_plan_agree_on_what_follows_from_the_assignment(case: Partitioned) -> None:
    network, devices, assignment = case
    plan, costs = priced(network, devices, assignment)
    exact = [loads(devices, plan.phases, plan.channels)[device.name] for device in devices]
    assert costs.sent_bytes[0].tolist() == [load.sent_bytes for load in exact]
    assert costs.received_bytes[0].tolist() == [load.received_bytes for load in exact]
    assert costs.wire_bytes[0] == plan.bytes_per_frame
    memory = [plan.memory[device.name] for device in devices]
    assert costs.weight_bytes[0].tolist() == [part.weights_bytes for part in memory]
    assert costs.cache_overrun_bytes[0].tolist() == [
        0 if d.cache_bytes is None else max(part.weights_bytes - d.cache_bytes, 0)
        for d, part in zip(devices, memory, strict=True)
    ]


@given(partitioned())
@settings(max_examples=20)
def test_what_depends_on_phases_is_never_more_than_estimated(case: Partitioned) -> None:
    network, devices, assignment = case
    plan, costs = priced(network, devices, assignment)
    load = loads(devices, plan.phases, plan.channels)
    fired = [sum(phase.device == device.name for phase in plan.phases) for device in devices]
    assert (costs.phases[0] >= fired).all()
    merged = costs.phases.sum() - len(plan.phases)
    estimates = [*(costs.compute_s[0] + costs.dividing_s[0]), *costs.busy_s[0]]
    estimates += [costs.period_s[0], costs.energy_j[0]]
    exactly = [load[d.name].compute_s for d in devices] + [load[d.name].busy_s for d in devices]
    exactly += [plan.period_s, energy_j(plan)]
    for estimate, exact in zip(estimates, exactly, strict=True):
        assert estimate >= exact * (1 - 1e-9)
        if not merged:
            assert estimate == pytest.approx(exact)


@given(partitioned())
@settings(max_examples=20)
def test_no_plan_has_a_frame_in_fewer_periods_than_estimated(case: Partitioned) -> None:
    network, devices, assignment = case
    read = {name for layer in network.layers for name in layer.inputs}
    loose = [n for layer in network.layers for n in layer.outputs if n not in read]
    network = replace(network, outputs=(*network.outputs, *set(loose) - set(network.outputs)))
    plan, costs = priced(network, devices, assignment)
    periods = round(costs.latency_s[0] / costs.period_s[0])
    assert latency_s(plan.phases, plan.channels, 1.0) >= periods


def test_a_contiguous_plan_takes_exactly_the_periods_estimated() -> None:
    network, devices = residual(), tuple(Device(f"d{i}") for i in range(5))
    contiguous = np.arange(len(network.layers)) * 5 // len(network.layers)
    assignment = Problem(network, devices).assignment(contiguous)
    plan, costs = priced(network, devices, assignment)
    assert costs.latency_s[0] == pytest.approx(plan.latency_s)
    assert costs.latency_s[0] == pytest.approx(6 * plan.period_s)


@given(partitioned())
@settings(max_examples=30)
def test_a_row_costs_the_same_among_others(case: Partitioned) -> None:
    network, devices, assignment = case
    problem = Problem(network, devices)
    row = problem.numbers(assignment)
    others = np.random.default_rng(0).integers(0, len(devices), (3, len(row)))
    alone = problem.costs.evaluate(row[None])
    among = problem.costs.evaluate(np.concatenate([others, row[None]]))
    assert among.period_s[3] == pytest.approx(alone.period_s[0])
    assert among.memory_bytes[3].tolist() == alone.memory_bytes[0].tolist()


def priced(
    network: Network, devices: tuple[Device, ...], assignment: Mapping[str, str]
) -> tuple[Plan, Costs]:
    """One assignment by the exact way and by the vectorised one."""
    plan = make_plan(network, "", devices, assignment, strategy="any", explanation="")
    problem = Problem(network, devices)
    return plan, problem.costs.evaluate(problem.numbers(assignment)[None])


@pytest.mark.parametrize("heavy", [ONNX_RUNTIME, EngineOverhead(50_000_000, 10**6, 10**6)])
def test_estimated_memory_is_close_to_the_plans(heavy: EngineOverhead) -> None:
    network = residual()
    devices = tuple(
        Device(f"d{i}", engine_overhead=heavy if i % 2 else ONNX_RUNTIME) for i in range(4)
    )
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


def test_the_launchers_own_link_bounds_whatever_is_assigned() -> None:
    network = chain(10**6, 10**6, elements=1000)
    devices = tuple(Device(name, launcher_bytes_per_s=1e3) for name in "ab")
    population = np.array([[0, 0], [0, 1], [1, 0]])
    found = CostModel(network, devices).evaluate(population).period_s
    assert found == pytest.approx([4.0] * 3)


def test_a_free_wire_does_not_delay_the_layers_but_still_takes_its_time() -> None:
    network = chain(1024, 1024, elements=1 << 20)
    slow = Device("a", wire_s_per_byte=1e-6, cut_s_per_byte=1e-12)
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


def test_weights_beyond_the_cache_are_fetched_for_every_frame() -> None:
    network = chain(1, 1, weights=[1000, 2000])
    cached = Device("a", cache_bytes=9000, cache_s_per_byte=1e-3)
    costs = CostModel(network, (cached, replace(cached, name="b"))).evaluate(
        np.array([[0, 0], [0, 1]])
    )
    assert costs.cache_overrun_bytes.tolist() == [[3000.0, 0.0], [0.0, 0.0]]
    assert costs.compute_s[0, 0] == pytest.approx(3.0, rel=1e-3)
    assert costs.compute_s[1].max() < 1e-3


def test_layers_that_share_a_weight_hold_it_once_per_device() -> None:
    network = chain(1, 1, 1, weights=[1000, 1000, 1000])
    banded = [replace(layer, weights=("w0",)) for layer in network.layers]
    model = CostModel(replace(network, layers=tuple(banded)), (Device("a"), Device("b")))
    held = model.evaluate(np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0]])).weight_bytes
    assert held.tolist() == [[4000.0, 0.0], [4000.0, 4000.0], [4000.0, 4000.0]]
