"""Frames dealt out to copies: the pattern is fair, the graph cyclo-static, live and never waits."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from csdf.conversion.dataflow_graphs import phase_graph
from csdf.conversion.from_network import (
    SINK,
    SOURCE,
    Dataflow,
    balanced_pattern,
    convert,
    longest_wait,
)
from csdf.conversion.proof import prove
from csdf.conversion.skew import retime
from csdf.errors import ConversionError
from csdf.model.consistency import repetition_vector
from csdf.timing.throughput import throughput

counts = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def copied(layers_of_copy: list[int]) -> tuple[Network, dict[str, str]]:
    """Chains side by side; layer j of copy i is on its own device."""
    layers, tensors, partition = [], {}, {}
    inputs = tuple(f"x@{i}" for i in range(len(layers_of_copy)))
    outputs = []
    for i, count in enumerate(layers_of_copy):
        read = inputs[i]
        for j in range(count):
            made = f"t{j}@{i}"
            layers.append(Layer(f"l{j}@{i}", "Relu", (read,), (made,)))
            partition[f"l{j}@{i}"] = f"d{i}.{j}"
            read = made
        outputs.append(read)
    names = [*inputs, *(layer.outputs[0] for layer in layers)]
    tensors = {name: Tensor(name, (1, 3), "float32") for name in names}
    return Network("copies", tuple(layers), tensors, {}, inputs, tuple(outputs)), partition


def dealt(frames: list[int], layers_of_copy: list[int]) -> Dataflow:
    network, partition = copied(layers_of_copy)
    return convert(network, partition, balanced_pattern(frames))


def test_every_frame_of_three_goes_in_turn() -> None:
    assert balanced_pattern([2, 1]) == (0, 1, 0)
    assert balanced_pattern([1, 1, 1]) == (0, 1, 2)


@given(counts)
def test_every_copy_gets_its_frames_and_no_copy_runs_far_ahead(frames: list[int]) -> None:
    pattern = balanced_pattern(frames)
    assert [pattern.count(copy) for copy in range(len(frames))] == frames
    for place in range(len(pattern)):
        for copy, count in enumerate(frames):
            share = Fraction(count * (place + 1), len(pattern))
            assert abs(pattern[: place + 1].count(copy) - share) < len(frames)


def test_the_longest_wait_counts_round_the_cycle() -> None:
    assert longest_wait((0, 0, 1), 0) == 2
    assert longest_wait((0, 1, 0, 0, 1, 0), 0) == 2
    assert longest_wait((0, 0, 1), 1) == 1
    assert longest_wait((0,), 0) == 1


@given(st.data(), counts)
def test_dealt_copies_are_consistent_and_proved(data: st.DataObject, frames: list[int]) -> None:
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=len(frames), max_size=len(frames)))
    dataflow = dealt(frames, lengths)
    assert repetition_vector(phase_graph(dataflow)) == {
        SOURCE: 1,
        SINK: 1,
        **{phase.name: frames[dataflow.copy_of[phase.inputs[0]]] for phase in dataflow.phases},
    }
    prove(dataflow, retime(dataflow))


@given(st.data(), counts)
def test_the_cycle_takes_as_long_as_the_busiest_device(
    data: st.DataObject, frames: list[int]
) -> None:
    """Copies that are dealt frames in proportion to their speed never wait for each other."""
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=len(frames), max_size=len(frames)))
    dataflow = dealt(frames, lengths)
    most = max(frames)
    slower = st.integers(1, 20)
    times = {
        phase.name: Fraction(data.draw(slower), 20)
        * Fraction(most, frames[dataflow.copy_of[phase.inputs[0]]])
        for phase in dataflow.phases
    }
    capacities = retime(dataflow).capacity_frames
    graph = phase_graph(dataflow, times=times, capacity_frames=capacities)
    busiest = max(times[phase.name] * dataflow.firings[phase.name] for phase in dataflow.phases)
    assert throughput(graph).period == busiest


def test_a_device_belongs_to_one_copy() -> None:
    network, partition = copied([2, 2])
    partition["l1@0"] = partition["l0@1"]
    with pytest.raises(ConversionError, match="2 copies"):
        convert(network, partition, (0, 1))


def test_every_copy_gets_a_frame() -> None:
    network, partition = copied([1, 1, 1])
    with pytest.raises(ConversionError, match="no frame"):
        convert(network, partition, (0, 2))


@given(counts)
def test_a_wrong_number_of_copies_is_refused(frames: list[int]) -> None:
    assume(len(frames) > 1)
    network, partition = copied([1])
    with pytest.raises(ConversionError, match="copies"):
        convert(network, partition, balanced_pattern(frames))
