"""Subnets that begin amid residual blocks are computed in ONNX Runtime's own layout throughout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nodes.executors.onnx_layout import marked, unmarked
from nodes.executors.onnx_optimise import MODEL
from nodes.executors.onnx_runtime import OnnxRuntimeExecutor
from nodes.executors.onnx_sessions import import_onnxruntime
from tests.nodes.executors.conformance import load, some_inputs

CHANNELS = 32


def convolution(name: str, source: str, out: str) -> tuple[onnx.NodeProto, onnx.TensorProto]:
    random = np.random.default_rng(len(name))
    weights = random.standard_normal((CHANNELS, CHANNELS, 1, 1), np.float32) / 8
    node = helper.make_node("Conv", [source, f"{name}_w"], [out], name=name)
    return node, numpy_helper.from_array(weights, f"{name}_w")


def blocks(count: int, *, further: str | None = None) -> onnx.ModelProto:
    """`count` residual blocks relu(x + conv(x)) on an image; `further` is an operator that reads
    the image as well, and whose result is the second output."""
    nodes, weights, source = [], [], "x"
    for number in range(count):
        node, values = convolution(f"c{number}", source, f"t{number}")
        nodes += [
            node,
            helper.make_node("Add", [f"t{number}", source], [f"s{number}"], name=f"a{number}"),
            helper.make_node("Relu", [f"s{number}"], [f"y{number}"], name=f"r{number}"),
        ]
        weights.append(values)
        source = f"y{number}"
    outputs = [source]
    if further is not None:
        nodes.append(helper.make_node(further, ["x"], ["z"], name="further"))
        outputs.append("z")
    shape = [1, CHANNELS, 6, 5]
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs],
        weights,
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def operators(model: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(model, load_external_data=False).graph.node)


def prepared(cpu: OnnxRuntimeExecutor, model: onnx.ModelProto, place: Path) -> Counter[str]:
    """The operators of what the executor loads; its results are those of the model."""
    subnet = load(cpu, model, place / "subnet")
    given = some_inputs(subnet)
    plain = import_onnxruntime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = plain.run(list(subnet.outputs), given)
    for found, value in zip(subnet.run(given).values(), wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-5, atol=1e-6)
    subnet.close()
    [optimised] = (place / "derived").glob(f"*/{MODEL}")
    return operators(optimised)


def has_blocked_layout(found: Counter[str]) -> bool:
    return found["ReorderInput"] > 0


def test_an_image_that_is_added_is_converted_once(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    found = prepared(cpu, blocks(3), tmp_path)
    if not has_blocked_layout(found):
        pytest.skip("ONNX Runtime has no layout of its own on this CPU")
    assert found == {"ReorderInput": 1, "Conv": 3, "ReorderOutput": 1}


def test_who_needs_the_plain_image_reads_it_as_it_came(
    cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    found = prepared(cpu, blocks(1, further="Softmax"), tmp_path)
    if not has_blocked_layout(found):
        pytest.skip("ONNX Runtime has no layout of its own on this CPU")
    assert found == {"ReorderInput": 1, "Conv": 1, "ReorderOutput": 1, "Softmax": 1}


def test_a_conversion_that_nobody_needs_any_more_is_left_out(
    cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    shape = [1, CHANNELS, 6, 5]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xyz"]
    added = helper.make_node("Add", ["x", "y"], ["z"], name="added")
    graph = helper.make_graph([added], "added", values[:2], values[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    found = prepared(cpu, model, tmp_path)
    assert not found["MaxPool"]
    assert found["ReorderInput"] in (0, 2)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"elem_type": TensorProto.DOUBLE, "shape": [1, 32, 6, 5]}, id="no float32"),
        pytest.param({"elem_type": TensorProto.FLOAT, "shape": [1, 32, 6]}, id="no image"),
    ],
)
def test_other_inputs_are_left_alone(change: dict[str, object]) -> None:
    values = [helper.make_tensor_value_info(n, **change) for n in "xyz"]  # type: ignore[arg-type]
    added = helper.make_node("Add", ["x", "y"], ["z"])
    graph = helper.make_graph([added], "added", values[:2], values[2:])
    assert marked(helper.make_model(graph).SerializeToString()) is None


def test_a_body_may_read_any_tensor_by_its_name() -> None:
    """So a network with bodies is left as it is."""
    model = blocks(1)
    assert marked(model.SerializeToString()) is not None
    bodies = {
        branch: helper.make_graph([helper.make_node("Neg", ["x"], [branch])], branch, [], [])
        for branch in ("then_branch", "else_branch")
    }
    model.graph.node.add().CopyFrom(helper.make_node("If", ["which"], ["z"], **bodies))
    assert marked(model.SerializeToString()) is None


def test_marks_go_without_a_trace() -> None:
    model = blocks(2, further="Softmax")
    with_marks = marked(model.SerializeToString())
    assert with_marks is not None
    onnx.checker.check_model(onnx.load_from_string(with_marks), full_check=True)
    assert onnx.load_from_string(unmarked(with_marks)) == model


@pytest.mark.parametrize("content", [b"", b"\x08\x07", b"no model", b":\xff"])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    for edit in (marked, unmarked):
        with pytest.raises((ValueError, IndexError)):
            edit(content)
