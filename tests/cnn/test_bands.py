"""Layers computed in bands of rows compute what they compute as a whole."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import cnn
from cnn.operators.receptive_field import Rows
from cnn.rewrite.rewrites import Bands, Slices, part_name
from tests.agreement import comparison
from tests.agreement.comparison import (
    KERAS,
    agreements,
    random_frame,
    random_partition,
    relative_error,
)
from tests.cnn.image_stacks import image_stacks
from tests.cnn.models import constant, model, node, run, save, value, weight
from tests.effort import examples
from tests.rewriting import random_rows

EXACT = 1e-5


def outputs(built: cnn.Model, frame: dict[str, np.ndarray], directory: Path) -> list[np.ndarray]:
    """What the model's layers compute, all in one subnet."""
    network = built.network
    subnet = built.cut(network.layer, network.inputs, network.outputs, directory)
    return run(subnet.graph, frame)


def run_layers(
    built: cnn.Model,
    layers: Sequence[str],
    frame: dict[str, np.ndarray],
    made: list[str],
    directory: Path,
) -> Mapping[str, np.ndarray]:
    """What some layers that read the network's input make of it."""
    subnet = built.cut(layers, built.network.inputs, made, directory)
    return comparison.run(subnet.graph, frame, made)


def passages(network: cnn.Network) -> list[int]:
    """Positions between layers that only one tensor crosses, and the two ends."""
    found = []
    for position in range(len(network.layers) + 1):
        before = {x for layer in network.layers[:position] for x in layer.outputs}
        before |= set(network.inputs)
        after = {x for layer in network.layers[position:] for x in layer.inputs}
        if len(before & (after | set(network.outputs))) == 1:
            found.append(position)
    return found


@examples(25)
@given(proto=image_stacks(max_steps=20), bands=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
def test_any_layers_in_any_bands(
    proto: onnx.ModelProto, bands: int, seed: int, tmp_path: Path
) -> None:
    """Some stretch of the network in some bands."""
    whole = cnn.read(save(proto, tmp_path))
    first, last = sorted(random.Random(seed).sample(passages(whole.network), 2))
    layers = whole.network.layers[first:last]
    height = whole.network.tensors[layers[-1].outputs[0]].shape[2]
    assume(height > 1)
    rewrite = Bands(tuple(layer.name for layer in layers), random_rows(height, bands, seed))
    banded = whole.rewritten([rewrite])
    frame = random_frame(whole.network, seed)
    expected = outputs(whole, frame, tmp_path / "whole")
    found = outputs(banded, frame, tmp_path / "banded")
    assert relative_error(found[0], expected[0]) <= EXACT
    partition = random_partition(banded.network, 3, seed)
    assert agreements(banded, [partition], frame)[0].outputs <= EXACT
    extra = sum(x.macs for x in banded.network.layers) - sum(x.macs for x in whole.network.layers)
    assert extra == whole.fused(rewrite.layers).bands(rewrite.rows).halo_macs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "last", "rows"),
    [
        ("builtin:yolov2", "pool4", (5, 12, 9)),
        (str(KERAS / "VGG16.onnx"), "node_max_pool2d_2", (14, 14)),
        ("onnx-wheel:resnet50", "n89", (6, 8)),
        ("onnx-wheel:inception_v1", "n66", (4, 6, 3)),
    ],
)
def test_the_first_layers_of_real_networks(
    path: str, last: str, rows: tuple[int, ...], tmp_path: Path
) -> None:
    whole = cnn.read(path)
    names = list(whole.network.layer)
    first = tuple(names[: names.index(last) + 1])
    banded = whole.rewritten([Bands(first, rows)])
    made = whole.network.layer[last].outputs[0]
    parts = [part_name(made, number, len(rows)) for number in range(1, len(rows) + 1)]
    tiled = [x.name for x in banded.network.layers if x.part_of in first]
    frame = random_frame(whole.network, seed=0)
    expected = run_layers(whole, first, frame, [made], tmp_path)
    found = run_layers(banded, tiled, frame, parts, tmp_path)
    joined = np.concatenate([found[part] for part in parts], axis=2)
    assert relative_error(joined, expected[made]) <= EXACT


def read(
    directory: Path,
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int] = (1, 4, 12, 6),
    weights: Sequence[onnx.TensorProto] = (),
    outputs: Sequence[str] = (),
) -> cnn.Model:
    """A model that reads `x`; the last node's output is its own unless `outputs` are named."""
    made = [value(name) for name in outputs or nodes[-1].output]
    return cnn.read(save(model(nodes, [value("x", shape)], made, weights), directory))


def agree(whole: cnn.Model, rewrites: Sequence[Bands | Slices], directory: Path) -> cnn.Model:
    """The rewritten model, after a check that it computes what the whole one does."""
    rewritten = whole.rewritten(rewrites)
    frame = random_frame(whole.network, seed=0)
    expected = outputs(whole, frame, directory / "whole")
    for one, other in zip(outputs(rewritten, frame, directory / "bands"), expected, strict=True):
        assert relative_error(one, other) <= EXACT
    partition = random_partition(rewritten.network, 3, seed=0)
    assert agreements(rewritten, [partition], frame)[0].outputs <= EXACT
    return rewritten


def convolution(source: str, made: str, kernel: str = "k") -> onnx.NodeProto:
    """Three by three, padded, so that it makes as many rows as it reads."""
    return node("Conv", [source, kernel], [made], f"conv_{made}", pads=[1] * 4)


KERNEL = weight("k", 4, 4, 3, 3)


@pytest.fixture
def pair(tmp_path: Path) -> cnn.Model:
    """x → conv_a → conv_b → relu, twelve rows of four channels each."""
    nodes = [convolution("x", "a"), convolution("a", "b"), node("Relu", ["b"], ["y"], "relu")]
    return read(tmp_path, nodes, weights=[KERNEL])


def test_each_layer_becomes_one_per_band_with_the_layers_weights(
    pair: cnn.Model, tmp_path: Path
) -> None:
    banded = agree(pair, [Bands(("conv_a", "conv_b"), (6, 6))], tmp_path)
    network = banded.network
    for name in ("conv_a", "conv_b"):
        parts = [layer for layer in network.layers if layer.part_of == name and layer.macs]
        assert [layer.name for layer in parts] == [f"{name}[1/2]", f"{name}[2/2]"]
        assert {layer.weights for layer in parts} == {("k",)}
    assert network.weights == pair.network.weights
    assert network.layer["relu"].inputs == ("b[1/2]", "b[2/2]")


def test_the_halo_grows_from_the_last_layer_to_the_first(pair: cnn.Model) -> None:
    fused = pair.fused(("conv_a", "conv_b"))
    assert (fused.output, fused.height) == ("b", 12)
    upper, lower = fused.bands((4, 8)).bands
    assert upper.layers["conv_a"].made == Rows(0, 5)
    assert upper.received == {"x": Rows(0, 6)}
    assert lower.layers["conv_a"].made == Rows(3, 12)
    assert lower.received == {"x": Rows(2, 12)}


def test_rows_that_two_bands_make_count_as_work_of_both(pair: cnn.Model, tmp_path: Path) -> None:
    row_macs = 6 * 4 * 4 * 9
    bands = pair.fused(("conv_a", "conv_b")).bands((4, 8))
    assert bands.macs == (5 + 9 + 4 + 8) * row_macs
    assert bands.halo_macs == 2 * row_macs
    assert bands.halo_share == pytest.approx(2 / 24)
    banded = pair.rewritten([Bands(("conv_a", "conv_b"), (4, 8))])
    assert sum(layer.macs for layer in banded.network.layers) == bands.macs


def test_bands_of_a_single_layer_cost_no_arithmetic(pair: cnn.Model) -> None:
    assert pair.fused(("conv_a",)).bands((3, 3, 3, 3)).halo_macs == 0


def test_only_the_rows_that_a_band_needs_are_cut_out_for_it(pair: cnn.Model) -> None:
    network = pair.rewritten([Bands(("conv_a", "conv_b"), (4, 8))]).network
    cuts = network.layers[:2]
    assert [layer.name for layer in cuts] == ["x[rows 0:6]", "x[rows 2:12]"]
    assert {(layer.operator, layer.macs, layer.part_of) for layer in cuts} == {
        ("Slice", 0, "conv_a")
    }
    assert network.tensors["x[rows 0:6]"].shape == (1, 4, 6, 6)
    assert network.layer["conv_a[1/2]"].inputs == ("x[rows 0:6]",)


def test_a_band_that_needs_all_rows_reads_the_tensor_itself(pair: cnn.Model) -> None:
    network = pair.rewritten([Bands(("conv_a", "conv_b"), (11, 1))]).network
    assert network.layer["conv_a[1/2]"].inputs == ("x",)


def test_bands_of_bands_exchange_rows_with_their_neighbours(
    pair: cnn.Model, tmp_path: Path
) -> None:
    """Layer by layer nothing is computed twice; what is cut out at the edges travels instead."""
    rows = (4, 4, 4)
    banded = agree(pair, [Bands(("conv_a",), rows), Bands(("conv_b",), rows)], tmp_path)
    assert banded.network.layer["conv_b[2/3]"].inputs == (
        "a[1/3][rows 3:4]",
        "a[2/3]",
        "a[3/3][rows 0:1]",
    )
    assert sum(x.macs for x in banded.network.layers) == sum(x.macs for x in pair.network.layers)


def test_bands_that_are_declared_from_the_end_compute_the_same(
    pair: cnn.Model, tmp_path: Path
) -> None:
    agree(pair, [Bands(("conv_b", "relu"), (5, 7)), Bands(("conv_a",), (2, 10))], tmp_path)


def test_a_tensor_that_leaves_the_network_is_joined_by_a_layer(
    pair: cnn.Model, tmp_path: Path
) -> None:
    network = agree(pair, [Bands(("conv_b", "relu"), (6, 6))], tmp_path).network
    last = network.layers[-1]
    assert (last.operator, last.inputs, last.outputs) == ("Concat", ("y[1/2]", "y[2/2]"), ("y",))


def test_bands_that_make_too_much_are_cut_where_layers_have_no_names_too(tmp_path: Path) -> None:
    """A layer without a name is called like its tensor."""
    whole = read(
        tmp_path,
        [node("Relu", ["x"], ["r"]), node("Resize", ["r", "", "f"], ["y"], mode="nearest")],
        (1, 1, 4, 2),
        [constant("f", [1, 1, 3, 1], np.float32)],
    )
    frame = random_frame(whole.network, seed=0)
    banded = whole.rewritten([Bands(("y",), (4, 8))])
    expected, found = (outputs(x, frame, tmp_path / "cut")[0] for x in (whole, banded))
    np.testing.assert_array_equal(found, expected)


def test_one_band_is_the_layers_as_they_are(pair: cnn.Model) -> None:
    assert pair.rewritten([Bands(("conv_a", "conv_b"), (12,))]).network == pair.network


def test_slices_and_bands_of_neighbours(pair: cnn.Model, tmp_path: Path) -> None:
    slices, bands = Slices("conv_a", (1, 3)), Bands(("conv_b", "relu"), (7, 5))
    agree(pair, [slices, bands], tmp_path / "slices first")
    agree(pair, [bands, slices], tmp_path / "bands first")
    agree(pair, [Slices("conv_b", (2, 2)), Bands(("conv_a",), (7, 5))], tmp_path / "swapped")


def test_bands_over_layers_that_were_sliced(pair: cnn.Model, tmp_path: Path) -> None:
    parts = ("conv_a[1/2]", "conv_a[2/2]", "conv_b")
    agree(pair, [Slices("conv_a", (1, 3)), Bands(parts, (7, 5))], tmp_path)


def test_slices_of_a_layer_in_bands(pair: cnn.Model, tmp_path: Path) -> None:
    bands = Bands(("conv_a", "conv_b"), (7, 5))
    agree(pair, [bands, Slices("conv_a[2/2]", (1, 3))], tmp_path)


def test_a_shortcut_is_cut_to_the_rows_of_its_branch(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        convolution("r", "a"),
        convolution("a", "b"),
        node("Add", ["b", "r"], ["y"], "add"),
    ]
    whole = read(tmp_path, nodes, weights=[KERNEL])
    banded = agree(whole, [Bands(("relu", "conv_a", "conv_b", "add"), (3, 5, 4))], tmp_path)
    assert banded.network.tensors["r[2/3]"].shape[2] == 9
    assert banded.network.layer["add[2/3]"].inputs == ("b[2/3]", "r[2/3]")
    assert sum(layer.operator == "Slice" for layer in banded.network.layers) == 3


def test_inputs_from_several_places_are_cut_where_they_are_made(tmp_path: Path) -> None:
    nodes = [
        convolution("x", "a"),
        node("Relu", ["x"], ["r"], "relu"),
        node("Add", ["a", "r"], ["y"], "add"),
    ]
    whole = read(tmp_path, nodes, weights=[KERNEL])
    network = agree(whole, [Bands(("add",), (3, 9))], tmp_path).network
    names = [layer.name for layer in network.layers]
    assert names[1:3] == ["a[rows 0:3]", "a[rows 3:12]"]
    assert names[4:6] == ["r[rows 0:3]", "r[rows 3:12]"]


@pytest.mark.parametrize("rows", [(1, 5), (2, 4), (3, 3), (5, 1)])
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("MaxPool", {"pads": [1, 0, 1, 0]}),
        ("AveragePool", {"pads": [1, 0, 1, 0], "count_include_pad": 0}),
        ("AveragePool", {"pads": [1, 0, 1, 0], "count_include_pad": 1}),
        ("MaxPool", {"ceil_mode": 1}),
        ("AveragePool", {"ceil_mode": 1}),
        ("AveragePool", {"ceil_mode": 1, "pads": [0, 0, 1, 0], "count_include_pad": 1}),
        ("MaxPool", {"auto_pad": "SAME_UPPER"}),
        ("AveragePool", {"auto_pad": "SAME_LOWER"}),
    ],
)
def test_poolings_are_the_same_to_the_bit_at_every_border(
    operator: str, attributes: dict[str, object], rows: tuple[int, ...], tmp_path: Path
) -> None:
    """All values are below zero, so that a maximum would show padding by zero."""
    nodes = [
        node("Add", ["x", "shift"], ["n"], "shift"),
        node(operator, ["n"], ["y"], "pool", kernel_shape=[3, 1], strides=[2, 1], **attributes),
    ]
    height = 11 if "auto_pad" in attributes or "pads" in attributes else 12
    if attributes.get("ceil_mode") and "pads" in attributes:
        height = 12
    whole = read(tmp_path, nodes, (1, 1, height, 2), [constant("shift", -9.0, np.float32)])
    assert whole.network.tensors["y"].shape[2] == 6
    frame = random_frame(whole.network, seed=0)
    banded = whole.rewritten([Bands(("shift", "pool"), rows)])
    expected, found = (outputs(x, frame, tmp_path / "cut")[0] for x in (whole, banded))
    np.testing.assert_array_equal(found, expected)


def test_the_layers_that_can_be_computed_in_bands(tmp_path: Path) -> None:
    nodes = [
        convolution("x", "a"),
        node("Softmax", ["a"], ["s"], "over_channels", axis=1),
        node("Softmax", ["s"], ["t"], "over_rows", axis=2),
        node("GlobalAveragePool", ["t"], ["g"], "average"),
        node("Flatten", ["g"], ["y"], "flatten"),
    ]
    whole = read(tmp_path, nodes, weights=[KERNEL])
    assert whole.band_layers() == ("conv_a", "over_channels")


@pytest.mark.parametrize(
    ("layers", "rows", "sentence"),
    [
        (("conv_a", "conv_b"), (6, 7), "has 12 rows, and its bands have 6 . 7 = 13"),
        (("conv_a",), (12, 0), "each needs at least one"),
        (("conv_a", "nobody"), (12,), "has no layer 'nobody'"),
        (("conv_a", "conv_a"), (12,), "each layer once"),
        ((), (12,), "bands need layers"),
        (("conv_a", "relu"), (6, 6), "make 2 tensors that others need .'a', 'y'"),
        (("conv_b", "flatten"), (6, 6), "'flatten' .Flatten. cannot .*: its output has no rows"),
        (("average",), (1,), "'average' .GlobalAveragePool. cannot .* needs all rows"),
        (("over_rows",), (6, 6), "'over_rows' .Softmax. cannot .*: it works along the rows"),
        (("turned",), (6, 6), "'turned' .Transpose. cannot .*: how its output rows"),
    ],
)
def test_bands_that_cannot_be(
    layers: tuple[str, ...], rows: tuple[int, ...], sentence: str, tmp_path: Path
) -> None:
    nodes = [
        convolution("x", "a"),
        convolution("a", "b"),
        node("Relu", ["b"], ["y"], "relu"),
        node("Flatten", ["y"], ["f"], "flatten"),
        node("GlobalAveragePool", ["y"], ["g"], "average"),
        node("Softmax", ["y"], ["s"], "over_rows", axis=2),
        node("Transpose", ["y"], ["u"], "turned", perm=[0, 1, 3, 2]),
    ]
    whole = read(tmp_path, nodes, weights=[KERNEL], outputs=["f", "g", "s", "u"])
    with pytest.raises(cnn.ModelError, match=sentence):
        whole.rewritten([Bands(layers, rows)])
