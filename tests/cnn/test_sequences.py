"""Sequences whose members are known are replaced by the members."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import cnn
from tests.cnn.models import FLOAT, INT64, constant, graph, model, node, save, value
from tests.cnn.whole import agrees

BOOL = onnx.TensorProto.BOOL


def read(nodes: list[onnx.NodeProto], outputs: list[str], directory: Path, *weights) -> cnn.Model:
    ends = [value(name, None, INT64 if name.startswith("n_") else FLOAT) for name in outputs]
    return cnn.read(save(model(nodes, [value("x", (1, 4))], ends, weights), directory))


def listed() -> list[onnx.NodeProto]:
    """A list of −x and e^x, and |x| put first."""
    return [
        node("Neg", ["x"], ["a"]),
        node("Exp", ["x"], ["b"]),
        node("Abs", ["x"], ["c"]),
        node("SequenceConstruct", ["a", "b"], ["two"]),
        node("SequenceInsert", ["two", "c", "first"], ["three"]),
    ]


@pytest.mark.parametrize("attributes", [{"axis": 1}, {"axis": 0, "new_axis": 1}, {"axis": -1}])
def test_a_list_that_is_joined_is_a_concatenation(
    attributes: dict[str, int], tmp_path: Path
) -> None:
    nodes = [*listed(), node("ConcatFromSequence", ["three"], ["y"], **attributes)]
    found = read(nodes, ["y"], tmp_path, constant("first", 0))
    assert "Concat" in {layer.operator for layer in found.network.layers}
    agrees(found, tmp_path)


@pytest.mark.parametrize("place", [0, 1, 2, -1, -3])
def test_a_member_that_is_taken_is_that_tensor(place: int, tmp_path: Path) -> None:
    nodes = [*listed(), node("SequenceAt", ["three", "place"], ["y"])]
    found = read(nodes, ["y"], tmp_path, constant("first", 0), constant("place", place))
    assert len(found.network.layers) == 1
    agrees(found, tmp_path)


def test_the_length_of_a_list_is_a_constant(tmp_path: Path) -> None:
    nodes = [
        *listed(),
        node("SequenceErase", ["three", "place"], ["left"]),
        node("SequenceLength", ["left"], ["n_left"]),
        node("ConcatFromSequence", ["left"], ["y"], axis=0),
    ]
    found = read(nodes, ["y", "n_left"], tmp_path, constant("first", 0), constant("place", 1))
    np.testing.assert_array_equal(found.constant_outputs["n_left"], 2)
    agrees(found, tmp_path)


def test_what_a_loop_appends_is_stacked(tmp_path: Path) -> None:
    """As torch exports a scripted loop over the steps of a recurrent network."""
    element = helper.make_tensor_type_proto(FLOAT, (1, 4))
    seen, longer = (
        helper.make_value_info(name, helper.make_sequence_type_proto(element))
        for name in ("seen", "longer")
    )
    inner = graph(
        [
            node("Tanh", ["h"], ["g"], "step"),
            node("SequenceInsert", ["seen", "g"], ["longer"]),
            node("Identity", ["on"], ["go"]),
        ],
        "body",
        [value("i", (), INT64), value("on", (), BOOL), value("h", (1, 4)), seen],
        [value("go", (), BOOL), value("g", (1, 4)), longer],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["three", "", "x", "none"], ["last", "all"], body=inner),
        node("ConcatFromSequence", ["all"], ["y"], axis=1, new_axis=1),
    ]
    found = read(nodes, ["y", "last"], tmp_path, constant("three", 3))
    assert [layer.name for layer in found.network.layers][:3] == ["step[0]", "step[1]", "step[2]"]
    agrees(found, tmp_path)


def test_a_place_that_depends_on_the_data_is_left_to_the_tail(tmp_path: Path) -> None:
    nodes = [
        *listed(),
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Cast", ["m"], ["place"], to=INT64),
        node("SequenceAt", ["three", "place"], ["y"]),
    ]
    found = read(nodes, ["y"], tmp_path, constant("first", 0))
    agrees(found, tmp_path, {"x": np.full((1, 4), 1.5, np.float32)})
