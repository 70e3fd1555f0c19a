"""Weightless files get weights: from the seed, He-normal, and such that outputs mean something."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from cnn.network import Array
from cnn.reading.fill import MissingWeight, Role, draw, fill
from cnn.reading.inputs import keep_true_inputs
from cnn.reading.source import locate
from cnn.reading.weights import detach
from tests.cnn.models import constant, convolution, model, node, run, save, value, weight

FLOAT32 = MissingWeight((64, 32), np.dtype(np.float32))
NORMAL = Role(mean=0.0, sigma=1.0)


def filled(proto: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    proto, weights = detach(proto, {}, "test")
    keep_true_inputs(proto, weights)
    assert fill(proto, weights, seed)
    return weights


def missing(**shapes: tuple[int, ...]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    nodes = [node("ConstantOfShape", [f"{name}.shape"], [name]) for name in shapes]
    return nodes, [constant(f"{name}.shape", shape) for name, shape in shapes.items()]


def weightless(
    *nodes: onnx.NodeProto, shape: tuple[int, ...] = (1, 16, 8, 8), **shapes: tuple[int, ...]
) -> onnx.ModelProto:
    """A model from `x` to `y` whose named weights are left out."""
    first, weights = missing(**shapes)
    return model([*first, *nodes], [value("x", shape)], [value("y")], weights)


def test_values_depend_on_seed_and_name_alone() -> None:
    once = draw(0, "kernel", FLOAT32, NORMAL)
    assert np.array_equal(once, draw(0, "kernel", FLOAT32, NORMAL))
    assert not np.array_equal(once, draw(1, "kernel", FLOAT32, NORMAL))
    assert not np.array_equal(once, draw(0, "other", FLOAT32, NORMAL))


def test_values_do_not_depend_on_the_order_of_weights() -> None:
    nodes = [
        node("Conv", ["x", "a"], ["m"]),
        node("Relu", ["m"], ["r"]),
        node("Conv", ["r", "b"], ["y"]),
    ]
    shapes = {"a": (32, 16, 1, 1), "b": (32, 32, 1, 1)}
    one = filled(weightless(*nodes, **shapes))
    two = filled(weightless(*nodes, **dict(reversed(shapes.items()))))
    assert one.keys() == two.keys() == shapes.keys()
    assert all(np.array_equal(one[name], two[name]) for name in shapes)


def test_a_model_with_weights_keeps_them(tmp_path: Path) -> None:
    assert cnn.read(save(convolution(), tmp_path)).filled_seed is None
    assert cnn.read("onnx-wheel:squeezenet", seed=7).filled_seed == 7


def test_zeros_of_a_shape_are_no_missing_weight_where_kernels_are_there(tmp_path: Path) -> None:
    first, shapes = missing(zeros=(1, 4, 8, 8))
    nodes = [
        *first,
        node("Conv", ["x", "w"], ["m"], pads=[1, 1, 1, 1]),
        node("Max", ["m", "zeros"], ["y"]),
    ]
    proto = model(
        nodes, [value("x", (1, 3, 8, 8))], [value("y")], [*shapes, weight("w", 4, 3, 3, 3)]
    )
    assert cnn.read(save(proto, tmp_path)).filled_seed is None


@pytest.mark.parametrize(
    ("operator", "shape", "kernel", "attributes", "fan_in"),
    [
        ("Conv", (1, 16, 8, 8), (256, 16, 3, 3), {}, 144),
        ("Conv", (1, 64, 8, 8), (256, 16, 3, 3), {"group": 4}, 144),
        ("ConvTranspose", (1, 64, 8, 8), (64, 64, 4, 4), {"strides": [2, 2]}, 64 * 4),
        ("Gemm", (1, 200), (200, 100), {}, 200),
        ("Gemm", (1, 200), (100, 200), {"transB": 1}, 200),
        ("MatMul", (1, 200), (200, 100), {}, 200),
    ],
)
def test_kernels_are_he_normal(operator, shape, kernel, attributes, fan_in) -> None:
    proto = weightless(
        node(operator, ["x", "w"], ["m"], **attributes),
        node("Relu", ["m"], ["y"]),
        shape=shape,
        w=kernel,
    )
    values = filled(proto)["w"]
    assert values.shape == kernel
    assert values.std() == pytest.approx(math.sqrt(2 / fan_in), rel=0.03)
    assert values.mean() == pytest.approx(0, abs=3 * float(values.std()) / math.sqrt(values.size))


def test_a_kernel_that_is_read_transposed_has_its_readers_fan_in() -> None:
    proto = weightless(
        node("Transpose", ["w"], ["t"], perm=[3, 2, 0, 1]),
        node("Conv", ["x", "t"], ["m"]),
        node("Relu", ["m"], ["y"]),
        w=(3, 3, 16, 256),
    )
    assert filled(proto)["w"].std() == pytest.approx(math.sqrt(2 / 144), rel=0.03)


def test_without_a_rectifier_after_it_a_kernel_has_half_the_variance() -> None:
    proto = weightless(node("Conv", ["x", "w"], ["y"]), w=(256, 16, 3, 3))
    assert filled(proto)["w"].std() == pytest.approx(math.sqrt(1 / 144), rel=0.03)


def test_norms_are_fresh_and_biases_are_zero() -> None:
    names = ("scale", "shift", "mean", "variance")
    proto = weightless(
        node("Conv", ["x", "w", "b"], ["m"]),
        node("BatchNormalization", ["m", *names], ["y"]),
        w=(32, 16, 1, 1),
        b=(32,),
        **dict.fromkeys(names, (32,)),
    )
    weights = filled(proto)
    assert [float(weights[name][0]) for name in ("b", *names)] == [0, 1, 0, 0, 1]
    assert all(np.ptp(weights[name]) == 0 for name in ("b", *names))


def test_elementwise_factors_and_shifts_survive_simplification(tmp_path: Path) -> None:
    proto = weightless(
        node("Conv", ["x", "w"], ["m"]),
        node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2]),
        node("Mul", ["p", "f"], ["q"]),
        node("Add", ["q", "s"], ["y"]),
        w=(32, 16, 1, 1),
        f=(32, 1, 1),
        s=(32, 1, 1),
    )
    layers = cnn.read(save(proto, tmp_path)).network.layers
    assert [layer.operator for layer in layers] == ["Conv", "MaxPool", "Mul", "Add"]


def test_what_was_fitted_to_missing_kernels_is_replaced_too() -> None:
    proto = weightless(
        node("Conv", ["x", "w", "b"], ["m"]), node("Add", ["m", "s"], ["y"]), w=(32, 16, 1, 1)
    )
    proto.graph.initializer.extend([weight("b", 32), constant("s", 5.0, np.float32)])
    weights = filled(proto)
    assert not weights["b"].any()
    assert weights["s"] == 5.0  # a single number is the model's own arithmetic


def residual(blocks: int) -> onnx.ModelProto:
    """Blocks x + Conv(Relu(x))."""
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for index in range(blocks):
        nodes += [
            node("Relu", [last], [f"r{index}"]),
            node("Conv", [f"r{index}", f"w{index}"], [f"c{index}"]),
            node("Add", [last, f"c{index}"], ["y" if index == blocks - 1 else f"a{index}"]),
        ]
        last = f"a{index}"
    return weightless(*nodes, **{f"w{index}": (16, 16, 1, 1) for index in range(blocks)})


@pytest.mark.parametrize("blocks", [1, 10, 100])
def test_residual_additions_do_not_add_up(tmp_path: Path, blocks: int) -> None:
    built = cnn.read(save(residual(blocks), tmp_path))
    frame = np.random.default_rng(0).standard_normal((1, 16, 8, 8)).astype(np.float32)
    (found,) = run(built.write_original(tmp_path), {"x": frame})
    assert 0.5 < found.std() < 5


def test_where_all_summands_have_kernels_they_share_the_variance() -> None:
    proto = weightless(
        node("Conv", ["x", "a"], ["p"]),
        node("Conv", ["x", "b"], ["q"]),
        node("Add", ["p", "q"], ["s"]),
        node("Relu", ["s"], ["y"]),
        a=(256, 16, 3, 3),
        b=(256, 16, 3, 3),
    )
    weights = filled(proto)
    for name in ("a", "b"):
        assert weights[name].std() == pytest.approx(math.sqrt(1 / 144), rel=0.03)


def test_nothing_of_the_missing_weights_shapes_is_left() -> None:
    proto, weights, _ = locate("onnx-wheel:squeezenet").load()
    keep_true_inputs(proto, weights)
    assert fill(proto, weights, 0)
    assert "ConstantOfShape" not in {x.op_type for x in proto.graph.node}
    assert not [name for name in weights if name.endswith("__SHAPE")]
