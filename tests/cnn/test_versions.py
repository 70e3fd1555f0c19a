"""Files state the least versions that they need, since engines refuse newer ones by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import defs, helper

import cnn
from cnn.operators.versions import NEWEST, common_version, least_version, same_in
from tests.cnn.models import convolution, node, save
from tests.cnn.test_bad_models import refused


def written(path: Path, folder: Path) -> list[onnx.ModelProto]:
    """The whole network as a subnet, and the original."""
    model = cnn.read(path)
    network = model.network
    cut = model.cut(network.layer, network.inputs, network.outputs, folder / "cut")
    original = model.write_original(folder / "original")
    return [onnx.load(file, load_external_data=False) for file in (cut.graph, original)]


def stated(proto: onnx.ModelProto) -> tuple[int, int]:
    return proto.ir_version, proto.opset_import[0].version


@pytest.mark.parametrize(("ir", "opset"), [(14, 17), (8, NEWEST), (14, NEWEST), (13, 26)])
def test_numbers_that_nothing_needs_are_not_repeated(tmp_path: Path, ir: int, opset: int) -> None:
    """Neither of these would be loaded by every engine, and `Identity` has changed since 17 only in
    the types that it takes."""
    proto = convolution((1, 3, 8, 8), node("Identity", ["y"], ["i"]), node("Relu", ["i"], ["z"]))
    proto.ir_version, proto.opset_import[0].version = ir, opset
    path = save(proto, tmp_path)
    assert [stated(x) for x in written(path, tmp_path)] == [(8, 17), (8, 17)]


def test_what_needs_a_newer_operator_set_keeps_the_least_that_has_it(tmp_path: Path) -> None:
    for operator, since in (("Gelu", 20), ("Swish", 24)):
        proto = convolution((1, 3, 8, 8), node(operator, ["y"], ["z"]))
        proto.opset_import[0].version = NEWEST
        assert {x.opset_import[0].version for x in written(save(proto, tmp_path), tmp_path)} == {
            since
        }


def test_old_files_keep_their_numbers(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"]))
    proto.ir_version, proto.opset_import[0].version = 6, 11
    assert [stated(x) for x in written(save(proto, tmp_path), tmp_path)] == [(6, 11), (6, 11)]


def test_an_operator_set_that_nobody_knows_is_refused_before_anything_else(tmp_path: Path) -> None:
    proto = convolution()
    proto.opset_import[0].version = NEWEST + 1
    refused(save(proto, tmp_path), f"operator set {NEWEST + 1} is newer than {NEWEST}")


def test_meanings_are_ranges_without_gaps_or_overlaps() -> None:
    schemas = [x for x in defs.get_all_schemas_with_history() if not x.domain and not x.deprecated]
    for schema in schemas:
        assert schema.since_version in same_in(schema.name, schema.since_version)
    assert same_in("Softmax", 12)[-1] == 12
    assert same_in("Softmax", 13)[0] == 13
    assert same_in("Upsample", 10) == range(0)
    assert same_in("NoSuchOperator", 17) == range(0)


def test_a_version_that_suits_all_is_one_in_which_all_mean_the_same() -> None:
    assert common_version([("ReduceMean", 17), ("ReduceMean", 18)]) is None
    assert common_version([("Softmax", 13), ("ReduceMean", 17)]) == 17
    assert common_version([("NoSuchOperator", 17)]) is None
    assert least_version(["ReduceMean", "Softmax"], NEWEST, 17) == 18
    assert least_version([], NEWEST, 17) == 17
    assert least_version(["Softmax"], 13, 17) == 13


@pytest.mark.parametrize("operator", ["Relu", "Identity", "Softplus", "Cast", "Flatten", "Round"])
def test_an_older_version_of_the_same_meaning_computes_the_same(operator: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    attributes = {"to": 7} if operator == "Cast" else {}
    results = []
    newest = same_in(operator, 26)
    for version in {newest[0], *newest} & set(range(12, 27)):
        graph = helper.make_graph(
            [helper.make_node(operator, ["x"], ["y"], **attributes)],
            "g",
            [helper.make_tensor_value_info("x", 1, x.shape)],
            [helper.make_empty_tensor_value_info("y")],
        )
        model = helper.make_model(
            graph, ir_version=8, opset_imports=[helper.make_opsetid("", version)]
        )
        session = onnxruntime.InferenceSession(model.SerializeToString())
        results.append(session.run(None, {"x": x})[0])
    assert all(np.array_equal(result, results[0]) for result in results)
