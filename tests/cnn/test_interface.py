"""`outputs` say where a network stops, and `inputs` which of its inputs are constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from tests.cnn.models import FLOAT, INT64, graph, model, node, run, save, value, weight
from tests.cnn.whole import agrees

BOOL, UINT8 = onnx.TensorProto.BOOL, onnx.TensorProto.UINT8


@pytest.fixture
def detector(tmp_path: Path) -> Path:
    """A backbone, two heads, and behind the second what nothing here can handle."""
    nodes = [
        node("Conv", ["image", "w"], ["backbone/out"], "backbone"),
        node("Relu", ["backbone/out"], ["scores"], "scorer"),
        node("Add", ["backbone/out", "shift"], ["boxes"], "boxer"),
        node("NonZero", ["boxes"], ["found"], "nms"),
        node("Swirl", ["found"], ["kept"], "mine", domain="my.ops"),
    ]
    inputs = [value("image", (1, 3, 8, 8)), value("shift", (1, 4, 8, 8))]
    outputs = [value("scores"), value("kept", None, INT64)]
    proto = model(nodes, inputs, outputs, [weight("w", 4, 3, 1, 1)], domains=["my.ops"])
    return save(proto, tmp_path, "detector.onnx")


def test_a_network_stops_at_the_tensors_that_are_asked_for(detector: Path, tmp_path: Path) -> None:
    with pytest.raises(cnn.ModelError, match="custom operator"):
        cnn.read(detector)
    stopped = cnn.read(detector, outputs=["boxes", "backbone/out"])
    assert stopped.network.outputs == ("boxes", "backbone/out")
    assert [layer.name for layer in stopped.network.layers] == ["backbone", "boxer"]
    agrees(stopped, tmp_path)


def test_what_is_not_needed_any_more_is_gone(detector: Path) -> None:
    stopped = cnn.read(detector, outputs=["scores"])
    assert stopped.network.inputs == ("image",)
    assert [layer.name for layer in stopped.network.layers] == ["backbone", "scorer"]
    assert stopped.network.weights.keys() == {"w"}


def test_the_whole_model_stops_there_too(detector: Path, tmp_path: Path) -> None:
    original = onnx.load(cnn.read(detector, outputs=["scores"]).write_original(tmp_path))
    assert [output.name for output in original.graph.output] == ["scores"]
    assert [each.op_type for each in original.graph.node] == ["Conv", "Relu"]


def test_the_digest_depends_on_the_outputs_and_on_their_order(detector: Path) -> None:
    asked = (["scores"], ["boxes"], ["scores", "boxes"], ["boxes", "scores"])
    assert len({cnn.read(detector, outputs=outputs).digest for outputs in asked}) == len(asked)


def test_all_outputs_by_name_give_the_network_as_it_is(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["y"], ["z"])]
    path = save(model(nodes, [value("x", (2, 3))], [value("y"), value("z")]), tmp_path)
    assert cnn.read(path, outputs=["y", "z"]).network == cnn.read(path).network


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        (["score"], r"outputs: the model has no tensor 'score'; did you mean 'scores'\?"),
        (["zzzz"], r"the model has no tensor 'zzzz'; its outputs are scores, kept"),
        (["boxes", "boxes"], r"outputs: 'boxes' is listed twice"),
        (["w"], r"no output of the model depends on an input, so there is nothing to run"),
    ],
    ids=["misspelt", "unknown", "twice", "a weight alone"],
)
def test_outputs_that_cannot_be(detector: Path, outputs: list[str], sentence: str) -> None:
    with pytest.raises(cnn.ModelError, match=f"detector.onnx: .*{sentence}"):
        cnn.read(detector, outputs=outputs)


def test_a_network_may_stop_at_its_input(detector: Path, tmp_path: Path) -> None:
    stopped = cnn.read(detector, outputs=["scores", "image"])
    assert stopped.network.outputs == ("scores", "image_output")
    agrees(stopped, tmp_path)


def switch() -> onnx.ModelProto:
    """Relu for 16000, the negative for anything else."""
    made = value("p", (1, 4))
    nodes = [
        node("Constant", [], ["wanted"], value_int=16000),
        node("Equal", ["rate", "wanted"], ["is_16"]),
        node(
            "If",
            ["is_16"],
            ["y"],
            then_branch=graph([node("Relu", ["x"], ["p"])], "then", [], [made]),
            else_branch=graph([node("Neg", ["x"], ["p"])], "else", [], [made]),
        ),
    ]
    return model(nodes, [value("x", (1, 4)), value("rate", (), INT64)], [value("y")])


@pytest.mark.parametrize(("rate", "operator"), [(16000, "Relu"), (8000, "Neg")])
def test_an_input_that_is_a_constant_decides_for_a_branch(
    rate: int, operator: str, tmp_path: Path
) -> None:
    path = save(switch(), tmp_path)
    bound = cnn.read(path, inputs={"rate": rate})
    assert bound.network.inputs == ("x",)
    assert [layer.operator for layer in bound.network.layers] == [operator]
    frame = {"x": np.array([[-2, -1, 1, 2]], np.float32)}
    (expected,) = run(path, {**frame, "rate": np.array(rate)})
    np.testing.assert_array_equal(agrees(bound, tmp_path, frame)[0], expected)


def test_the_digest_depends_on_the_constant(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "scale"], ["y"])]
    inputs = [value("x", (1, 4)), value("scale", (1,))]
    path = save(model(nodes, inputs, [value("y")]), tmp_path)
    digests = {cnn.read(path, inputs={"scale": scale}).digest for scale in (2, 2.5, [3])}
    assert len({cnn.read(path).digest, *digests}) == 4


def typed(kind: int, shape: tuple[int | str, ...] | None, directory: Path) -> Path:
    """A model whose second input, `c`, has this type."""
    nodes = [node("Cast", ["c"], ["f"], to=FLOAT), node("Add", ["x", "f"], ["y"])]
    inputs = [value("x", (1, 4)), value("c", shape, kind)]
    return save(model(nodes, inputs, [value("y")]), directory)


@pytest.mark.parametrize(
    ("kind", "shape", "constant", "expected"),
    [
        (INT64, (), 3, [3, 3, 3, 3]),
        (INT64, (1,), 3, [3, 3, 3, 3]),
        (INT64, ("n",), 3, [3, 3, 3, 3]),
        (INT64, ("n",), [1, 2, 3, 4], [1, 2, 3, 4]),
        (INT64, None, [1, 2, 3, 4], [1, 2, 3, 4]),
        (FLOAT, (4,), [1, 2.5, 3, 4], [1, 2.5, 3, 4]),
        (FLOAT, (1, 4), [[1, 2, 3, 4]], [1, 2, 3, 4]),
        (BOOL, (), True, [1, 1, 1, 1]),
        (UINT8, (4,), [0, 1, 2, 255], [0, 1, 2, 255]),
    ],
)
def test_a_constant_takes_the_type_and_shape_of_its_input(
    kind: int, shape, constant, expected: list[float], tmp_path: Path
) -> None:
    bound = cnn.read(typed(kind, shape, tmp_path), inputs={"c": constant})
    frame = {"x": np.zeros((1, 4), np.float32)}
    np.testing.assert_array_equal(agrees(bound, tmp_path, frame)[0], [expected])


@pytest.mark.parametrize(
    ("kind", "shape", "inputs", "sentence"),
    [
        (INT64, (), {"d": 3}, r"inputs: the model has no input 'd'; its inputs are x, c"),
        (INT64, (), {"c": 1.5}, r"'c' is 1.5, but the input holds int64 values: write whole"),
        (INT64, (), {"c": True}, r"'c' is True, but the input holds int64 values"),
        (FLOAT, (), {"c": True}, r"holds float32 values: write numbers"),
        (BOOL, (), {"c": 1}, r"holds bool values: write true or false"),
        (FLOAT, (2, 2), {"c": [[1, 2], [3]]}, r"lists of equal length"),
        (UINT8, (), {"c": 256}, r"is 256, which uint8 cannot represent"),
        (UINT8, (), {"c": -1}, r"is -1, which uint8 cannot represent"),
        (FLOAT, (), {"c": 1e39}, r"is 1e\+39, which float32 cannot represent"),
        (FLOAT, (), {"c": float("nan")}, r"is nan, which float32 cannot represent"),
        (INT64, (), {"c": 2**70}, r"'c' is 1180591620717411303424, but the input holds int64"),
        (INT64, (), {"c": [1]}, r"has the shape \[1\], and the input has \[\]"),
        (FLOAT, ("n", 4), {"c": [1, 2]}, r"has the shape \[2\], and the input has \[any, 4\]"),
        (FLOAT, (4,), {"c": 1}, r"has the shape \[\], and the input has \[4\]"),
        (FLOAT, (4,), {"c": [[1, 2, 3, 4]]}, r"has the shape \[1, 4\]"),
    ],
)
def test_constants_that_do_not_suit_their_input(
    kind: int, shape, inputs, sentence: str, tmp_path: Path
) -> None:
    path = typed(kind, shape, tmp_path)
    with pytest.raises(cnn.ModelError, match=sentence) as caught:
        cnn.read(path, inputs=inputs)
    assert str(caught.value).startswith(f"{path}: inputs: ")


def test_a_model_with_constants_for_all_its_inputs_has_nothing_to_run_on(tmp_path: Path) -> None:
    path = save(model([node("Relu", ["x"], ["y"])], [value("x", (1,))], [value("y")]), tmp_path)
    with pytest.raises(cnn.ModelError, match="no output of the model depends on an input"):
        cnn.read(path, inputs={"x": 1})
