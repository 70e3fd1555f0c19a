"""Copies of a network stand side by side and share their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from cnn.rewrite.rewrites import Copies, Slices, copy_name
from tests.agreement.comparison import LIMIT, random_frame, relative_error
from tests.cnn.models import convolution, node, run, save
from tests.networks import save as save_drawn
from tests.networks import small_models
from tests.rewriting import slicings


@given(
    proto=small_models(max_steps=6),
    count=st.integers(1, 3),
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=10)
def test_each_copy_computes_from_its_own_inputs_what_the_network_computes(
    proto: onnx.ModelProto, count: int, data: st.DataObject, seed: int, tmp_path: Path
) -> None:
    model = cnn.read(save_drawn(proto, tmp_path))
    sliced = model.rewritten(data.draw(slicings(model, most=3)))
    copied = sliced.rewritten([Copies((1,) * count)])
    # Copies may be sliced in turn, each in its own way.
    rewritten = copied.rewritten(data.draw(slicings(copied, most=3)))
    frame = random_frame(rewritten.network, seed)
    found = run_whole(rewritten, frame, tmp_path)
    for number in range(1, count + 1):
        name = {x: x if count == 1 else copy_name(x, number) for x in model.network.tensors}
        given = {x: frame[name[x]] for x in model.network.inputs}
        expected = run_whole(model, given, tmp_path)
        for output in model.network.outputs:
            assert relative_error(found[name[output]], expected[output]) <= LIMIT


def run_whole(
    model: cnn.Model, frame: dict[str, np.ndarray], directory: Path
) -> dict[str, np.ndarray]:
    network = model.network
    subnet = model.cut(list(network.layer), network.inputs, network.outputs, directory)
    return dict(zip(network.outputs, run(subnet.graph, frame), strict=True))


@pytest.fixture
def model(tmp_path: Path) -> cnn.Model:
    return cnn.read(save(convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"], "r")), tmp_path))


def test_names_tell_the_copies_apart(model: cnn.Model) -> None:
    network = model.rewritten([Copies((1, 1))]).network
    assert list(network.layer) == ["c@1", "r@1", "c@2", "r@2"]
    assert network.inputs == ("x@1", "x@2")
    assert network.outputs == ("z@1", "z@2")
    assert {layer.part_of for layer in network.layers} == {"c", "r"}


def test_weights_are_the_same_file_for_every_copy(model: cnn.Model, tmp_path: Path) -> None:
    copied = model.rewritten([Copies((1, 1))])
    assert copied.network.weights == model.network.weights
    large = cnn.read("onnx-wheel:squeezenet").rewritten([Copies((1, 1))])
    network = large.network
    half = len(network.layers) // 2
    cuts = [
        large.cut([x.name for x in layers], [source], [output], tmp_path)
        for layers, source, output in zip(
            (network.layers[:half], network.layers[half:]),
            network.inputs,
            network.outputs,
            strict=True,
        )
    ]
    assert cuts[0].weights == cuts[1].weights
    assert cuts[0].weights is not None


def test_one_copy_is_the_network_itself(model: cnn.Model) -> None:
    assert model.rewritten([Copies((1,))]).network == model.network


def test_a_copy_can_be_sliced_alone(model: cnn.Model) -> None:
    network = model.rewritten([Copies((1, 1)), Slices("c@2", (1, 3))]).network
    assert list(network.layer) == ["c@1", "r@1", "c@2[1/2]", "c@2[2/2]", "r@2"]
