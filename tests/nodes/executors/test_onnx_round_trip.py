"""A subnet is loaded from what ONNX Runtime has written of it, and computes the same.

Names that its optimiser makes in a graph and in a body may be the same, which it then refuses to
load. Such a subnet is optimised less, or not at all.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from cnn.subnet import write
from csdf_edge.testing.executor_contract import OPTIONS
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.optimise import MODEL, open_prepared, optimise_lightly
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.preparing.entries import Job, PreparedFiles
from tests.arm64.marks import has_blocks
from tests.nodes.executors.bodies import CONTROLS, SHAPE, STAGES, network


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "subnet.onnx"
    onnx.save(model, path)
    return path


def frames(path: Path) -> list[dict[str, np.ndarray]]:
    """Two frames; conditions are true in the first and false in the second."""
    names = {value.name for value in onnx.load(path).graph.input}
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    found = ({"x": x, "condition": np.array(way)} for way in (True, False))
    return [{name: frame[name] for name in names} for frame in found]


def wanted(path: Path) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [session.run(["y"], frame)[0] for frame in frames(path)]


@pytest.mark.slow
@pytest.mark.parametrize("control", CONTROLS)
def test_whatever_is_in_a_body_computes_the_same(
    cpu: OnnxRuntimeExecutor, tmp_path: Path, control: str
) -> None:
    paths = [saved(network(control, stage), tmp_path / stage) for stage in STAGES]
    cpu.prepare(paths, OPTIONS)
    for path in paths:
        subnet = cpu.load(path, OPTIONS)
        for frame, right in zip(frames(path), wanted(path), strict=True):
            np.testing.assert_allclose(subnet.run(frame)["y"], right, atol=1e-4)
        subnet.close()


@pytest.mark.parametrize("optimisation", ["light", "off"])
@pytest.mark.parametrize("control", CONTROLS)
def test_less_optimisation_survives_the_round_trip(
    tmp_path: Path, control: str, optimisation: str
) -> None:
    """Nothing is left to fall back on behind `off`."""
    entries = PreparedFiles(tmp_path / "entries")
    for stage in STAGES:
        path = saved(network(control, stage), tmp_path / stage)
        job = Job(path, stage, f"onnxruntime-{stage}", optimisation=optimisation)
        optimise_lightly(job, OPTIONS, entries)
        found = entries.find(job.key)
        assert found is not None
        session = open_prepared(
            onnxruntime,
            found / MODEL,
            OPTIONS,
            packs=False,
            weights_in=path.parent if optimisation == "off" else None,
        )
        for frame, right in zip(frames(path), wanted(path), strict=True):
            np.testing.assert_allclose(session.run(["y"], frame)[0], right, atol=1e-4)


@has_blocks
def test_what_cannot_be_loaded_again_is_optimised_less_and_said_once(
    cpu: OnnxRuntimeExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = saved(network("If", "batch norm"), tmp_path / "if")
    other = saved(network("Loop", "product"), tmp_path / "loop")
    with caplog.at_level(logging.WARNING):
        cpu.prepare([path, other], OPTIONS)
        cpu.load(path, OPTIONS).close()
        cpu.load(other, OPTIONS).close()
    (line,) = (r.message for r in caplog.records if "optimised less instead" in r.message)
    assert "reorder_token_0" in line
    assert len(list((tmp_path / "derived").iterdir())) == 2


def test_a_file_that_no_variant_loads_is_refused_with_the_first_reason(
    cpu: OnnxRuntimeExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = network("If", "batch norm")
    model.graph.node[0].op_type = "NoSuchOperator"
    path = saved(model, tmp_path / "none")
    with caplog.at_level(logging.WARNING), pytest.raises(ExecutorError, match="NoSuchOperator"):
        cpu.prepare([path], OPTIONS)
    assert not caplog.records


def test_a_result_of_unknown_rank_varies(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    """ONNX Runtime says of its shape what it says of a scalar's."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float[2, 3] x, int64 n) => (float v, float[] scalar) {"
        "  yes = Constant<value = bool {1}>()"
        "  l = Loop(n, yes, x)<body = b (int64 i, bool c, float a) => (bool d, float e) {"
        "    d = Identity(c) e = Unsqueeze(a, nought) nought = Constant<value_ints = [0]>() } >"
        "  v = Relu(l) scalar = ReduceSum<keepdims = 0>(x) }"
    )
    loop = model.graph.node[1].attribute[0].g
    loop.node.insert(0, loop.node.pop())
    for value in (model.graph.output[0], *loop.input, *loop.output):
        if value.name in "vae":
            value.type.tensor_type.ClearField("shape")
    model.graph.output[1].type.tensor_type.shape.SetInParent()
    path = tmp_path / "rank.onnx"
    onnx.save(model, path)
    subnet = cpu.load(path, OPTIONS)
    assert subnet.outputs["v"].varies
    assert not subnet.outputs["scalar"].varies
    x = np.ones((2, 3), np.float32)
    for times in (0, 1, 3):
        made = subnet.run({"x": x, "n": np.array(times)})
        assert made["v"].shape == (1,) * times + (2, 3)
        assert made["scalar"].shape == ()


@pytest.mark.parametrize("inside", [False, True])
def test_even_unoptimised_half_precision_in_bodies_is_loaded_as_the_file_has_it(
    cpu: OnnxRuntimeExecutor, tmp_path: Path, inside: bool
) -> None:
    """On a processor without such kernels the engine inserts casts, of one name in graph and body.

    The weights stay in their own file, beside the subnet and not beside its entry.
    """
    kernel = np.random.default_rng(0).standard_normal((64, 16, 3, 3)).astype(np.float16)
    conv = helper.make_node("Conv", ["h", "k"], ["t"])
    then, other = (
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("t", 10, None)])
        for name, nodes in (
            ("then", [conv]),
            ("else", [*([conv] if inside else []), helper.make_node("Neg", ["h"], ["u"])]),
        )
    )
    other.output[0].name = "u"
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=10),
        helper.make_node("Softmax", ["h"], ["s"]),
        helper.make_node("If", ["condition"], ["b"], then_branch=then, else_branch=other),
        helper.make_node("Softmax", ["b"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["d"], keepdims=0),
        helper.make_node("Add", ["s", "d"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=1),
    ]
    graph = helper.make_graph(
        nodes,
        "half",
        [
            helper.make_tensor_value_info("x", 1, SHAPE),
            helper.make_tensor_value_info("condition", 9, []),
        ],
        [helper.make_tensor_value_info("y", 1, SHAPE)],
    )
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    path = write(proto, [("k", kernel)], tmp_path / "subnets").graph
    cpu.prepare([path], OPTIONS)
    subnet = cpu.load(path, OPTIONS)
    for frame in frames(path):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (right,) = session.run(["y"], frame)
        np.testing.assert_allclose(subnet.run(frame)["y"], right, atol=1e-3)
