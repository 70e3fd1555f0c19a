"""Open axes: the batch becomes 1, the user settles the rest."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

import cnn
from tests.cnn.models import constant, convolution, model, node, save, value


def shape_of(path: Path, name: str = "x", **arguments) -> tuple[int, ...]:
    return cnn.read(path, **arguments).network.tensors[name].shape


@pytest.mark.parametrize("batch", ["n", 0, None])
def test_an_open_batch_becomes_one(tmp_path: Path, batch: str | int | None) -> None:
    path = save(convolution((batch, 3, 8, 8)), tmp_path)
    assert shape_of(path) == (1, 3, 8, 8)
    assert shape_of(path, "y") == (1, 4, 8, 8)


def test_the_user_may_ask_for_another_batch(tmp_path: Path) -> None:
    path = save(convolution(("n", 3, 8, 8)), tmp_path)
    assert shape_of(path, "y", input_shapes=(2, 3, 8, 8)) == (2, 4, 8, 8)


@pytest.mark.parametrize("given", [(1, 3, 10, 12), {"x": (1, 3, 10, 12)}])
def test_other_axes_come_from_the_user(tmp_path: Path, given) -> None:
    path = save(convolution(("n", 3, "h", "w")), tmp_path)
    assert shape_of(path, "y", input_shapes=given) == (1, 4, 10, 12)


def test_the_size_of_an_image_comes_from_metadata_unless_the_user_writes_one(
    tmp_path: Path,
) -> None:
    """`imgsz`, as ultralytics writes it when it exports with dynamic axes."""
    for shape, text, found in (
        (("n", 3, "h", "w"), "[384, 640]", (1, 3, 384, 640)),
        (("n", 3, "h", "w"), "64", (1, 3, 64, 64)),
        (("n", 3, 32, "w"), "[384, 640]", (1, 3, 32, 640)),
        ((1, 3, 8, 8), "[384, 640]", (1, 3, 8, 8)),
    ):
        proto = convolution(shape)
        onnx.helper.set_model_props(proto, {"imgsz": text})
        assert shape_of(save(proto, tmp_path)) == found
    assert shape_of(save(proto, tmp_path)) == (1, 3, 8, 8)
    proto = convolution(("n", 3, "h", "w"))
    onnx.helper.set_model_props(proto, {"imgsz": "[384, 640]"})
    path = save(proto, tmp_path)
    assert shape_of(path, input_shapes=(1, 3, 16, 16)) == (1, 3, 16, 16)
    original = cnn.read(path).write_original(tmp_path)
    assert [d.dim_value for d in onnx.load(original).graph.input[0].type.tensor_type.shape.dim] == [
        1, 3, 384, 640
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[384]", "[384, 640, 3]", "0", "[0, 640]", "large", "9" * 99])
def test_a_size_that_cannot_be_read_leaves_axes_open(tmp_path: Path, text: str) -> None:
    proto = convolution(("n", 3, "h", "w"))
    onnx.helper.set_model_props(proto, {"imgsz": text})
    with pytest.raises(cnn.ModelError, match=r"axis 2 \(h\) of input 'x' is open"):
        cnn.read(save(proto, tmp_path))


def test_an_input_without_any_shape_can_be_given_one(tmp_path: Path) -> None:
    assert shape_of(save(convolution(None), tmp_path), input_shapes=(1, 3, 8, 8)) == (1, 3, 8, 8)


def test_shape_arithmetic_is_gone_once_the_shape_is_known(tmp_path: Path) -> None:
    more = [
        node("Shape", ["y"], ["s"]),
        node("Gather", ["s", "zero"], ["n"]),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["y", "t"], ["z"], "flat"),
    ]
    proto = convolution(("n", 3, "h", "w"), *more)
    proto.graph.initializer.extend([constant("zero", [0]), constant("rest", [-1])])
    network = cnn.read(save(proto, tmp_path), input_shapes=(1, 3, 8, 8)).network
    assert [layer.operator for layer in network.layers] == ["Conv", "Reshape"]
    assert network.tensors["z"].shape == (1, 256)


@pytest.mark.parametrize(
    ("shape", "given", "sentence"),
    [
        (
            ("n", 3, "h", "w"),
            None,
            r"axis 2 \(h\) of input 'x' is open.*cluster.yaml: "
            r"model: \{path: .*model.onnx, input_shape: \[1, 3, 224, 224\]\}",
        ),
        (None, None, r"input 'x' has no shape.*input_shape: \[1, 3, 224, 224\]"),
        ((1, 3, 8, 8), (1, 3, 9, 8), "axis 2 of input 'x' is 8 in the file.*says 9"),
        ((1, 3, 8, 8), (3, 8, 8), "has 3 axes, the file's has 4"),
        (("n", 3, "h", 8), (1, 3, -1, 8), "size below 1"),
        (("n", "c", 8, 8), (1, 5, 8, 8), r"layer 'c' \(Conv\) expects 3 channels but gets 5"),
        ((1, 3, 8, 8), {"image": (1, 3, 8, 8)}, "given for 'image', but the model's inputs are x"),
    ],
    ids=["open", "absent", "contradiction", "axes", "negative", "channels", "name"],
)
def test_what_cannot_be_settled_is_said(tmp_path: Path, shape, given, sentence: str) -> None:
    path = save(convolution(shape), tmp_path)
    with pytest.raises(cnn.ModelError, match=sentence) as caught:
        cnn.read(path, input_shapes=given)
    assert str(path) in str(caught.value)


def test_one_shape_cannot_serve_two_inputs(tmp_path: Path) -> None:
    inputs = [value("a", ("n", 4)), value("b", ("n", 4))]
    path = save(model([node("Add", ["a", "b"], ["y"])], inputs, [value("y")]), tmp_path)
    with pytest.raises(cnn.ModelError, match="has 2 inputs; give one for each of a, b that"):
        cnn.read(path, input_shapes=(1, 4))
    assert shape_of(path, "y") == (1, 4)


# ---------------------------------------------------------- advice is followed, and then it works


def advised(path: Path, given=None, **bound) -> dict[str, tuple[int, ...]] | tuple[int, ...]:
    """Read `path`, expecting an error; return the `input_shape` that it advises."""
    with pytest.raises(cnn.ModelError, match=r"model: \{path: ") as caught:
        cnn.read(path, input_shapes=given, **bound)
    advice = yaml.safe_load(str(caught.value)[str(caught.value).index("model: {") :])["model"]
    assert advice["path"] == str(path)
    shape = advice["input_shape"]
    if isinstance(shape, dict):
        return {name: tuple(sizes) for name, sizes in shape.items()}
    return tuple(shape)


def follow(path: Path, **given) -> None:
    cnn.read(path, input_shapes=advised(path, **given))


@pytest.mark.parametrize(
    "shape", [("n", 3, "h", "w"), ("n", "c", "h", "w"), (1, "c", 64, 64), None, ("n", 3, "h", 48)]
)
def test_advice_for_one_input_is_taken(tmp_path: Path, shape) -> None:
    follow(save(convolution(shape), tmp_path))


@pytest.mark.parametrize("channels", [1, 3, 7])
@pytest.mark.parametrize("before", [[], [("Cast", {"to": 1}), ("Mul", {})]])
def test_advice_has_the_channels_that_the_first_convolution_expects(
    tmp_path: Path, channels: int, before: list[tuple[str, dict[str, int]]]
) -> None:
    nodes, read = [], "x"
    for operator, attributes in before:
        second = ["half"] if operator == "Mul" else []
        nodes.append(node(operator, [read, *second], [f"{operator}_"], **attributes))
        read = f"{operator}_"
    nodes.append(node("Conv", [read, "k"], ["y"]))
    kernel = constant("k", np.ones((2, channels, 3, 3), np.float32), np.float32)
    proto = model(
        nodes, [value("x", ("n", "c", "h", "w"))], [value("y")],
        [kernel, constant("half", 0.5, np.float32)],
    )  # fmt: skip
    follow(save(proto, tmp_path))


def two_inputs() -> onnx.ModelProto:
    """An image, and features that two products read; names that YAML would not read plainly."""
    nodes = [
        node("Conv", ["image: 0", "k"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["yes", "m"], ["g"]),
        node("Add", ["f", "g"], ["y"]),
    ]
    weights = [
        constant("k", np.ones((2, 1, 3, 3), np.float32), np.float32),
        constant("m", np.ones((5, 2), np.float32), np.float32),
    ]
    inputs = [value("image: 0", ("n", "c", "h", "w")), value("yes", ("n", "d"))]
    return model(nodes, inputs, [value("y")], weights)


def test_advice_for_several_inputs_has_all_that_are_open(tmp_path: Path) -> None:
    (tmp_path / "a: {b}").mkdir()
    path = save(two_inputs(), tmp_path / "a: {b}")
    assert advised(path).keys() == {"image: 0", "yes"}
    follow(path)
    follow(path, given=(1, 1, 32, 32))
    only = {"image: 0": (1, 1, 40, 40)}
    assert advised(path, given=only)["image: 0"] == (1, 1, 40, 40)
    follow(path, given=only)


# ------------------------------------------------------------ sizes that do not halve evenly


def of_the_shape_of_a_u(halvings: int) -> onnx.ModelProto:
    nodes, read = [], "x"
    for level in range(halvings):
        nodes.append(node("MaxPool", [read], [f"d{level}"], kernel_shape=[2, 2], strides=[2, 2]))
        read = f"d{level}"
    for level in reversed(range(halvings)):
        other = f"d{level - 1}" if level else "x"
        nodes.append(node("Resize", [read, "", "twice"], [f"u{level}"], mode="nearest"))
        nodes.append(node("Concat", [f"u{level}", other], [f"j{level}"], f"join{level}", axis=1))
        read = f"j{level}"
    twice = constant("twice", np.array([1, 1, 2, 2]), np.float32)
    return model(nodes, [value("x", ("n", 3, "h", "w"))], [value(read)], [twice])


def test_an_error_about_a_size_that_is_not_a_multiple_names_the_multiples(tmp_path: Path) -> None:
    path = save(of_the_shape_of_a_u(5), tmp_path)
    with pytest.raises(cnn.ModelError) as caught:
        cnn.read(path, input_shapes=(1, 3, 321, 640))
    said = str(caught.value)
    assert re.search(r"layer 'join\d' \(Concat\) cannot take tensors of the shapes \[1, ", said)
    assert "write an input_shape with 320 or 352 in place of 321" in said
    assert "ShapeInferenceError" not in said
    for size in (320, 352):
        cnn.read(path, input_shapes=(1, 3, size, 640))


def test_shapes_that_never_fit_are_said_without_such_advice(tmp_path: Path) -> None:
    nodes = [node("Concat", ["a", "b"], ["y"], "join", axis=1)]
    inputs = [value("a", (1, 2, 64, 64)), value("b", (1, 2, 32, 64))]
    path = save(model(nodes, inputs, [value("y")]), tmp_path)
    with pytest.raises(cnn.ModelError, match=r"layer 'join' \(Concat\) cannot .*64\] and \[1, 2"):
        cnn.read(path)
