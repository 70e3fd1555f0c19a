"""What cannot be read or handled ends in one sentence: which file, which layer, what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from tests.cnn.models import (
    constant,
    convolution,
    graph,
    model,
    node,
    save,
    value,
    weight,
)


def refused(path: str | Path, sentence: str) -> None:
    with pytest.raises(cnn.ModelError, match=sentence) as caught:
        cnn.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def light(name: str) -> bytes:
    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return (data / f"light_{name}.onnx").read_bytes()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not an ONNX model, or it is truncated"),
        (b"model: resnet50\n", "not an ONNX file, or it is truncated"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not an ONNX file, or it is truncated"),
        (light("squeezenet")[:8000], "not an ONNX file, or it is truncated"),
        (light("squeezenet")[:-1], "not an ONNX file, or it is truncated"),
    ],
    ids=["empty", "text", "image", "half", "one byte short"],
)
def test_files_that_are_not_a_model(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refused(path, sentence)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    refused(tmp_path / "absent.onnx", "there is no such file")
    refused(tmp_path, "cannot be read")
    refused("onnx-wheel:resnet51", "there is no network .*onnx-wheel:resnet50")
    refused("builtin:yolov9", "there is no network .*builtin:yolov2")


def branch(name: str, operator: str) -> onnx.GraphProto:
    return graph([node(operator, ["y"], [name])], name, [], [value(name, (1, 4, 8, 8))])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ([node("RandomNormalLike", ["y"], ["z"], "r")], r"'r' \(RandomNormalLike\) draws random"),
        (
            [node("StringNormalizer", ["y"], ["z"], "s")],
            r"layer 's' \(StringNormalizer\) works on text",
        ),
        (
            [node("Swirl", ["y"], ["z"], "mine", domain="my.ops")],
            r"layer 'mine' \(Swirl\) of the domain 'my.ops' is a custom operator.*"
            r'end the network before it: outputs: \["y"\]',
        ),
        (
            [node("Swirl", ["y"], ["z"], "odd")],
            r"""'odd' \(Swirl\) is not an operator of ONNX's.*outputs: \["y"\]""",
        ),
    ],
    ids=["random", "text", "custom", "unknown"],
)
def test_operators_that_cannot_be_handled(tmp_path: Path, more, sentence: str) -> None:
    proto = convolution((1, 3, 8, 8), *more)
    del proto.graph.output[:]
    proto.graph.output.append(value("z"))
    proto.opset_import.append(onnx.helper.make_opsetid("my.ops", 1))
    refused(save(proto, tmp_path), sentence)


def test_a_custom_operator_that_reads_a_weight_first(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Swirl", ["w", "y"], ["z"], "s", domain="my.ops"))
    refused(save(proto, tmp_path), r"""the domain 'my.ops'.*outputs: \["y"\]""")


def test_no_network_ends_at_its_input(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Swirl", ["x"], ["z"], "s", domain="my.ops"))
    refused(save(proto, tmp_path), r"the domain 'my.ops'.*name tensors that do not need it as `out")


def test_an_operator_whose_shape_does_not_follow_is_named_with_its_domain(tmp_path: Path) -> None:
    pool = node(
        "QLinearGlobalAveragePool",
        ["y", "s", "o", "s", "o"],
        ["p"],
        "pool",
        domain="com.microsoft",
        channels_last=1,
    )
    proto = convolution((1, 3, 8, 8), pool, node("Relu", ["p"], ["z"]))
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    weights = constant("s", 1.0, np.float32), constant("o", 1, np.uint8)
    proto.graph.initializer.extend(weights)
    refused(
        save(proto, tmp_path),
        r"type and shape of an output of layer 'pool' \(QLinearGlobalAveragePool\) of the domain "
        r"""'com.microsoft' cannot be inferred; .*end the network before it: outputs: \["y"\]""",
    )


def test_a_branch_whose_condition_is_known_is_not_control_flow(tmp_path: Path) -> None:
    condition = node(
        "If", ["b"], ["z"], then_branch=branch("p", "Relu"), else_branch=branch("q", "Neg")
    )
    proto = convolution((1, 3, 8, 8), condition)
    proto.graph.initializer.append(constant("b", True, bool))
    layers = cnn.read(save(proto, tmp_path)).network.layers
    assert [layer.operator for layer in layers] == ["Conv", "Relu"]


def test_what_only_a_branch_reads_is_read(tmp_path: Path) -> None:
    made = value("p", (1, 4, 600, 600))
    then = graph([node("Add", ["side", "big"], ["p"])], "then", [], [made])
    other = graph([node("Neg", ["side"], ["p"])], "else", [], [made])
    nodes = [node("If", ["b"], ["z"], then_branch=then, else_branch=other)]
    side = value("side", (1, 4, 600, 600))
    weights = [constant("b", True, bool), weight("big", 600, 600)]
    network = cnn.read(save(model(nodes, [side], [value("z")], weights), tmp_path)).network
    assert network.inputs == ("side",)
    assert [layer.operator for layer in network.layers] == ["Add"]
    assert [weight.shape for weight in network.weights.values()] == [(600, 600)]


def test_string_inputs(tmp_path: Path) -> None:
    string = onnx.TensorProto.STRING
    proto = model(
        [node("Identity", ["x"], ["y"])], [value("x", (1,), string)], [value("y", (1,), string)]
    )
    refused(save(proto, tmp_path), "input 'x' holds text")


def of_no_type() -> onnx.TensorProto:
    """A tensor whose element type is 0, which ONNX calls undefined."""
    return onnx.TensorProto(name="k", data_type=0, dims=[1], float_data=[1.0])


def branches(first: onnx.GraphProto) -> onnx.NodeProto:
    return node("If", ["b"], ["z"], then_branch=first, else_branch=branch("q", "Neg"))


@pytest.mark.parametrize(
    "more",
    [
        [node("Constant", [], ["k"], value=of_no_type()), node("Add", ["y", "k"], ["z"])],
        [node("ConstantOfShape", ["s"], ["k"], value=of_no_type()), node("Add", ["y", "k"], ["z"])],
        [
            branches(
                graph([node("Add", ["y", "k"], ["p"])], "then", [], [value("p")], [of_no_type()])
            )
        ],
        [node("Cast", ["y"], ["z"], to=0)],
        [node("EyeLike", ["m"], ["z"], dtype=0)],
    ],
    ids=["constant", "constant of shape", "in a branch", "attribute `to`", "attribute `dtype`"],
)
def test_an_undefined_element_type(tmp_path: Path, more: list[onnx.NodeProto]) -> None:
    proto = convolution((1, 3, 8, 8), *more)
    proto.graph.input.append(value("b", (1,), onnx.TensorProto.BOOL))
    proto.graph.input.append(value("m", (3, 3)))
    proto.graph.initializer.append(constant("s", [1]))
    refused(save(proto, tmp_path), "has no element type; export the model again")


def test_an_input_of_undefined_element_type(tmp_path: Path) -> None:
    proto = convolution()
    proto.graph.input[0].type.tensor_type.elem_type = 0
    refused(save(proto, tmp_path), "input 'x' has no element type; export the model again")


def test_old_operator_sets(tmp_path: Path) -> None:
    refused(save(convolution(opset=6), tmp_path), "operator set 6 is too old.*is 7; convert")


@pytest.mark.parametrize("name", ["x", "y", "w"], ids=["input", "another", "weight"])
def test_a_tensor_that_is_made_twice(tmp_path: Path, name: str) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], [name]), node("Neg", ["y"], ["z"]))
    refused(save(proto, tmp_path), f"damaged.*two operators, or one and an input, make '{name}'")


def test_a_model_whose_outputs_no_input_reaches(tmp_path: Path) -> None:
    proto = convolution()
    del proto.graph.output[:]
    proto.graph.output.append(value("w", (4, 3, 3, 3)))
    refused(save(proto, tmp_path), "no output of the model depends on an input")


def test_a_model_without_inputs(tmp_path: Path) -> None:
    proto = model([node("Relu", ["w"], ["y"])], [], [value("y")], [constant("w", [1.0], float)])
    refused(save(proto, tmp_path), "no output of the model depends on an input")
