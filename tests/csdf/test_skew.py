"""Skews: the fewest bytes in flows, found by linear programming."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cnn.network import Network
from csdf.conversion.dataflow_graphs import device_graph, phase_graph
from csdf.conversion.from_network import SINK, SOURCE, Dataflow, convert
from csdf.conversion.skew import retime, span
from csdf.errors import CsdfError
from csdf.execution.static_orders import Entry, ordered
from csdf.timing.throughput import throughput
from tests.csdf.networks import network, paper_example, partitioned
from tests.effort import examples


def cost(dataflow: Dataflow, skew: dict[str, int]) -> int:
    return sum(flow.tensor.bytes * span(flow, skew) for flow in dataflow.flows)


def is_feasible(dataflow: Dataflow, skew: dict[str, int]) -> bool:
    return all(
        skew[target] >= skew[flow.source] + (flow.source_device != flow.target_device)
        for flow in dataflow.flows
        for target in flow.targets
    )


@given(partitioned())
def test_a_phase_fires_in_a_later_period_than_what_it_needs_from_elsewhere(
    given: tuple[Network, dict[str, str]],
) -> None:
    dataflow = convert(*given)
    skew = dict(retime(dataflow).skew)
    assert skew[SOURCE] == 0
    assert min(skew.values()) == 0
    assert is_feasible(dataflow, skew)


@examples(22)
@given(partitioned(max_layers=6))
def test_no_other_skews_hold_fewer_bytes_and_no_optimum_has_a_smaller_skew_anywhere(
    given: tuple[Network, dict[str, str]],
) -> None:
    """All whole numbers tried."""
    dataflow = convert(*given)
    found = dict(retime(dataflow).skew)
    names = [*dataflow.phase, SINK]
    ranges = [range(max(found.values()) + 2)] * len(names)
    assume(len(names) <= 5)  # or there are too many to try
    candidates = (
        {SOURCE: 0, **dict(zip(names, values, strict=True))}
        for values in itertools.product(*ranges)
    )
    feasible = [skew for skew in candidates if is_feasible(dataflow, skew)]
    lowest = min(cost(dataflow, skew) for skew in feasible)
    assert cost(dataflow, found) == lowest
    for skew in feasible:
        if cost(dataflow, skew) == lowest:
            assert all(found[name] <= skew[name] for name in names)


@examples(15)
@given(partitioned(max_layers=30))
def test_a_minimum_cost_flow_proves_the_optimum_of_larger_partitions(
    given: tuple[Network, dict[str, str]],
) -> None:
    """The dual, solved in whole numbers: no skews, whole or not, hold fewer bytes."""
    dataflow = convert(*given)
    found = dict(retime(dataflow).skew)
    assert cost(dataflow, found) == largest_dual(dataflow)


def largest_dual(dataflow: Dataflow) -> int:
    """Each phase sends on what it receives, but for the bytes that its flows demand."""
    dual = nx.DiGraph()
    demand: Counter[str] = Counter()

    def wait(before: str, after: str, periods: int) -> None:
        known = dual.edges[before, after]["weight"] if dual.has_edge(before, after) else 0
        dual.add_edge(before, after, weight=min(known, -periods))

    for name in (*dataflow.phase, SINK):
        wait(SOURCE, name, 0)
    for flow in dataflow.flows:
        last = f"last of {flow.name}"
        for target in flow.targets:
            wait(flow.source, target, 0 if flow.is_local else 1)
            wait(target, last, 0)
        demand[last] += flow.tensor.bytes
        demand[flow.source] -= flow.tensor.bytes
    nx.set_node_attributes(dual, {name: demand[name] for name in dual}, "demand")
    value, _ = nx.network_simplex(dual)
    return -int(value)


@examples(15)
@given(partitioned(), st.data())
def test_the_skews_reach_the_work_of_the_busiest_device(
    given: tuple[Network, dict[str, str]], data: st.DataObject
) -> None:
    """On every device the phases in turn, each for its own frame; as orders of phases too."""
    dataflow = convert(*given)
    found = retime(dataflow, slack_frames=0)
    times = {p.name: Fraction(data.draw(st.integers(0, 9))) for p in dataflow.phases}
    busiest = max(sum(times[p.name] for p in own) for own in dataflow.devices.values())
    retimed = device_graph(
        dataflow, times=times, capacity_frames=found.capacity_frames, skew=found.skew
    )
    assert throughput(retimed).period == busiest
    phases = phase_graph(dataflow, times=times, capacity_frames=found.capacity_frames)
    turns = {
        device: [Entry(phase.name, found.skew[phase.name]) for phase in own]
        for device, own in dataflow.devices.items()
    }
    placed = ordered(phases, turns)
    assert throughput(placed.graph).period == busiest
    apart = throughput(ordered(phases, {d: [e.actor for e in o] for d, o in turns.items()}).graph)
    assert apart.period >= busiest  # frame by frame


def test_the_papers_example() -> None:
    dataflow = convert(*paper_example())
    pipeline = retime(dataflow)
    assert pipeline.skew == {
        "@source": 0,
        "device1/0": 1,
        "device2/0": 2,
        "device3/0": 3,
        "device2/1": 4,
        "device4/0": 5,
        "device5/0": 6,
        "device4/1": 7,
        "@sink": 8,
    }
    assert pipeline.capacity_frames["l8 → device2"] == 3  # waits two periods, on one device
    assert pipeline.capacity_frames["l8 → device3"] == 3  # one period, and one frame of slack


def test_a_phase_waits_where_its_tensors_are_small() -> None:
    """`shrink` could fire in period 2, 3 or 4: its input is large, so it fires at once."""
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["b"], "shrink": ["a"], "join": ["c", "shrink"]},
        {"a": (1, 100), "shrink": (1, 1)},
    )
    places = {"a": "d1", "b": "d2", "c": "d3", "shrink": "d4", "join": "d2"}
    assert retime(convert(net, places)).skew["d4/0"] == 2
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["b"], "grow": ["a"], "join": ["c", "grow"]},
        {"a": (1, 1), "grow": (1, 100)},
    )
    places = {"a": "d1", "b": "d2", "c": "d3", "grow": "d4", "join": "d2"}
    assert retime(convert(net, places)).skew["d4/0"] == 3


def test_slack_is_for_flows_between_devices_only() -> None:
    dataflow = convert(*paper_example())
    none, two = retime(dataflow, slack_frames=0), retime(dataflow, slack_frames=2)
    for flow in dataflow.flows:
        extra = 0 if flow.is_local else 2
        assert two.capacity_frames[flow.name] == none.capacity_frames[flow.name] + extra
    assert none.capacity_frames["l8 → device3"] == 2
    assert none.buffer_bytes < two.buffer_bytes
    with pytest.raises(CsdfError, match="slack_frames must be 0 or more, not -1"):
        retime(dataflow, slack_frames=-1)


def test_tensor_sizes_far_apart_stay_exact() -> None:
    """A megabyte-sized tensor beside one-byte ones: the small ones still decide their phases."""
    net = network(
        {"a": ["x"], "b": ["a"], "c": ["b"], "s": ["a"], "t": ["s"], "join": ["c", "t"]},
        {"a": (1, 2), "b": (1, 10**9), "c": (1, 10**9 + 1), "s": (1, 1), "t": (1, 2)},
    )
    places = {"a": "d1", "b": "d2", "c": "d3", "s": "d4", "t": "d5", "join": "d4"}
    dataflow = convert(net, places)
    skew = retime(dataflow).skew
    by_layer = {layer: skew[phase.name] for phase in dataflow.phases for layer in phase.layers}
    assert by_layer == {"a": 1, "b": 2, "c": 3, "s": 2, "t": 3, "join": 4}
