"""Conversion of a partitioned network into phases, flows and CSDF graphs."""

from __future__ import annotations

import pytest
from hypothesis import given

from cnn.network import Network
from csdf.conversion.dataflow_graphs import device_graph
from csdf.conversion.from_network import HOST, SINK, SOURCE, Converter, Dataflow, convert
from csdf.conversion.grouping import Edge, group, levels
from csdf.errors import ConversionError
from tests.csdf.networks import network, paper_example, partitioned


def layers_of(dataflow: Dataflow) -> dict[str, tuple[str, ...]]:
    return {phase.name: phase.layers for phase in dataflow.phases}


class TestThePapersExample:
    """§4.3, Figure 2 and Table 2 of Tang & Stefanov (2021)."""

    def test_has_its_layers_and_edges(self) -> None:
        net, _ = paper_example()
        assert (len(net.layers), len(net.edges)) == (23, 24)

    def test_phases(self) -> None:
        dataflow = convert(*paper_example())
        assert layers_of(dataflow) == {
            "device1/0": tuple(f"l{i}" for i in range(1, 8)),
            "device2/0": ("l8",),
            "device3/0": ("l11", "l12"),
            "device2/1": ("l9", "l10", "l13"),
            "device4/0": ("l14", "l15", "l16", "l17", "l18"),
            "device5/0": ("l19", "l20"),
            "device4/1": ("l21", "l22", "l23"),
        }

    def test_csdf_graph(self) -> None:
        graph = device_graph(convert(*paper_example()))
        assert sorted({*graph.actor} - {SOURCE, SINK}) == [f"device{i}" for i in range(1, 6)]
        channels = [c for c in graph.channels if not {c.source, c.target} & {SOURCE, SINK}]
        rates = {(c.source[-1] + c.target[-1]): (c.production, c.consumption) for c in channels}
        assert len(channels) == 7
        assert rates["12"] == ((187200,), (187200, 0))
        assert rates["22"] == ((187200, 0), (0, 187200))
        assert rates["23"] == ((187200, 0), (187200,))
        assert rates["32"] == ((22500,), (0, 22500))
        assert rates["24"] == ((0, 22500), (22500, 0))
        assert set(rates) == {"12", "22", "23", "32", "24", "45", "54"}

    def test_with_the_host_frames_come_in_and_results_go_out(self) -> None:
        graph = device_graph(convert(*paper_example()))
        ends = {(c.source, c.target) for c in graph.channels}
        assert len(graph.channels) == 9
        assert {(SOURCE, "device1"), ("device4", SINK)} < ends


@given(partitioned())
def test_every_partition_gives_an_acyclic_graph_of_all_phases(
    given: tuple[Network, dict[str, str]],
) -> None:
    dataflow = convert(*given)
    order = {name: i for i, name in enumerate([SOURCE, *dataflow.phase, SINK])}
    for flow in dataflow.flows:
        for target in flow.targets:
            assert order[flow.source] < order[target]


@given(partitioned())
def test_every_layer_is_in_one_phase_of_its_device(given: tuple[Network, dict[str, str]]) -> None:
    net, partition = given
    dataflow = convert(net, partition)
    found = [(layer, phase.device) for phase in dataflow.phases for layer in phase.layers]
    assert sorted(found) == sorted(partition.items())
    for phases in dataflow.devices.values():
        assert [phase.index for phase in phases] == list(range(len(phases)))
        assert [phase.name for phase in phases] == [f"{p.device}/{p.index}" for p in phases]


@given(partitioned())
def test_every_phase_gets_what_its_layers_read_and_gives_what_others_need(
    given: tuple[Network, dict[str, str]],
) -> None:
    net, partition = given
    dataflow = convert(net, partition)
    arriving = {(target, flow.tensor.name) for flow in dataflow.flows for target in flow.targets}
    leaving = {(flow.source, flow.tensor.name) for flow in dataflow.flows}
    expected_in, expected_out = set(), set()
    for phase in dataflow.phases:
        made = {t for name in phase.layers for t in net.layer[name].outputs}
        read = {t for name in phase.layers for t in net.layer[name].inputs} - made
        needed = {
            t
            for t in made
            if t in net.outputs or any(r not in phase.layers for r in net.consumers[t])
        }
        assert set(phase.inputs) == read
        assert set(phase.outputs) == needed
        expected_in |= {(phase.name, t) for t in read}
        expected_out |= {(phase.name, t) for t in needed}
    assert {pair for pair in arriving if pair[0] != SINK} == expected_in
    assert {pair[1] for pair in arriving if pair[0] == SINK} == set(net.outputs)
    assert {pair for pair in leaving if pair[0] != SOURCE} == expected_out


@given(partitioned())
def test_there_is_one_flow_for_each_tensor_and_target_device(
    given: tuple[Network, dict[str, str]],
) -> None:
    dataflow = convert(*given)
    names = [(flow.tensor.name, flow.target_device) for flow in dataflow.flows]
    assert len(set(names)) == len(names)
    device = {**{p.name: p.device for p in dataflow.phases}, SOURCE: HOST, SINK: HOST}
    for flow in dataflow.flows:
        assert device[flow.source] == flow.source_device
        assert {device[target] for target in flow.targets} == {flow.target_device}


@given(partitioned())
def test_the_same_partition_converts_the_same_way(given: tuple[Network, dict[str, str]]) -> None:
    net, partition = given
    assert convert(net, partition) == Converter(net)(dict(reversed(partition.items())))


@given(partitioned())
def test_hoisting_grows_no_buffer(given: tuple[Network, dict[str, str]]) -> None:
    """Bytes × periods waited, with levels as the schedule, never exceed the plain rule's."""
    net, partition = given
    hoisted, plain = _waiting(net, partition, hoist=True), _waiting(net, partition, hoist=False)
    assert hoisted <= plain


def _waiting(net: Network, partition: dict[str, str], *, hoist: bool) -> int:
    """Σ over flows of bytes × (1 + level of the source − lowest level of the targets)."""
    number = {layer.name: i for i, layer in enumerate(net.layers)}
    device = [sorted(set(partition.values())).index(partition[layer.name]) for layer in net.layers]
    made = [(t, -1) for t in net.inputs]
    made += [(t, number[layer.name]) for layer in net.layers for t in layer.outputs]
    edges = [
        Edge(p, tuple(number[r] for r in net.consumers[t]), net.tensors[t].bytes, t in net.outputs)
        for t, p in made
    ]
    level = levels(edges, device)
    if hoist:
        for members in group(edges, device):
            top = max(level[m] for m in members)
            for member in members:
                level[member] = top
    total = 0
    for edge in edges:
        if edge.producer < 0:
            continue
        own = device[edge.producer]
        for d in {device[r] for r in edge.readers}:
            lowest = min(level[r] for r in edge.readers if device[r] == d)
            inside = d == own and lowest == level[edge.producer]
            total += 0 if inside else edge.size_bytes * (1 + level[edge.producer] - lowest)
        if edge.is_output:
            total += edge.size_bytes * (2 + level[edge.producer])
    return total


def test_networks_side_by_side_have_phases_of_their_own() -> None:
    """Layers of one device and level would be one phase if a path led from one to the other."""
    net = network({"a": ["x"], "b": ["a"], "c": ["y"], "d": ["c"]}, inputs=["x", "y"])
    dataflow = convert(net, {"a": "d1", "b": "d2", "c": "d1", "d": "d2"})
    assert [phase.layers for phase in dataflow.phases] == [("a",), ("c",), ("b",), ("d",)]
    assert [phase.name for phase in dataflow.phases] == ["d1/0", "d1/1", "d2/0", "d2/1"]


class TestHoisting:
    """`a` feeds a long way over device 2 and a short one on device 1, to meet in `join`."""

    def dataflow(self, side: tuple[int, ...]) -> Dataflow:
        net = network(
            {"a": ["x"], "far": ["a"], "side": ["a"], "join": ["far", "side"]},
            {"a": (1, 8), "side": side},
        )
        return convert(net, {"a": "d1", "far": "d2", "side": "d1", "join": "d3"})

    def test_a_layer_that_shrinks_its_input_joins_the_phase_before(self) -> None:
        assert layers_of(self.dataflow((1, 8)))["d1/0"] == ("a", "side")

    def test_a_layer_that_grows_it_stays_late(self) -> None:
        assert layers_of(self.dataflow((1, 9))) == {
            "d1/0": ("a",),
            "d2/0": ("far",),
            "d1/1": ("side",),
            "d3/0": ("join",),
        }


class TestTheHostsPhases:
    def test_an_input_that_is_an_output_goes_straight_through(self) -> None:
        net = network({"a": ["x"]}, outputs=("x", "a"))
        flows = {f.name: (f.source, f.targets) for f in convert(net, {"a": "d"}).flows}
        assert flows == {
            "x → d": (SOURCE, ("d/0",)),
            f"x → {HOST}": (SOURCE, (SINK,)),
            f"a → {HOST}": ("d/0", (SINK,)),
        }

    def test_an_output_may_be_read_inside_its_phase_too(self) -> None:
        net = network({"a": ["x"], "b": ["a"]}, outputs=("a", "b"))
        (phase,) = convert(net, {"a": "d", "b": "d"}).phases
        assert (phase.inputs, phase.outputs) == (("x",), ("a", "b"))

    def test_several_phases_of_a_device_share_one_flow(self) -> None:
        net = network({"a": ["x"], "b": ["a"], "c": ["b", "x"]})
        dataflow = convert(net, {"a": "d", "b": "e", "c": "d"})
        flow = next(f for f in dataflow.flows if f.name == "x → d")
        assert flow.targets == ("d/0", "d/1")
        graph = device_graph(dataflow, capacity_frames={f.name: 2 for f in dataflow.flows})
        pair = [c for c in graph.channels if c.source == SOURCE]
        assert [(c.name, c.consumption, c.capacity) for c in pair] == [
            ("x → d (d/0)", (4, 0), 8),
            ("x → d (d/1)", (0, 4), 8),
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("partition", "sentence"),
        [
            ({}, "gives no device to layers 'a', 'b'"),
            ({"a": "d"}, "gives no device to layer 'b'"),
            ({"a": "d", "b": "d", "z": "d"}, "names layer 'z', which network 'example'"),
            ({"a": "d", "b": HOST}, "no device can be called '@host'"),
        ],
    )
    def test_a_partition_that_does_not_fit(self, partition: dict[str, str], sentence: str) -> None:
        with pytest.raises(ConversionError, match=sentence):
            convert(network({"a": ["x"], "b": ["a"]}), partition)

    def test_a_tensor_without_elements(self) -> None:
        with pytest.raises(ConversionError, match=r"tensor 'a' of shape \[0, 3\] has no elements"):
            convert(network({"a": ["x"]}, {"a": (0, 3)}), {"a": "d"})

    def test_a_phase_that_reads_nothing(self) -> None:
        net = network({"a": ["x"], "k": [], "b": ["a", "k"]})
        with pytest.raises(ConversionError, match="layer 'k' reads no tensor"):
            convert(net, {"a": "d", "k": "e", "b": "d"})
