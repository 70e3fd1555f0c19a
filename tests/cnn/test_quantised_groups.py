"""Quantised networks are cut between 8-bit tensors only, and every cut computes the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cnn
from cnn.merge import merge
from cnn.rewrite.rewrites import Bands, Copies, Slices
from tests.agreement.comparison import agreements, random_partition
from tests.cnn.models import constant, model, node, run, save, value, weight
from tests.cnn.quantised_stacks import quantised_stack
from tests.cnn.test_any_rewrites import random_rewrite
from tests.cnn.test_bands import outputs
from tests.effort import examples

SHAPE = (1, 4, 8, 8)
CONSTANTS = [
    constant("s", 2.0**-4, np.float32),
    constant("z", 0, np.uint8),
    constant("ks", 2.0**-5, np.float32),
    constant("kz", 0, np.int8),
    constant("k", np.random.default_rng(0).integers(-15, 16, (4, 4, 3, 3)), np.int8),
    constant("low", 0, np.float32),
    constant("high", 6, np.float32),
]


def quantised(name: str) -> onnx.NodeProto:
    """`name` in 8 bits, called `name.q`."""
    return node("QuantizeLinear", [name, "s", "z"], [f"{name}.q"], f"{name}.quantise")


def floats(name: str, called: str = "") -> onnx.NodeProto:
    """`name.q` as floats, called `name.f` if nothing else."""
    made = called or f"{name}.f"
    return node("DequantizeLinear", [f"{name}.q", "s", "z"], [made], f"{made}.floats")


def in_8_bits(name: str) -> list[onnx.NodeProto]:
    return [quantised(name), floats(name)]


def kernel(name: str = "kf") -> onnx.NodeProto:
    return node("DequantizeLinear", ["k", "ks", "kz"], [name], f"{name}.floats")


def convolution(source: str, made: str, name: str) -> onnx.NodeProto:
    return node("Conv", [source, "kf"], [made], name, pads=[1, 1, 1, 1])


def read(
    nodes: Sequence[onnx.NodeProto], made: Sequence[str], folder: Path, opset: int = 13
) -> cnn.Model:
    outs = [value(name) for name in made]
    for out in outs:
        out.type.tensor_type.elem_type = 2 if out.name.endswith(".q") else 1
    folder.mkdir(exist_ok=True)
    proto = model(nodes, [value("x", SHAPE)], outs, CONSTANTS, opset)
    return cnn.read(save(proto, folder))


def frame(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> dict[str, np.ndarray]:
    values = np.random.default_rng(seed).integers(-200, 200, shape) / 16
    return {"x": values.astype(np.float32)}


def layers(built: cnn.Model) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """What each layer reads and makes."""
    return {layer.name: (layer.inputs, layer.outputs) for layer in built.network.layers}


def agrees(built: cnn.Model, folder: Path) -> None:
    """What its layers compute is what the file computes, to the last bit."""
    expected = run(folder / "model.onnx", frame())
    for found, wanted in zip(outputs(built, frame(), folder), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_operator_is_one_layer_with_what_dequantises_and_quantises_around_it(
    tmp_path: Path,
) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        node("Relu", ["c"], ["r"], "relu"),
        node("Clip", ["r", "low", "high"], ["l"], "clip"),
        *in_8_bits("l"),
        node("MaxPool", ["l.f"], ["p"], "pool", kernel_shape=[2, 2]),
        quantised("p"),
        floats("p", "y"),
    ]
    built = read(nodes, ["y"], tmp_path)
    assert layers(built) == {
        "x.quantise": (("x",), ("x.q",)),
        "conv": (("x.q",), ("l.q",)),
        "pool": (("l.q",), ("p.q",)),
        "y.floats": (("p.q",), ("y",)),
    }
    assert {built.network.tensors[name].dtype for name in ("x.q", "l.q", "p.q")} == {"uint8"}
    assert set(built.network.layer["conv"].weights) == {"k", "ks", "kz", "s", "z", "low", "high"}
    assert built.network.layer["conv"].macs == 4 * 8 * 8 * 4 * 9
    agrees(built, tmp_path)


def test_the_engine_fuses_a_group_on_its_own_as_it_does_in_the_whole(tmp_path: Path) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        node("Relu", ["c"], ["r"], "relu"),
        *in_8_bits("r"),
        node("Add", ["r.f", "x.f"], ["a"], "add"),
        quantised("a"),
    ]
    built = read(nodes, ["a.q"], tmp_path)
    for layer, operator in (("conv", "QLinearConv"), ("add", "QLinearAdd")):
        part = built.network.layer[layer]
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / layer)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        subnet = built.cut([layer], part.inputs, part.outputs, tmp_path).graph
        ort.InferenceSession(str(subnet), options, providers=["CPUExecutionProvider"])
        operators = [x.op_type for x in onnx.load(tmp_path / layer).graph.node]
        assert operators == [operator]


def test_each_reader_dequantises_for_itself_and_a_subnet_does_it_once(tmp_path: Path) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "a", "one"),
        node("Relu", ["x.f"], ["b"], "two"),
        *(quantised("a"), quantised("b")),
    ]
    built = read(nodes, ["a.q", "b.q"], tmp_path)
    assert layers(built)["one"] == (("x.q",), ("a.q",))
    assert layers(built)["two"] == (("x.q",), ("b.q",))
    subnet = built.cut(["one", "two"], ["x.q"], ["a.q", "b.q"], tmp_path)
    names = [x.name for x in onnx.load(subnet.graph).graph.node]
    assert names.count("x.f.floats") == 1
    agrees(built, tmp_path)


def test_residual_sums_and_concatenations_read_8_bits_from_both_sides(tmp_path: Path) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        *in_8_bits("c"),
        node("Add", ["c.f", "x.f"], ["a"], "add"),
        *in_8_bits("a"),
        node("Concat", ["a.f", "c.f", "x.f"], ["j"], "join", axis=1),
        quantised("j"),
    ]
    built = read(nodes, ["j.q"], tmp_path)
    assert layers(built)["add"] == (("c.q", "x.q"), ("a.q",))
    assert layers(built)["join"] == (("a.q", "c.q", "x.q"), ("j.q",))
    agrees(built, tmp_path)


def test_a_tensor_that_is_wanted_in_floats_too_stays_one_between_layers(tmp_path: Path) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        *in_8_bits("c"),
        node("Sigmoid", ["c"], ["g"], "gate"),
        node("Mul", ["g", "c.f"], ["y"], "mul"),
    ]
    built = read(nodes, ["y"], tmp_path)
    assert layers(built) == {
        "x.quantise": (("x",), ("x.q",)),
        "conv": (("x.q",), ("c",)),
        "c.quantise": (("c",), ("c.q",)),
        "gate": (("c",), ("g",)),
        "mul": (("g", "c.q"), ("y",)),
    }
    agrees(built, tmp_path)


@pytest.mark.parametrize("wanted", ["c", "c.q", "c.f"])
def test_what_the_network_gives_out_is_made_by_a_layer(tmp_path: Path, wanted: str) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        *in_8_bits("c"),
        node("Relu", ["c.f"], ["y"], "relu"),
    ]
    built = read(nodes, ["y", wanted], tmp_path)
    assert wanted in {name for _, made in layers(built).values() for name in made}
    agrees(built, tmp_path)


def test_quantisation_by_a_scale_per_channel_stays_a_layer(tmp_path: Path) -> None:
    scales = [constant("cs", [0.5, 0.25, 1, 2], np.float32), constant("cz", [0] * 4, np.uint8)]
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        node("QuantizeLinear", ["r", "cs", "cz"], ["q"], "quantise"),
        node("DequantizeLinear", ["q", "cs", "cz"], ["f"], "floats"),
        node("Relu", ["f"], ["y"], "last"),
    ]
    proto = model(nodes, [value("x", SHAPE)], [value("y")], scales, 13)
    built = cnn.read(save(proto, tmp_path))
    assert list(built.network.layer) == ["relu", "quantise", "floats", "last"]
    agrees(built, tmp_path)


def test_both_halves_of_a_split_are_quantised_in_its_layer(tmp_path: Path) -> None:
    nodes = [
        *in_8_bits("x"),
        node("Split", ["x.f"], ["a", "b"], "split", axis=1),
        *in_8_bits("a"),
        *in_8_bits("b"),
        node("Add", ["a.f", "b.f"], ["y"], "add"),
    ]
    built = read(nodes, ["y"], tmp_path)
    assert layers(built)["split"] == (("x.q",), ("a.q", "b.q"))
    agrees(built, tmp_path)


def group(folder: Path, opset: int = 13) -> cnn.Model:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        node("Relu", ["c"], ["r"], "relu"),
        *in_8_bits("r"),
        node("Add", ["r.f", "x.f"], ["a"], "add"),
        quantised("a"),
        floats("a", "y"),
    ]
    return read(nodes, ["y"], folder, opset)


def test_slices_take_their_part_of_what_is_dequantised_and_send_8_bits(tmp_path: Path) -> None:
    built = group(tmp_path).rewritten([Slices("conv", (1, 3)), Slices("add", (1, 3))])
    assert layers(built)["conv[2/2]"] == (("x.q",), ("r.q[2/2]",))
    assert layers(built)["add[2/2]"] == (("r.q[2/2]", "x.q"), ("a.q[2/2]",))
    agrees(built, tmp_path)


def test_bands_send_rows_of_8_bits(tmp_path: Path) -> None:
    built = group(tmp_path).rewritten([Bands(("conv", "add"), (3, 5))])
    assert layers(built)["x.q[rows 0:4]"] == (("x.q",), ("x.q[rows 0:4]",))
    assert layers(built)["add[1/2]"][1] == ("a.q[1/2]",)
    assert {x.dtype for name, x in built.network.tensors.items() if ".q" in name} == {"uint8"}
    agrees(built, tmp_path)


def test_copies_have_groups_of_their_own(tmp_path: Path) -> None:
    built = group(tmp_path).rewritten([Slices("conv", (2, 2)), Copies((1, 1))])
    both = {f"x@{number}": frame(number)["x"] for number in (1, 2)}
    found = outputs(built, both, tmp_path)
    for number, made in enumerate(found, start=1):
        expected = run(tmp_path / "model.onnx", frame(number))[0]
        np.testing.assert_array_equal(made, expected)


def test_networks_of_two_operator_sets_are_merged_with_their_groups(tmp_path: Path) -> None:
    old, new = group(tmp_path / "old"), group(tmp_path / "new", opset=19)
    both = merge([old.with_name("a"), new.with_name("b")])
    assert both.network.layer["a/conv"].outputs == ("a/r.q",)
    feed = {"a/x": frame(1)["x"], "b/x": frame(2)["x"]}
    found = outputs(both, feed, tmp_path)
    for number, (name, made) in enumerate(zip(("old", "new"), found, strict=True), start=1):
        expected = run(tmp_path / name / "model.onnx", frame(number))[0]
        np.testing.assert_array_equal(made, expected)


def test_a_kernel_that_is_quantised_from_floats_goes_with_its_layer_in_slices(
    tmp_path: Path,
) -> None:
    nodes = [
        *in_8_bits("x"),
        node("QuantizeLinear", ["w", "ks", "kz"], ["wq"], "w.quantise"),
        node("DequantizeLinear", ["wq", "ks", "kz"], ["wf"], "w.floats"),
        node("Conv", ["x.f", "wf"], ["c"], "conv"),
        quantised("c"),
    ]
    made = value("c.q")
    made.type.tensor_type.elem_type = 2
    weights = [*CONSTANTS, weight("w", 4, 4, 1, 1)]
    built = cnn.read(save(model(nodes, [value("x", SHAPE)], [made], weights, 13), tmp_path))
    sliced = built.rewritten([Slices("conv", (3, 1))])
    assert sliced.network.weight_bytes(("conv[2/2]",)) < built.network.weight_bytes(("conv",))
    agrees(sliced, tmp_path)


@examples(20)
@given(seed=st.integers(0, 2**32 - 1), rewrites=st.integers(0, 6))
def test_random_quantised_networks_agree_to_the_last_bit(
    seed: int, rewrites: int, tmp_path: Path
) -> None:
    """A random quantised network computes the same as a whole, in one piece of layers, after
    rewrites, and spread over devices; and only its float islands send floats."""
    path = save(quantised_stack(seed), tmp_path)
    built = whole = cnn.read(path)
    fed = frame(seed, (1, 3, 8, 8))
    expected = run(path, fed)
    dice = random.Random(seed)
    for _ in range(rewrites):
        rewrite = random_rewrite(built, dice)
        if rewrite is not None:
            built = built.rewritten([rewrite])
    for number, each in enumerate((whole, built)):
        for found, wanted in zip(outputs(each, fed, tmp_path / str(number)), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    partition = random_partition(built.network, 3, seed)
    assert agreements(built, [partition], fed)[0].outputs == 0


def test_between_the_layers_of_a_fully_quantised_network_there_are_8_bits_only(
    tmp_path: Path,
) -> None:
    network = cnn.read(save(quantised_stack(1, steps=12), tmp_path)).network
    ends = {*network.inputs, *network.outputs}
    between = [x for x in network.tensors.values() if x.name not in ends]
    floats_between = [x.name for x in between if x.dtype not in ("uint8", "int8")]
    read_by = dict(itertools.chain((name, network.consumers[name]) for name in floats_between))
    assert len(between) > 8
    assert all(len(readers) > 1 for readers in read_by.values())


def test_a_tail_dequantises_what_it_reads_and_what_it_makes_may_be_quantised_after_it(
    tmp_path: Path,
) -> None:
    nodes = [
        *in_8_bits("x"),
        kernel(),
        convolution("x.f", "c", "conv"),
        *in_8_bits("c"),
        node("NonZero", ["c.f"], ["places"], "places"),
        node("Cast", ["places"], ["n"], "numbers", to=1),
        node("ReduceMax", ["n"], ["m"], "largest", keepdims=0),
        *in_8_bits("m"),
        node("Relu", ["m.f"], ["y"], "relu"),
    ]
    built = read(nodes, ["y"], tmp_path)
    tail = next(layer for layer in built.network.layers if layer.operator == "Tail")
    assert tail.inputs == ("c.q",)
    assert tail.outputs == ("m",)
    assert layers(built)["conv"] == (("x.q",), ("c.q",))
    assert layers(built)["relu"] == (("m.q",), ("y",))
    agrees(built, tmp_path)
