"""A model's own functions are inlined when it is read, however they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import cnn
from tests.cnn.models import convolution, node, save
from tests.cnn.test_bad_models import refused

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def function(name: str, calls: Sequence[str], domain: str = "f") -> onnx.FunctionProto:
    """b = calls[-1](… calls[0](a))"""
    tensors = ["a", *(f"t{n}" for n in range(len(calls) - 1)), "b"]
    nodes = [
        node(op, [tensors[n]], [tensors[n + 1]], domain="" if op == "Relu" else domain)
        for n, op in enumerate(calls)
    ]
    return helper.make_function(domain, name, ["a"], ["b"], nodes, OPSETS)


def calling(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    proto = convolution((1, 3, 8, 8), node("F0", ["y"], ["z"], domain="f"))
    proto.opset_import.append(OPSETS[1])
    proto.functions.extend(functions)
    return proto


def test_functions_in_functions_are_inlined(tmp_path: Path) -> None:
    proto = calling(function("F0", ["F1", "Relu"]), function("F1", ["Relu"]))
    model = cnn.read(save(proto, tmp_path))
    assert {layer.operator for layer in model.network.layers} == {"Conv", "Relu"}
    subnet = model.cut([la.name for la in model.network.layers], ["x"], ["z"], tmp_path / "cut")
    assert not onnx.load(str(subnet.graph), load_external_data=False).functions


def test_functions_that_nobody_calls_are_dropped(tmp_path: Path) -> None:
    proto = calling(function("F0", ["Relu"]), function("Idle", ["Swirl"]))
    original = cnn.read(save(proto, tmp_path)).write_original(tmp_path / "original")
    assert not onnx.load(str(original), load_external_data=False).functions


@pytest.mark.parametrize(
    "functions",
    [
        [function("F0", ["F0"])],
        [function("F0", ["F1"]), function("F1", ["F0"])],
        [*(function(f"F{n}", [f"F{n + 1}"]) for n in range(200)), function("F200", ["Relu"])],
    ],
)
def test_functions_that_call_each_other_without_end_are_refused(
    tmp_path: Path, functions: list[onnx.FunctionProto]
) -> None:
    refused(save(calling(*functions), tmp_path), "calls itself, or functions call each other more")


def test_functions_that_multiply_are_refused_before_they_are_inlined(tmp_path: Path) -> None:
    """Eighty calls that stand for 10^8 operators."""
    functions = [function(f"F{n}", [f"F{n + 1}"] * 10) for n in range(8)]
    refused(save(calling(*functions, function("F8", ["Relu"])), tmp_path), "more than 1000000")


def averaging(version: int) -> onnx.FunctionProto:
    """b = ReduceMean(a), whose axes are an input from operator set 18 on."""
    imports = [helper.make_opsetid("", version)]
    axes = [node("Constant", [], ["axes"], value_ints=[1])] if version >= 18 else []
    read = ["a", "axes"] if version >= 18 else ["a"]
    given = {} if version >= 18 else {"axes": [1]}
    nodes = [*axes, node("ReduceMean", read, ["b"], **given)]
    return helper.make_function("f", "F0", ["a"], ["b"], nodes, imports)


@pytest.mark.parametrize("version", [13, 15, 17, 18, 21, 24])
@pytest.mark.parametrize("make", [averaging, None], ids=["changed", "same"])
def test_functions_of_other_operator_sets_compute_the_same(
    tmp_path: Path, version: int, make: Callable[[int], onnx.FunctionProto] | None
) -> None:
    called = make(version) if make else function("F0", ["Relu"])
    called.opset_import[0].version = version
    path = save(calling(called), tmp_path)
    model = cnn.read(path)
    subnet = model.cut(model.network.layer, ["x"], ["z"], tmp_path / "cut").graph
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    proto = onnx.load(path)  # ONNX Runtime takes an operator as the model's operator set has it
    proto.opset_import[0].version = version
    wanted = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    for ours in (subnet, model.write_original(tmp_path / "original")):
        found = onnxruntime.InferenceSession(ours).run(["z"], {"x": x})[0]
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_function_whose_operator_means_something_else_in_the_model_is_refused(
    tmp_path: Path,
) -> None:
    proto = calling(averaging(18))
    proto.graph.node.append(node("ReduceMean", ["z"], ["u"], axes=[1]))  # as operator set 17 has it
    proto.graph.output[0].name = "u"
    refused(save(proto, tmp_path), "'F0' was written for another operator set than the model")


def test_a_call_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    proto = calling(function("F0", ["Relu"]))
    proto.graph.node[1].input.append("x")
    refused(save(proto, tmp_path), "functions cannot be inlined")


def test_a_function_that_takes_a_graph_is_refused(tmp_path: Path) -> None:
    taking = function("F0", ["Relu"])
    taking.attribute_proto.add(name="g", type=onnx.AttributeProto.GRAPH).g.name = "default"
    refused(save(calling(taking), tmp_path), "takes a graph")
