"""Subnets that take and make tensors in blocks of channels compute what they computed before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, largest_error, some_inputs
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.borders import check_block, in_blocks, with_blocked_borders
from nodes.executors.onnx.optimise import MODEL, optimise_lightly
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.onnx.sessions import import_onnxruntime, loading_options
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.host.processor import channels_per_block
from nodes.protocol.payload import Array
from tests.nodes.executors.test_onnx_blocking import MERGING, conversions, residual

BLOCK = channels_per_block()

pytestmark = pytest.mark.skipif(BLOCK == 1, reason="no blocks are known for this processor")

SHAPE = (1, 32, 8, 8)


def network(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """x → … → outputs, all of one shape, with a weight w."""
    weights = {"w": np.random.default_rng(0).standard_normal((32, 32, 1, 1)).astype(np.float32)}
    made = [(name, TensorProto.FLOAT, SHAPE) for name in outputs]
    return models.model("small", list(nodes), [("x", TensorProto.FLOAT, SHAPE)], made, weights)


CONVOLUTION = helper.make_node("Conv", ["x", "w"], ["y"])

NETWORKS = {
    **{operator: residual(operator) for operator in MERGING},
    "a convolution": network(CONVOLUTION),
    "nothing in blocks": network(helper.make_node("Softmax", ["x"], ["y"], axis=1)),
    "in blocks inside only": network(
        helper.make_node("Softmax", ["x"], ["a"], axis=1),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"], axis=1),
    ),
    "read in both orders": network(
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Softmax", ["x"], ["b"], axis=1),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ),
    "made and read inside": network(
        CONVOLUTION,
        helper.make_node("Softmax", ["y"], ["a"], axis=1),
        helper.make_node("Conv", ["a", "w"], ["z"]),
        outputs=("y", "z"),
    ),
}


def loaded(model: onnx.ModelProto, folder: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """The outputs of a subnet whose inputs and outputs `names` are in blocks, all in the usual
    order."""
    path = models.save(model, folder)
    executor = OnnxRuntimeExecutor(folder / "derived")
    subnet = executor.load(path, replace(OPTIONS, block=BLOCK, in_blocks={str(path): names}))
    inputs = some_inputs(subnet)
    given = {n: in_blocks(a, BLOCK) if n in names else a for n, a in inputs.items()}
    outputs = subnet.run(given)
    subnet.close()
    executor.close()
    return {n: in_usual_order(a) if n in names else a for n, a in outputs.items()}


def in_usual_order(array: Array) -> Array:
    frames, channels, rows, columns = array.shape
    divided = array.reshape(frames, channels // BLOCK, rows, columns, BLOCK)
    return np.ascontiguousarray(divided.transpose(0, 1, 4, 2, 3)).reshape(array.shape)


def borders(model: onnx.ModelProto) -> tuple[str, ...]:
    return tuple(value.name for value in (*model.graph.input, *model.graph.output))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_subnet_computes_the_same_with_any_of_its_borders_in_blocks(
    tmp_path: Path, name: str
) -> None:
    model = NETWORKS[name]
    expected = loaded(model, tmp_path / "usual", ())
    for number, names in enumerate((borders(model), borders(model)[:1], borders(model)[1:])):
        found = loaded(model, tmp_path / str(number), names)
        assert found.keys() == expected.keys()
        for output, array in found.items():
            assert largest_error(array, expected[output]) < 1e-6


@pytest.mark.parametrize("name", [*MERGING, "a convolution"])
def test_nothing_is_converted_at_borders_in_blocks(tmp_path: Path, name: str) -> None:
    loaded(NETWORKS[name], tmp_path, borders(NETWORKS[name]))
    (file,) = (tmp_path / "derived").glob("*/model.onnx")
    assert conversions(onnx.load(file, load_external_data=False)) == 0


def test_a_subnet_that_was_optimised_with_little_memory_is_converted(tmp_path: Path) -> None:
    path = models.save(NETWORKS["a convolution"], tmp_path)
    job = Job(path, "small", "onnxruntime-0-0-light", optimisation="light", in_blocks=("x", "y"))
    cache = PreparedFiles(tmp_path / "derived")
    optimise_lightly(job, LoadOptions(block=BLOCK), cache)
    model = onnx.load(tmp_path / "derived" / job.key / MODEL, load_external_data=False)
    assert conversions(model) == 2


def test_another_order_of_the_same_subnet_is_prepared_for_itself(tmp_path: Path) -> None:
    path = models.save(NETWORKS["a convolution"], tmp_path)
    executor = OnnxRuntimeExecutor(tmp_path / "derived")
    for names in ((), ("x",), ("x", "y"), ("x",)):
        executor.prepare([path], LoadOptions(block=BLOCK, in_blocks={str(path): names}))
    assert len([*(tmp_path / "derived").glob("*/model.onnx")]) == 3
    executor.close()


def test_a_subnet_whose_tensors_cannot_be_in_blocks_is_refused(tmp_path: Path) -> None:
    path = models.save(NETWORKS["a convolution"], tmp_path)
    executor = OnnxRuntimeExecutor(tmp_path / "derived")
    with pytest.raises(ExecutorError, match="no input or output 'z'"):
        executor.load(path, LoadOptions(block=BLOCK, in_blocks={str(path): ("z",)}))
    with pytest.raises(ExecutorError, match=f"blocks of another size here than the {3 * BLOCK}"):
        executor.load(path, LoadOptions(block=3 * BLOCK, in_blocks={str(path): ("x",)}))
    executor.close()


def test_operators_with_graphs_inside_are_refused() -> None:
    model = network(CONVOLUTION)
    inner = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([helper.make_node("Identity", ["x"], ["inner"])], "b", [], [inner])
    branches = {"then_branch": body, "else_branch": body}
    model.graph.node.append(helper.make_node("If", ["condition"], ["z"], **branches))
    with pytest.raises(ExecutorError, match="contains a graph"):
        with_blocked_borders(model.SerializeToString(), ("x",))


def test_the_engine_has_the_blocks_that_agents_offer() -> None:
    ort = import_onnxruntime()
    options = loading_options(ort, OPTIONS, optimised=True)
    check_block(ort, options, BLOCK)
    with pytest.raises(ExecutorError, match="blocks of another size"):
        check_block(ort, options, 2 * BLOCK)
