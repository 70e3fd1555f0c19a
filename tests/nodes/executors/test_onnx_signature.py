"""What a file declares as inputs and outputs, and how its layers are called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from nodes.executors.onnx.signature import (
    DeclaredTensor,
    layer_name,
    layer_with,
    read_signature,
    unsigned_quantiser,
)
from tests.networks import small_models


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@settings(max_examples=20)
@given(proto=small_models())
def test_names_and_layers_are_those_that_onnx_reads(tmp_path: Path, proto: onnx.ModelProto) -> None:
    path = saved(proto, tmp_path)
    signature, graph = read_signature(path), proto.graph
    weights = {weight.name for weight in graph.initializer}
    assert [x.name for x in signature.inputs] == [x.name for x in graph.input]
    assert weights.isdisjoint(x.name for x in signature.inputs)
    assert [x.name for x in signature.outputs] == [x.name for x in graph.output]
    assert {x.dtype for x in (*signature.inputs, *signature.outputs)} == {"float32"}
    for index, node in enumerate(graph.node):
        assert layer_name(path, index) == (node.name or node.output[0])
    assert layer_name(path, len(graph.node)) == layer_name(path, -1) == ""


NUMPY_LACKS = {TensorProto.STRING: "string", TensorProto.BFLOAT16: "bfloat16"}


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in TensorProto.DataType.values()
        if TensorProto.UNDEFINED < kind <= TensorProto.BFLOAT16
    ],
    ids=TensorProto.DataType.Name,
)
def test_dtypes_are_numpys(tmp_path: Path, kind: int) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    path = saved(models.model("m", [node], [("x", kind, [1])], [("y", kind, [1])]), tmp_path)
    dtype = NUMPY_LACKS.get(kind) or np.dtype(helper.tensor_dtype_to_np_dtype(kind)).name
    assert read_signature(path).inputs == (DeclaredTensor("x", dtype),)


def test_a_dtype_that_is_newer_than_this_table_is_called_by_its_number(tmp_path: Path) -> None:
    proto = models.model(
        "m",
        [helper.make_node("Identity", ["x"], ["y"])],
        [("x", TensorProto.FLOAT8E4M3FN, [1])],
        [("y", TensorProto.FLOAT, [1])],
    )
    path = saved(proto, tmp_path)
    assert read_signature(path).inputs == (DeclaredTensor("x", "ONNX's type 17"),)


INT8, UINT8, FLOAT = TensorProto.INT8, TensorProto.UINT8, TensorProto.FLOAT


@pytest.mark.parametrize(
    ("zero_point", "attributes", "is_unsigned"),
    [
        (np.uint8(0), {}, True),
        (np.uint8(7), {}, True),
        (np.int8(0), {}, False),
        (None, {}, True),
        (None, {"output_dtype": INT8}, False),
        (None, {"output_dtype": UINT8}, True),
    ],
)
@pytest.mark.parametrize("name", ["q", ""])
def test_a_quantiser_to_uint8_is_found(
    tmp_path: Path,
    zero_point: np.generic | None,
    attributes: dict[str, int],
    is_unsigned: bool,
    name: str,
) -> None:
    weights = {"s": np.array(0.5, np.float32)}
    if zero_point is not None:
        weights["z"] = np.array(zero_point)
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("QuantizeLinear", ["a", *weights], ["y"], name, **attributes),
    ]
    proto = models.model("m", nodes, [("x", FLOAT, [3])], [("y", UINT8, [3])], weights)
    assert unsigned_quantiser(saved(proto, tmp_path)) == ((name or "y") if is_unsigned else "")


def test_weights_that_are_listed_as_inputs_are_none(tmp_path: Path) -> None:
    proto = models.residual()
    names = [value.name for value in proto.graph.input]
    for weight in proto.graph.initializer:
        listed = helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
        proto.graph.input.append(listed)
    assert [x.name for x in read_signature(saved(proto, tmp_path)).inputs] == names


def test_a_layer_is_found_by_operator_and_output(tmp_path: Path) -> None:
    proto = models.residual()
    proto.graph.node[2].name = "second"
    graph = models.save(proto, tmp_path)
    assert layer_with(graph, "Conv") == "c0", "without a name, its first output"
    assert layer_with(graph, "Conv", "c1") == "second"
    assert layer_with(graph, "Conv", "y") is None
    assert layer_with(graph, "Gemm") is None
