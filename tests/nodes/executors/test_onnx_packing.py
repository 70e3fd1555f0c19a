"""Weights are not packed where nothing gains by it, and then loading holds them once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nodes.executors.base import LoadOptions
from nodes.executors.onnx.packing import UNPACKED, multiplies_single_rows, packs_others
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor

INNER = 64


def product(rows: int, *, with_shapes: bool = True, operator: str = "Gemm") -> onnx.ModelProto:
    """x [rows, 64] → product → Relu → product → y [rows, 64]; the weights lie inside."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.random((INNER, INNER), np.float32) / INNER, name)
        for name in ("v", "w")
    ]
    x, made, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, INNER])
        for name in ("x", "made", "y")
    )
    nodes = [
        helper.make_node(operator, ["x", "v"], ["made"]),
        helper.make_node("Relu", ["made"], ["positive"]),
        helper.make_node(operator, ["positive", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "product", [x], [y], weights, value_info=[made] * with_shapes)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("operator", ["Gemm", "MatMul"])
@pytest.mark.parametrize(
    ("rows", "with_shapes", "single"), [(1, True, True), (2, True, False), (1, False, False)]
)
def test_value_info_states_how_many_rows_its_products_have(
    rows: int, with_shapes: bool, single: bool, operator: str
) -> None:
    model = product(rows, with_shapes=with_shapes, operator=operator).SerializeToString()
    assert multiplies_single_rows(model) is single


def test_a_shape_that_is_not_known_is_not_one_row() -> None:
    model = product(1)
    model.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert not multiplies_single_rows(model.SerializeToString())


@pytest.mark.parametrize(
    ("operator", "domain", "dtype", "packs"),
    [
        ("Conv", "", np.float32, False),
        ("FusedConv", "com.microsoft", np.float32, False),
        ("Conv", "", np.float16, True),
        ("Conv", "com.microsoft.nchwc", np.float32, False),
        ("FusedGemm", "com.microsoft", np.float32, False),
        ("LSTM", "", np.float32, True),
        ("Add", "", np.float32, False),
    ],
)
def test_whatever_else_reads_weights_may_pack_them(
    operator: str, domain: str, dtype: type, packs: bool
) -> None:
    weight = numpy_helper.from_array(np.zeros((4, 4), dtype), "w")
    weight.ClearField("raw_data")
    weight.external_data.add(key="location", value="weights")
    node = helper.make_node(operator, ["x", "w"], ["y"], domain=domain)
    graph = helper.make_graph([node], "one", [], [], [weight])
    assert packs_others(helper.make_model(graph).SerializeToString()) is packs


@pytest.mark.parametrize(("rows", "unpacked"), [(1, True), (3, False)])
def test_prepared_so_a_subnet_computes_the_same(tmp_path: Path, rows: int, unpacked: bool) -> None:
    model = product(rows)
    onnx.save(model, tmp_path / "product.onnx")
    executor = OnnxRuntimeExecutor(tmp_path / "derived")
    subnet = executor.load(tmp_path / "product.onnx", LoadOptions(threads=1))
    x = np.random.default_rng(1).standard_normal((rows, INNER), np.float32)
    v, w = map(numpy_helper.to_array, model.graph.initializer)
    np.testing.assert_allclose(subnet.run({"x": x})["y"], np.maximum(x @ v, 0) @ w, rtol=1e-4)
    (entry,) = (tmp_path / "derived").iterdir()
    assert (entry / UNPACKED).exists() is unpacked
    subnet.close()
    executor.close()
