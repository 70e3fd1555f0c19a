"""Shapes that ONNX's inference does not know, or infers differently from engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cnn
from tests.cnn.models import constant, model, node, save, value, weight
from tests.cnn.test_simplify import whole_model_agrees


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_resizing_has_the_size_that_the_engine_makes(mode: str, tmp_path: Path) -> None:
    """10 · 2.3 is 23 in single precision, and 22.9999995 in double."""
    nodes = [node("Resize", ["x", "", "f"], ["y"], mode=mode), node("Relu", ["y"], ["z"])]
    weights = [constant("f", [1, 1, 1, 2.3], np.float32)]
    built = cnn.read(
        save(model(nodes, [value("x", (1, 1, 2, 10))], [value("z")], weights), tmp_path)
    )
    assert built.network.tensors["y"].shape == (1, 1, 2, 23)
    whole_model_agrees(built, tmp_path)


def test_group_norms_have_the_shape_of_what_they_norm(tmp_path: Path) -> None:
    norm = node("GroupNormalization", ["x", "g", "b"], ["y"], num_groups=2)
    weights = [weight("g", 4), weight("b", 4)]
    proto = model([norm], [value("x", (1, 4, 3, 3))], [value("y")], weights, opset=21)
    built = cnn.read(save(proto, tmp_path))
    assert built.network.tensors["y"].shape == (1, 4, 3, 3)
    whole_model_agrees(built, tmp_path)


def test_a_resizing_of_named_axes_does_too(tmp_path: Path) -> None:
    nodes = [node("Resize", ["x", "", "f"], ["y"], axes=[-1]), node("Relu", ["y"], ["z"])]
    weights = [constant("f", [2.3], np.float32)]
    proto = model(nodes, [value("x", (1, 1, 2, 10))], [value("z")], weights, opset=19)
    built = cnn.read(save(proto, tmp_path))
    assert built.network.tensors["y"].shape == (1, 1, 2, 23)
    whole_model_agrees(built, tmp_path)


def test_an_input_of_which_only_the_shape_is_read_is_not_an_input_of_the_original(
    tmp_path: Path,
) -> None:
    nodes = [node("Shape", ["s"], ["n"]), node("Reshape", ["x", "n"], ["y"])]
    inputs = [value("x", (1, 8)), value("s", (2, 4))]
    built = cnn.read(save(model(nodes, inputs, [value("y")]), tmp_path))
    assert built.network.inputs == ("x",)
    whole_model_agrees(built, tmp_path)
