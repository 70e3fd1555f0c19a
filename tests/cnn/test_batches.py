"""Networks in batches: every frame of a batch has the result that it has alone."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, shape_inference

import cnn
from cnn.errors import ModelError
from tests.agreement.comparison import (
    LIMIT,
    NETWORKS,
    random_frame,
    relative_error,
    run,
    short_name,
)
from tests.agreement.drawn.network import draw
from tests.cnn.image_stacks import image_stacks
from tests.cnn.models import constant, model, save, value, weight
from tests.networks import small_models
from tests.rewriting import random_rewrite

KNOWN = ("squeezenet", "shufflenet", "inception_v1", "resnet50", "MobileNetV2.onnx")


def read(proto: onnx.ModelProto, directory: Path) -> cnn.Model:
    return cnn.read(save(proto, directory))


def stacked(frames: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}


def whole(of: cnn.Model, frame: dict[str, np.ndarray], directory: Path) -> Any:
    network = of.network
    cut = of.cut(network.layer, network.inputs, network.outputs, directory)
    return run(cut.graph, frame, network.outputs)


def check(one: cnn.Model, frames: int, directory: Path) -> cnn.Model:
    """Compare a batch of different frames with each of them alone; return the model in batches."""
    many = one.in_batches(frames)
    given = [random_frame(one.network, seed) for seed in range(frames)]
    found = whole(many, stacked(given), directory)
    for number, frame in enumerate(given):
        for name, wanted in whole(one, frame, directory).items():
            assert found[name].shape == many.network.tensors[name].shape
            own = found[name][number : number + 1]
            assert relative_error(own, wanted) <= LIMIT
    return many


@given(proto=small_models(), frames=st.integers(2, 5))
@settings(max_examples=60)
def test_a_batch_of_any_small_network_has_the_results_of_its_frames(
    proto: onnx.ModelProto, frames: int, tmp_path: Path
) -> None:
    check(read(proto, tmp_path), frames, tmp_path)


@given(proto=image_stacks(max_steps=4), seed=st.integers(0, 2**32 - 1), frames=st.integers(2, 4))
@settings(max_examples=20)
def test_batches_are_rewritten_as_frames_are(
    proto: onnx.ModelProto, seed: int, frames: int, tmp_path: Path
) -> None:
    one = read(proto, tmp_path)
    many, dice = one.in_batches(frames), random.Random(seed)
    rewritten = many
    for _ in range(2):
        rewrite = random_rewrite(rewritten, dice)
        if rewrite is not None:
            rewritten = rewritten.rewritten([rewrite])
    assert rewritten.network.batch == frames
    given = stacked([random_frame(one.network, number) for number in range(frames)])
    expected = whole(many, given, tmp_path)
    found = whole(rewritten, given, tmp_path)
    assert all(relative_error(found[name], expected[name]) <= LIMIT for name in expected)


def of_seeds(seeds: range) -> Counter[str]:
    """What became of networks of exporters' idioms; wrong results and damaged files fail."""
    found: Counter[str] = Counter()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            one = read(draw(seed).model, directory)
            try:
                one.in_batches(3)
            except ModelError as error:
                found["refused" if "several frames at once" in str(error) else "fails"] += 1
            else:
                check(one, 3, directory)
                found["agree"] += 1
    return found


def test_networks_of_exporters_idioms_agree_or_are_refused_by_name() -> None:
    found = of_seeds(range(40))
    assert found["agree"] > found["refused"] > 0
    assert not found["fails"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in NETWORKS if short_name(path) in KNOWN],
    ids=short_name,
)
def test_known_networks(path: str, tmp_path: Path) -> None:
    one = cnn.read(path)
    many = check(one, 3, tmp_path)
    assert many.network.weight_bytes(set(many.network.layer)) == pytest.approx(
        one.network.weight_bytes(set(one.network.layer)), rel=1e-3
    )
    assert sum(layer.macs for layer in many.network.layers) == 3 * sum(
        layer.macs for layer in one.network.layers
    )


def test_shapes_are_those_that_onnx_infers() -> None:
    many = cnn.read("examples/digits/digits.onnx").in_batches(4)
    with tempfile.TemporaryDirectory() as name:
        network = many.network
        cut = many.cut(network.layer, network.inputs, network.outputs, Path(name))
        proto = shape_inference.infer_shapes(onnx.load(cut.graph), strict_mode=True)
    inferred = {
        x.name: tuple(dim.dim_value for dim in x.type.tensor_type.shape.dim)
        for x in proto.graph.value_info
    }
    assert inferred
    for tensor, shape in inferred.items():
        assert network.tensors[tensor].shape == shape


def test_the_digest_tells_batches_apart_and_one_frame_is_the_model_itself() -> None:
    one = cnn.read("examples/digits/digits.onnx")
    assert one.in_batches(1) is one
    assert len({one.digest, one.in_batches(2).digest, one.in_batches(3).digest}) == 3


# ---------------------------------------------------------------- operator by operator

ACCEPTED: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], tuple[int, ...]]] = {
    "a reshape to a constant shape": (
        [helper.make_node("Reshape", ["x", "s"], ["y"], "r")],
        [constant("s", [1, 6, 4])],
        (1, 2, 3, 4),
    ),
    "a class token from a constant": (
        [helper.make_node("Concat", ["t", "x"], ["y"], "c", axis=1)],
        [weight("t", 1, 1, 4)],
        (1, 3, 4),
    ),
    "a constant grid": (
        [helper.make_node("GridSample", ["x", "t"], ["y"], "g")],
        [weight("t", 1, 2, 2, 2)],
        (1, 2, 4, 4),
    ),
    "sizes of a resize": (
        [helper.make_node("Resize", ["x", "", "", "s"], ["y"], "r", mode="nearest")],
        [constant("s", [1, 2, 8, 8])],
        (1, 2, 4, 4),
    ),
    "an expansion": (
        [helper.make_node("Expand", ["x", "s"], ["y"], "e")],
        [constant("s", [1, 5, 4])],
        (1, 1, 4),
    ),
    "a sum over all but the frames": (
        [helper.make_node("ReduceSum", ["x", "s"], ["y"], "m", keepdims=0)],
        [constant("s", [1, 2])],
        (1, 3, 4),
    ),
    "a product from the left": (
        [helper.make_node("MatMul", ["t", "x"], ["y"], "p")],
        [weight("t", 5, 3)],
        (1, 3, 4),
    ),
    "an equation": (
        [helper.make_node("Einsum", ["x", "t"], ["y"], "q", equation="bij,jk->bik")],
        [weight("t", 4, 5)],
        (1, 3, 4),
    ),
}

REFUSED: dict[str, tuple[list[onnx.NodeProto], list[onnx.TensorProto], tuple[int, ...]]] = {
    "works along": ([helper.make_node("ReduceMean", ["x"], ["y"], "n")], [], (1, 3, 4)),
    "is not the frame's": (
        [helper.make_node("Transpose", ["x"], ["y"], "n", perm=[1, 0, 2])],
        [],
        (1, 3, 4),
    ),
    "sums over": (
        [helper.make_node("MatMul", ["t", "x"], ["y"], "n")],
        [weight("t", 1, 1)],
        (1, 4),
    ),
    "takes a fixed number": (
        [helper.make_node("Slice", ["x", "s", "e"], ["y"], "n")],
        [constant("s", [0, 1]), constant("e", [1, 3])],
        (1, 4),
    ),
    "is not known": (
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["h", "s", "z"], "n"),
            helper.make_node("DequantizeLinear", ["h", "s", "z"], ["y"]),
        ],
        [],
        (1, 4),
    ),
}
"""Why an operator is refused, and one for which that holds."""


@pytest.mark.parametrize("what", ACCEPTED)
def test_an_operator_that_treats_each_frame_by_itself(what: str, tmp_path: Path) -> None:
    nodes, constants, shape = ACCEPTED[what]
    proto = model(nodes, [value("x", shape)], [value("y")], constants)
    one = read(proto, tmp_path)
    assert check(one, 3, tmp_path).network.tensors["y"].shape[0] == 3


@pytest.mark.parametrize("why", REFUSED)
def test_an_operator_that_does_not_is_refused_by_its_layers_name(why: str, tmp_path: Path) -> None:
    nodes, constants, shape = REFUSED[why]
    one = read(model(nodes, [value("x", shape)], [value("y")], constants), tmp_path)
    with pytest.raises(ModelError, match=f"layer 'n' .*several frames at once: .*{why}"):
        one.in_batches(2)


def test_an_input_without_the_axis_of_the_frames_is_refused(tmp_path: Path) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"], "n")], [value("x", (3, 4))], [value("y")])
    with pytest.raises(ModelError, match="input 'x', which has the shape \\[3, 4\\]"):
        read(proto, tmp_path).in_batches(2)
