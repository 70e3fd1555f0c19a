"""A part of a residual network is optimised as the whole network is, although a sum of the part
reads a tensor from outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, largest_error, some_inputs
from nodes.executors.onnx.blocking import with_pools, without_pools
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor

SIZE = 8
MERGING = ("Sum", "Add", "Concat")


def residual(
    operator: str, channels: int = 32, blocks: int = 2, *, has_bias: bool = False
) -> onnx.ModelProto:
    """x → (convolution, merged with x, Relu) for so many blocks → y.

    `Concat` of a tensor and a convolution of it has twice as many channels each time.
    """
    random = np.random.default_rng(0)
    weights, nodes, x = {}, [], "x"
    for block in range(blocks):
        weights[f"w{block}"] = random.standard_normal((channels, channels, 1, 1)).astype(np.float32)
        reads = [x, f"w{block}"]
        if has_bias:
            reads.append(f"b{block}")
            weights[f"b{block}"] = random.standard_normal(channels).astype(np.float32)
        nodes.append(helper.make_node("Conv", reads, [f"c{block}"]))
        merged = [x, f"c{block}"]
        attributes = {"axis": 1} if operator == "Concat" else {}
        nodes.append(helper.make_node(operator, merged, [f"s{block}"], **attributes))
        channels *= 2 if operator == "Concat" else 1
        x = "y" if block == blocks - 1 else f"r{block}"
        nodes.append(helper.make_node("Relu", [f"s{block}"], [x]))
    shape = (1, weights["w0"].shape[0], SIZE, SIZE)
    outputs = [("y", TensorProto.FLOAT, (1, channels, SIZE, SIZE))]
    return models.model(operator, nodes, [("x", TensorProto.FLOAT, shape)], outputs, weights)


def behind_a_convolution(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with a convolution in front, whose result the engine keeps in its layout."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    weight = np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1)
    for node in whole.graph.node:
        node.input[:] = ["first" if name == "x" else name for name in node.input]
    whole.graph.initializer.append(onnx.numpy_helper.from_array(weight, "v"))
    whole.graph.node.insert(0, helper.make_node("Conv", ["x", "v"], ["first"]))
    return whole


def prepared(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """What the executor loads, after checking that it computes what the model does."""
    folder.mkdir()
    path = folder / "subnet.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=64)
    executor = OnnxRuntimeExecutor(folder / "derived")
    subnet = executor.load(path, OPTIONS)
    inputs = some_inputs(subnet)
    expected = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    assert largest_error(subnet.run(inputs)["y"], expected[0]) < 1e-6
    subnet.close()
    executor.close()
    (file,) = (folder / "derived").glob("*/model.onnx")
    return onnx.load(file, load_external_data=False)


def conversions(model: onnx.ModelProto) -> int:
    return sum(node.op_type in ("ReorderInput", "ReorderOutput") for node in model.graph.node)


def separate(model: onnx.ModelProto) -> list[str]:
    """The operators that run by themselves, in the plain layout."""
    return sorted(node.op_type for node in model.graph.node if not node.domain)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("operator", MERGING)
def test_a_part_that_begins_with_a_residual_block_is_fused_as_in_the_whole_network(
    tmp_path: Path, operator: str, has_bias: bool
) -> None:
    part = residual(operator, has_bias=has_bias)
    whole = prepared(behind_a_convolution(part), tmp_path / "whole")
    found = prepared(part, tmp_path / "part")
    # Where the engine has no blocks (ARM), the convolution in front runs by itself, too.
    in_front = [] if conversions(whole) else ["Conv"]
    assert sorted([*separate(found), *in_front]) == separate(whole)
    assert conversions(found) == conversions(whole)
    assert len(found.graph.node) == len(whole.graph.node) - 1


@pytest.mark.parametrize("operator", MERGING)
def test_without_the_poolings_a_subnet_is_what_it_was(operator: str) -> None:
    content = residual(operator).SerializeToString()
    pooled = with_pools(content)
    assert pooled is not None
    onnx.checker.check_model(pooled, full_check=True)
    assert onnx.ModelProto.FromString(pooled).graph.node[0].op_type == "MaxPool"
    assert onnx.ModelProto.FromString(without_pools(pooled)) == onnx.ModelProto.FromString(content)
    assert without_pools(content) == content


def test_an_input_that_only_a_convolution_reads_is_left_alone() -> None:
    model = behind_a_convolution(residual("Add"))
    assert with_pools(model.SerializeToString()) is None


def test_channels_that_fill_no_block_are_left_alone(tmp_path: Path) -> None:
    model = residual("Add", channels=24)
    assert with_pools(model.SerializeToString()) is None
    prepared(model, tmp_path / "part")


def test_a_subnet_without_convolutions_is_left_alone() -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    tensor = (TensorProto.FLOAT, (1, 32, SIZE, SIZE))
    model = models.model("sum", [node], [("x", *tensor)], [("y", *tensor)], {})
    assert with_pools(model.SerializeToString()) is None


def test_other_types_and_sizes_that_are_not_known_are_left_alone() -> None:
    model = residual("Add")
    kind = model.graph.input[0].type.tensor_type
    kind.elem_type = TensorProto.FLOAT16
    assert with_pools(model.SerializeToString()) is None
    kind.elem_type = TensorProto.FLOAT
    kind.shape.dim[1].dim_param = "channels"
    assert with_pools(model.SerializeToString()) is None


def test_an_input_that_the_body_of_an_operator_may_read_is_left_alone() -> None:
    model = residual("Add")
    constant = helper.make_node("Identity", ["x"], ["inner"])
    outer = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([constant], "body", [], [outer])
    model.graph.node.append(
        helper.make_node("If", ["condition"], ["z"], then_branch=body, else_branch=body)
    )
    assert with_pools(model.SerializeToString()) is None
