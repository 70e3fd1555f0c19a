"""Operators that depend on the data form one layer, and divided networks compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from cnn.merge import merge
from cnn.network import TAIL
from cnn.rewrite.rewrites import Copies, Slices
from tests.cnn.models import FLOAT, INT64, constant, model, node, run, save, value, weight
from tests.cnn.tails import (
    Arrays,
    branch,
    detector,
    detector_frames,
    layer_by_layer,
    looping,
)


def read(proto: onnx.ModelProto, folder: Path) -> cnn.Model:
    return cnn.read(save(proto, folder))


def agree(built: cnn.Model, proto: onnx.ModelProto, frame: Arrays, folder: Path) -> None:
    """The layers, one by one, compute what the file does."""
    wanted = run(save(proto, folder, "whole.onnx"), dict(frame))
    found = layer_by_layer(built, frame, folder)
    for name, array in zip(built.network.outputs, wanted, strict=True):
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def operators(built: cnn.Model) -> list[str]:
    return [layer.operator for layer in built.network.layers]


def test_what_a_suppression_selects_is_a_tail_and_what_is_before_is_layers(tmp_path: Path) -> None:
    built = read(detector(), tmp_path)
    assert operators(built).count(TAIL) == 1
    tail = built.network.layers[-1]
    assert tail.operator == TAIL
    assert tail.inputs == ("rows", "s3")
    assert tail.outputs == ("chosen", "found")
    assert [built.network.tensors[name].varies for name in tail.outputs] == [True, True]
    assert {"stem", "boxes", "scores"} <= built.network.layer.keys()


def test_a_tensor_that_varies_is_reckoned_with_the_most_that_its_operators_make(
    tmp_path: Path,
) -> None:
    tensors = read(detector(), tmp_path).network.tensors
    assert tensors["chosen"].shape == (2 * 20, 3)
    assert tensors["found"].shape == (1, 2 * 20, 4)


@pytest.mark.parametrize("number", range(3))
def test_nothing_little_and_much_is_found_as_by_the_whole(tmp_path: Path, number: int) -> None:
    frame = detector_frames()[number]
    agree(read(detector(), tmp_path), detector(), frame, tmp_path)
    found = run(save(detector(), tmp_path), dict(frame))[0]
    assert (len(found) > 0) == (number > 0)


def of_operator(*nodes: onnx.NodeProto, made: str, kind: int = FLOAT) -> onnx.ModelProto:
    """`x` [1, 6] → Relu → what is given."""
    return model(
        [node("Relu", ["x"], ["y"], "relu"), *nodes],
        [value("x", (1, 6))],
        [value(made, None, kind)],
        [constant("none", 0.0, np.float32), constant("axis", [1])],
    )


ONE_OPERATOR = {
    "NonZero": of_operator(node("NonZero", ["y"], ["z"]), made="z", kind=INT64),
    "Unique": of_operator(node("Unique", ["y"], ["z"]), made="z"),
    "Compress": of_operator(
        node("Greater", ["y", "none"], ["b"]),
        node("Reshape", ["b", "axis6"], ["b1"]),
        node("Compress", ["y", "b1"], ["z"], axis=1),
        made="z",
    ),
    "If": of_operator(
        node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Greater", ["s", "none"], ["b"]),
        node(
            "If",
            ["b"],
            ["z"],
            then_branch=branch("p", "Identity", "y"),
            else_branch=branch("q", "Transpose", "y"),
        ),
        made="z",
    ),
    "a sequence": of_operator(
        node("SplitToSequence", ["y"], ["parts"], axis=1),
        node("ConcatFromSequence", ["parts"], ["z"], axis=0),
        made="z",
    ),
}
ONE_OPERATOR["Compress"].graph.initializer.append(constant("axis6", [6]))


@pytest.mark.parametrize("proto", ONE_OPERATOR.values(), ids=ONE_OPERATOR.keys())
def test_the_smallest_tails(tmp_path: Path, proto: onnx.ModelProto) -> None:
    built = read(proto, tmp_path)
    assert built.network.layers[-1].operator == TAIL
    assert [built.network.tensors[name].varies for name in built.network.outputs] == [True]
    for frame in (np.zeros((1, 6)), np.arange(6)[None] - 2.5, -np.ones((1, 6))):
        agree(built, proto, {"x": frame.astype(np.float32)}, tmp_path)


def test_a_branch_whose_shapes_are_static_is_a_layer_like_any_other(tmp_path: Path) -> None:
    proto = of_operator(
        node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Greater", ["s", "none"], ["b"]),
        node(
            "If",
            ["b"],
            ["z"],
            "either",
            then_branch=branch("p", "Neg", "y"),
            else_branch=branch("q", "Exp", "y"),
        ),
        made="z",
    )
    built = read(proto, tmp_path)
    assert operators(built) == ["Relu", "ReduceSum", "Greater", "If"]
    assert set(built.network.layer["either"].inputs) == {"b", "y"}
    for sign in (0, 1):
        agree(built, proto, {"x": np.full((1, 6), sign, np.float32)}, tmp_path)


def test_a_loop_reads_tensors_and_weights_of_the_graph_around_it(tmp_path: Path) -> None:
    built = read(looping(), tmp_path)
    (tail,) = (layer for layer in built.network.layers if layer.operator == TAIL)
    assert set(tail.inputs) == {"n", "y"}
    assert tail.weights == ("half",)
    assert "all" in tail.outputs
    for turns in (0, 1, 5):
        agree(built, looping(), {"x": np.full((1, 4), turns, np.float32)}, tmp_path)


def head_and_body() -> onnx.ModelProto:
    """The brightest pixels are counted, and convolutions of the image scaled by that."""
    nodes = [
        node("NonZero", ["x"], ["bright"], "bright"),
        node("Shape", ["bright"], ["shape"], "shape"),
        node("Gather", ["shape", "one"], ["count"], "count"),
        node("Cast", ["count"], ["scale"], "scale", to=FLOAT),
        node("Mul", ["x", "scale"], ["scaled"], "scaled"),
        node("Conv", ["scaled", "w"], ["y"], "conv"),
    ]
    weights = [weight("w", 4, 3, 3, 3), constant("one", 1)]
    return model(nodes, [value("x", (1, 3, 8, 8))], [value("y")], weights)


def test_a_head_takes_no_more_than_what_has_no_static_shape(tmp_path: Path) -> None:
    built = read(head_and_body(), tmp_path)
    assert operators(built) == [TAIL, "Gather", "Cast", "Mul", "Conv"]
    assert not any(tensor.varies for tensor in built.network.tensors.values())
    agree(built, head_and_body(), {"x": np.ones((1, 3, 8, 8), np.float32)}, tmp_path)


def test_an_operator_between_two_that_depend_on_the_data_belongs_to_the_tail(
    tmp_path: Path,
) -> None:
    proto = of_operator(
        node("NonZero", ["y"], ["places"], "places"),
        node("Cast", ["places"], ["numbers"], to=FLOAT),
        node("ReduceSum", ["numbers"], ["sum"], "sum", keepdims=0),
        node("Neg", ["sum"], ["less"], "between"),
        node("Add", ["less", "y"], ["shifted"], "between too"),
        node("NonZero", ["shifted"], ["z"], "last"),
        made="z",
        kind=INT64,
    )
    built = read(proto, tmp_path)
    assert operators(built) == ["Relu", TAIL]
    agree(built, proto, {"x": np.arange(6, dtype=np.float32)[None]}, tmp_path)


def test_copies_of_a_network_have_tails_of_their_own(tmp_path: Path) -> None:
    for number, proto in enumerate((detector(), looping())):
        whole = read(proto, tmp_path)
        network = whole.network
        copied = whole.rewritten([Copies((1, 1))])
        assert operators(copied).count(TAIL) == 2
        frames = [
            {"x": np.full(network.tensors["x"].shape, size, np.float32)} for size in (1.0, 3.0)
        ]
        feed = {name: frame["x"] for name, frame in zip(copied.network.inputs, frames, strict=True)}
        subnet = copied.cut(
            copied.network.layer, copied.network.inputs, copied.network.outputs, tmp_path
        )
        together = run(subnet.graph, feed)
        path = save(proto, tmp_path, f"whole{number}.onnx")
        alone = [array for frame in frames for array in run(path, dict(frame))]
        for found, wanted in zip(together, alone, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_tail_reads_what_is_computed_in_slices(tmp_path: Path) -> None:
    whole = read(detector(), tmp_path)
    channels = whole.slice_channels()
    assert TAIL.lower() not in channels
    assert TAIL.lower() not in whole.band_layers()
    sliced = whole.rewritten([Slices("boxes", (1, 3)), Slices("scores", (1, 1))])
    for frame in detector_frames():
        agree(sliced, detector(), frame, tmp_path)


def test_a_body_reads_what_is_computed_in_slices(tmp_path: Path) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["y"], "conv"),
        node("ReduceMax", ["x"], ["m"], "max", keepdims=0),
        node("Greater", ["m", "none"], ["b"], "is bright"),
        node("If", ["b"], ["z"], "either", then_branch=branch("p", "Neg", "y"),
             else_branch=branch("q", "Exp", "y")),
    ]  # fmt: skip
    weights = [weight("w", 4, 3, 3, 3), constant("none", 0.0, np.float32)]
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("z")], weights)
    sliced = read(proto, tmp_path).rewritten([Slices("conv", (1, 3))])
    for bright in (-1.0, 1.0):
        agree(sliced, proto, {"x": np.full((1, 3, 8, 8), bright, np.float32)}, tmp_path)


def test_a_network_with_a_tail_is_merged_with_others(tmp_path: Path) -> None:
    protos = {"a": detector(), "b": looping()}
    built = {
        name: cnn.read(save(proto, tmp_path, f"{name}.onnx")) for name, proto in protos.items()
    }
    merged = merge(list(built.values()))
    frames = {"a": detector_frames()[2], "b": {"x": np.full((1, 4), 2.0, np.float32)}}
    fed = {f"{name}/{x}": array for name, frame in frames.items() for x, array in frame.items()}
    found = layer_by_layer(merged, fed, tmp_path)
    for name, proto in protos.items():
        wanted = run(save(proto, tmp_path), dict(frames[name]))
        for output, array in zip(built[name].network.outputs, wanted, strict=True):
            np.testing.assert_allclose(found[f"{name}/{output}"], array, rtol=1e-5, atol=1e-6)


def test_a_result_that_is_not_a_tensor_is_refused(tmp_path: Path) -> None:
    proto = of_operator(node("SplitToSequence", ["y"], ["z"], "split", axis=1), made="z")
    proto.graph.output[0].type.Clear()
    with pytest.raises(cnn.ModelError, match=r"output 'z' is of the type sequence"):
        read(proto, tmp_path)


def test_random_numbers_in_a_body_are_refused(tmp_path: Path) -> None:
    proto = of_operator(
        node("ReduceSum", ["y"], ["s"], keepdims=0),
        node("Greater", ["s", "none"], ["b"]),
        node("If", ["b"], ["z"], then_branch=branch("p", "RandomNormalLike", "y"),
             else_branch=branch("q", "Neg", "y")),
        made="z",
    )  # fmt: skip
    with pytest.raises(cnn.ModelError, match=r"\(RandomNormalLike\) draws random"):
        read(proto, tmp_path)


@st.composite
def open_networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Sums, and counts of what is positive: each reads some of what is there, [1, 6] all of it."""
    nodes = []
    made = ["x"]
    for number in range(draw(st.integers(1, 9))):
        one, other = (draw(st.sampled_from(made)) for _ in range(2))
        name = f"t{number}"
        match draw(st.sampled_from(["sum", "count", "branch"])):
            case "sum":
                nodes.append(node("Add", [one, other], [name], name))
            case "count":
                nodes += [
                    node("Relu", [one], [f"{name}r"], f"{name} positive"),
                    node("NonZero", [f"{name}r"], [f"{name}i"], f"{name} places"),
                    node("Cast", [f"{name}i"], [f"{name}f"], f"{name} numbers", to=FLOAT),
                    node("ReduceSum", [f"{name}f"], [f"{name}s"], f"{name} all"),
                    node("Sub", [other, f"{name}s"], [name], name),
                ]
            case "branch":
                nodes += [
                    node("ReduceMax", [one], [f"{name}m"], f"{name} max", keepdims=0),
                    node("Greater", [f"{name}m", "limit"], [f"{name}b"], f"{name} if"),
                    node("If", [f"{name}b"], [name], name,
                         then_branch=branch(f"{name}p", "Neg", other),
                         else_branch=branch(f"{name}q", "Abs", one)),
                ]  # fmt: skip
        made.append(name)
    outputs = [value(name) for name in made[1:] if draw(st.booleans()) or name == made[-1]]
    return model(nodes, [value("x", (1, 6))], outputs, [constant("limit", 3.0, np.float32)])


@settings(max_examples=60)
@given(proto=open_networks(), seed=st.integers(0, 99))
def test_any_network_is_convex_and_its_layers_compute_the_same(
    tmp_path_factory: pytest.TempPathFactory, proto: onnx.ModelProto, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("network")
    built = read(proto, folder)
    network = built.network
    assert operators(built).count(TAIL) <= 1
    position = {layer.name: index for index, layer in enumerate(network.layers)}
    assert all(position[source] < position[target] for source, target, _ in network.edges)
    assert not any(network.tensors[x].varies for layer in network.layers for x in layer.inputs)
    frame = {"x": np.random.default_rng(seed).normal(0, 2, (1, 6)).astype(np.float32)}
    agree(built, proto, frame, folder)


def test_a_tensor_without_elements_is_a_constant(tmp_path: Path) -> None:
    """Detectors slice the coefficients of masks off where there are none."""
    nodes = [
        node("Conv", ["x", "w"], ["y"], "conv"),
        node("Slice", ["y", "four", "nine", "one"], ["none"], "no masks"),
        node("Concat", ["y", "none"], ["z"], "all", axis=1),
    ]
    weights = [weight("w", 4, 3, 3, 3), constant("four", [4]), constant("nine", [9]),
               constant("one", [1])]  # fmt: skip
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("z")], weights)
    built = read(proto, tmp_path)
    assert operators(built) == ["Conv", "Concat"]
    agree(built, proto, {"x": np.ones((1, 3, 8, 8), np.float32)}, tmp_path)
