"""State that a phase keeps is a channel to itself with one frame of initial tokens."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.network import Network, Tensor
from csdf.conversion.dataflow_graphs import device_graph, phase_graph
from csdf.conversion.from_network import Dataflow, convert
from csdf.conversion.proof import prove
from csdf.conversion.skew import retime
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import repetition_vector
from csdf.timing.throughput import throughput
from tests.csdf.networks import network, partitioned


def keeping(net: Network, name: str) -> Network:
    """`net`, whose layer `name` reads in a frame what it made in the frame before."""
    made = net.layer[name].outputs[0]
    before = f"{made} before"
    tensors = {**net.tensors, before: replace(net.tensors[made], name=before)}
    layers = tuple(
        replace(layer, state=((before, made),)) if layer.name == name else layer
        for layer in net.layers
    )
    outputs = tuple(dict.fromkeys((*net.outputs, made)))
    return replace(net, layers=layers, tensors=tensors, outputs=outputs)


@pytest.fixture
def recurrent() -> Dataflow:
    """a → b → c on two devices, of which b keeps state."""
    net = keeping(network({"a": ["x"], "b": ["a"], "c": ["b"]}), "b")
    return convert(net, {"a": "one", "b": "two", "c": "one"})


def test_state_is_not_a_flow(recurrent: Dataflow) -> None:
    assert recurrent.phase["two/0"].state == (("b before", "b"),)
    assert {flow.tensor.name for flow in recurrent.flows} == {"x", "a", "b", "c"}


def test_it_is_a_channel_from_a_phase_to_itself_with_one_frame_at_first(
    recurrent: Dataflow,
) -> None:
    for graph, actor in (
        (phase_graph(recurrent), "two/0"),
        (device_graph(recurrent), "two"),
        (device_graph(recurrent, skew=retime(recurrent).skew), "two"),
    ):
        channel = graph.channel["b before (two/0)"]
        assert (channel.source, channel.target) == (actor, actor)
        assert channel.production == channel.consumption == (4,)
        assert (channel.initial_tokens, channel.capacity, channel.token_bytes) == (4, 8, 4)


def test_of_a_device_only_the_phase_that_keeps_it_touches_it() -> None:
    net = keeping(network({"a": ["x"], "b": ["a"], "c": ["b"]}), "c")
    graph = device_graph(convert(net, {"a": "one", "b": "two", "c": "one"}))
    channel = graph.channel["c before (one/1)"]
    assert channel.production == channel.consumption == (0, 4)


@given(partitioned(), st.data())
def test_any_network_with_state_is_proved(
    given_: tuple[Network, dict[str, str]], data: st.DataObject
) -> None:
    net, partition = given_
    names = [layer.name for layer in net.layers]
    for name in data.draw(st.sets(st.sampled_from(names), min_size=1)):
        net = keeping(net, name)
    dataflow = convert(net, partition)
    proof = prove(dataflow, retime(dataflow))
    assert proof.phases == len(dataflow.phases)


def test_without_its_initial_frame_nothing_fires(recurrent: Dataflow) -> None:
    graph = phase_graph(recurrent)
    assert check_liveness(graph) is None
    channels = [
        replace(channel, initial_tokens=0) if channel.source == channel.target else channel
        for channel in graph.channels
    ]
    assert check_liveness(replace(graph, channels=tuple(channels))) is not None


def test_the_period_is_no_shorter_than_the_phase_that_waits_for_itself(
    recurrent: Dataflow,
) -> None:
    """Even where firings of the phase might overlap."""
    times = {"one/0": Fraction(1), "two/0": Fraction(5), "one/1": Fraction(2)}
    graph = phase_graph(recurrent, times=times)
    overlapping = replace(
        graph, actors=tuple(replace(actor, concurrency=None) for actor in graph.actors)
    )
    assert repetition_vector(overlapping)["two/0"] == 1
    assert throughput(overlapping).period == 5


def test_the_bound_on_bytes_holds_what_is_read_and_what_is_made(recurrent: Dataflow) -> None:
    pipeline = retime(recurrent)
    flows = sum(pipeline.capacity_frames[flow.name] * flow.tensor.bytes for flow in recurrent.flows)
    assert prove(recurrent, pipeline).bytes_bound == flows + 2 * 16


def test_state_must_be_made_by_the_layer_that_reads_it() -> None:
    net = network({"a": ["x"], "b": ["a"]})
    tensors = {**net.tensors, "h": Tensor("h", (1, 4), "float32")}
    layers = (net.layers[0], replace(net.layers[1], state=(("h", "a"),)))
    with pytest.raises(ValueError, match="cannot keep 'a' as 'h'"):
        replace(net, layers=layers, tensors=tensors)
