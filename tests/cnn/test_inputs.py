"""Open axes: the batch becomes 1, the user settles the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    with pytest.raises(cnn.ModelError, match="has 2 inputs; give one for each: a, b"):
        cnn.read(path, input_shapes=(1, 4))
    assert shape_of(path, "y") == (1, 4)
