"""A model's own functions are inlined when it is read, however they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
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


def test_a_function_for_another_operator_set_is_refused(tmp_path: Path) -> None:
    old = function("F0", ["Relu"])
    old.opset_import[0].version = 9
    refused(save(calling(old), tmp_path), "'F0' was written for another operator set")


def test_a_call_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    proto = calling(function("F0", ["Relu"]))
    proto.graph.node[1].input.append("x")
    refused(save(proto, tmp_path), "functions cannot be inlined")


def test_a_function_that_takes_a_graph_is_refused(tmp_path: Path) -> None:
    taking = function("F0", ["Relu"])
    taking.attribute_proto.add(name="g", type=onnx.AttributeProto.GRAPH).g.name = "default"
    refused(save(calling(taking), tmp_path), "takes a graph")
