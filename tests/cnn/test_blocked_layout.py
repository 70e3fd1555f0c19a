"""Which borders of a subnet may be in blocks of channels."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from cnn.blocked_layout import borders_in_blocks

IMAGE = (1, 32, 8, 8)


def written(
    folder: Path, *nodes: onnx.NodeProto, shape: tuple[int, ...] = IMAGE, kind: int = 1
) -> Path:
    """A subnet x → … → y whose borders have this shape and type."""
    x, y = (helper.make_tensor_value_info(name, kind, shape) for name in "xy")
    graph = helper.make_graph(list(nodes), "subnet", [x], [y])
    path = folder / "subnet.onnx"
    onnx.save(helper.make_model(graph), path)
    return path


def node(operator: str, *names: str) -> onnx.NodeProto:
    return helper.make_node(operator, names[:-1], names[-1:])


def test_what_convolutions_read_and_make(tmp_path: Path) -> None:
    path = written(tmp_path, node("Conv", "x", "w", "a"), node("Relu", "a", "y"))
    assert borders_in_blocks(path) == {"x", "y"}


def test_what_other_operators_read_or_make_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, node("Softmax", "x", "a"), node("Conv", "a", "w", "y"))
    assert borders_in_blocks(path) == {"y"}


@pytest.mark.parametrize("operator", ["Relu", "MaxPool", "Add"])
def test_a_subnet_without_convolutions_has_none(tmp_path: Path, operator: str) -> None:
    inputs = ("x", "x") if operator == "Add" else ("x",)
    assert not borders_in_blocks(written(tmp_path, node(operator, *inputs, "y")))


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((1, 32, 1, 1), TensorProto.FLOAT),
        ((1, 32), TensorProto.FLOAT),
        (IMAGE, TensorProto.FLOAT16),
    ],
)
def test_other_shapes_and_types_are_left_alone(
    tmp_path: Path, shape: tuple[int, ...], kind: int
) -> None:
    path = written(tmp_path, node("Conv", "x", "w", "y"), shape=shape, kind=kind)
    assert not borders_in_blocks(path)


def test_graphs_inside_operators_may_read_anything(tmp_path: Path) -> None:
    inner = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([node("Identity", "x", "inner")], "body", [], [inner])
    branch = helper.make_node("If", ["c"], ["z"], then_branch=body, else_branch=body)
    assert not borders_in_blocks(written(tmp_path, node("Conv", "x", "w", "y"), branch))


def test_a_file_that_is_not_a_subnet_has_none(tmp_path: Path) -> None:
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"\x0a\xff junk")
    assert not borders_in_blocks(path)
