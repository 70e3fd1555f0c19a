"""A model in bfloat16 is read in float32, with the exact values of its weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.external_data_helper import convert_model_to_external_data

import cnn
from tests.cnn.models import FLOAT, graph, model, node, run, save, value
from tests.cnn.whole import agrees

BFLOAT16 = onnx.TensorProto.BFLOAT16


def exact(*shape: int) -> np.ndarray:
    """Numbers of all sizes that bfloat16 has: float32 with the lower half of its bits zero."""
    generator = np.random.default_rng(0)
    values = generator.standard_normal(shape) * 10.0 ** generator.integers(-3, 3, shape)
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)


def weight(name: str, array: np.ndarray) -> onnx.TensorProto:
    bits = (array.view(np.uint32) >> 16).astype(np.uint16)
    return helper.make_tensor(name, BFLOAT16, array.shape, bits.tobytes(), raw=True)


def halved(directory: Path, *, outside: bool = False) -> Path:
    """As frameworks export it: float32 in and out, and everything between in bfloat16."""
    one = helper.make_tensor(
        "one", BFLOAT16, (1,), np.array([0x3F80], np.uint16).tobytes(), raw=True
    )
    branches = {
        f"{name}_branch": graph(
            [node("Cast", ["a"], ["c"], to=BFLOAT16)], name, [], [value("c", None, BFLOAT16)]
        )
        for name in ("then", "else")
    }
    nodes = [
        node("Constant", [], ["shape"], value_ints=[4]),
        node("Constant", [], ["yes"], value_int=1),
        node("Cast", ["yes"], ["is"], to=onnx.TensorProto.BOOL),
        node("ConstantOfShape", ["shape"], ["ones"], value=one),
        node("Cast", ["x"], ["h"], to=BFLOAT16),
        node("MatMul", ["h", "w"], ["m"]),
        node("Add", ["m", "ones"], ["a"]),
        node("If", ["is"], ["b"], **branches),
        node("Relu", ["b"], ["r"]),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ]
    proto = model(nodes, [value("x", (1, 64))], [value("y")], [weight("w", exact(64, 4))])
    proto.graph.value_info.append(value("m", (1, 4), BFLOAT16))
    if outside:
        convert_model_to_external_data(proto, location="weights.bin", size_threshold=0)
        path = directory / "outside.onnx"
        onnx.save(proto, path)
        return path
    return save(proto, directory)


@pytest.mark.parametrize("outside", [False, True], ids=["in the file", "beside it"])
def test_weights_keep_their_exact_values(outside: bool, tmp_path: Path) -> None:
    found = cnn.read(halved(tmp_path, outside=outside))
    np.testing.assert_array_equal(found.weights["w"], exact(64, 4))
    assert {tensor.dtype for tensor in found.network.tensors.values()} == {"float32"}


def test_it_runs_where_no_engine_runs_bfloat16(tmp_path: Path) -> None:
    path = halved(tmp_path)
    frame = {"x": np.ones((1, 64), np.float32)}
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        run(path, frame)
    (result,) = agrees(cnn.read(path), tmp_path, frame)
    expected = np.maximum(frame["x"] @ exact(64, 4) + 1, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_inputs_and_outputs_in_bfloat16_are_float32_too(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "w"], ["y"])]
    ends = [value("x", (1, 4), BFLOAT16)], [value("y", None, BFLOAT16)]
    found = cnn.read(save(model(nodes, *ends, [weight("w", exact(4))]), tmp_path))
    assert found.network.tensors["x"].dtype == found.network.tensors["y"].dtype == "float32"
    agrees(found, tmp_path)


def test_a_constant_that_is_cut_short_is_reported(tmp_path: Path) -> None:
    short = helper.make_tensor("c", BFLOAT16, (2,), b"\0" * 4, raw=True)
    short.raw_data = b"\0\0"
    nodes = [node("Constant", [], ["c"], value=short), node("Cast", ["x"], ["y"], to=FLOAT)]
    path = save(model(nodes, [value("x", (1, 4))], [value("y")]), tmp_path)
    with pytest.raises(
        cnn.ModelError, match="the constant 'c' does not contain the values of its shape"
    ):
        cnn.read(path)
