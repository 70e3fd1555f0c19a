"""Bodies of control flow are looked through like the graph around them, and as deep as they are."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import check_optimised, inspect
from nodes.executors.onnx.protobuf import field
from nodes.executors.onnx.schema import MOST_BODIES
from tests.nodes.executors.test_onnx_file import (
    external,
    with_an_engines_operator,
    with_compiled_program,
    with_own_operator,
)


def nested(depth: int, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    """A model of loops one inside of the other; `nodes` are in the innermost."""
    graph = helper.make_graph(list(nodes), "g", [], [])
    for _ in range(depth):
        loop = helper.make_node("Loop", ["n", "c"], ["y"], name="round", body=graph)
        graph = helper.make_graph([loop], "g", [], [])
    return helper.make_model(graph)


def looked_through(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model"
    path.write_bytes(model.SerializeToString())
    return inspect(path).path


def test_control_flow_is_taken_and_its_bodies_are_looked_through(tmp_path: Path) -> None:
    assert looked_through(tmp_path, nested(MOST_BODIES))
    for change in (with_own_operator, with_compiled_program, with_an_engines_operator):
        inner = onnx.ModelProto()
        change(inner)
        with pytest.raises(ExecutorError, match=r"is refused: it has layer"):
            looked_through(tmp_path, nested(2, *inner.graph.node))


@pytest.mark.parametrize("depth", [MOST_BODIES + 1, 30])
def test_bodies_are_not_nested_without_end(tmp_path: Path, depth: int) -> None:
    with pytest.raises(ExecutorError, match="more than 16 graphs nested in one another"):
        looked_through(tmp_path, nested(depth))


def test_a_crafted_file_of_two_thousand_nested_bodies_is_refused(tmp_path: Path) -> None:
    """None of its readers' stacks grows with it; protocol buffers nest as deep as they are long."""
    content = b""
    for _ in range(2000):
        content = field(1, field(5, field(6, content)))
    path = tmp_path / "model"
    path.write_bytes(field(7, content))
    with pytest.raises(ExecutorError, match="more than 16 graphs"):
        inspect(path)


def test_the_optimiser_may_keep_the_weights_of_a_body_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "model"
    for location in ("w", "../w"):
        graph = helper.make_graph([], "body", [], [], [external("w", location)])
        loop = helper.make_node("Loop", ["n", "c"], ["y"], body=graph)
        path.write_bytes(
            helper.make_model(helper.make_graph([loop], "g", [], [])).SerializeToString()
        )
        (tmp_path / "w").write_bytes(b"1234")
        if location == "w":
            check_optimised(path)
            continue
        with pytest.raises(ExecutorError, match="outside its own directory"):
            check_optimised(path)
