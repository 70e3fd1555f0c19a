"""ONNX's operators of classical machine learning run behind a network, as exporters append them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import cnn
from cnn.operators import contrib
from tests.cnn.test_bad_models import refused

_TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
_SVM = {
    "coefficients": [1.0, -1.0],
    "support_vectors": [0.5] * 8,
    "kernel_type": "LINEAR",
    "kernel_params": [0.0, 0.0, 3.0],
}

CASES: Mapping[str, Mapping[str, object]] = {
    "ArrayFeatureExtractor": {},
    "Binarizer": {"threshold": 0.1},
    "FeatureVectorizer": {"inputdimensions": [4]},
    "Imputer": {"imputed_value_floats": [0.5], "replaced_value_float": 0.0},
    "LabelEncoder": {"keys_int64s": [0, 1], "values_floats": [5.0, 6.0]},
    "LinearClassifier": {
        "classlabels_ints": [0, 1, 2], "coefficients": [0.1 * x for x in range(12)],
        "intercepts": [0.0, 0.1, 0.2], "multi_class": 1, "post_transform": "SOFTMAX",
    },
    "LinearRegressor": {"coefficients": [0.5] * 8, "targets": 2},
    "Normalizer": {"norm": "L2"},
    "OneHotEncoder": {"cats_int64s": [0, 1, 2]},
    "SVMClassifier": {
        **_SVM, "classlabels_ints": [0, 1], "vectors_per_class": [1, 1], "rho": [0.1],
    },
    "SVMRegressor": {**_SVM, "n_supports": 2, "rho": [0.1]},
    "Scaler": {"offset": [0.5], "scale": [2.0]},
    "TreeEnsembleClassifier": {
        **_TREE, "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 1],
        "class_weights": [1.0, 1.0], "classlabels_int64s": [0, 1],
    },
    "TreeEnsembleRegressor": {
        **_TREE, "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 1],
        "target_weights": [1.0, 2.0], "n_targets": 2,
    },
    "TreeEnsemble": {
        "nodes_splits": numpy_helper.from_array(np.array([0.0], np.float32)),
        "nodes_featureids": [0], "nodes_falseleafs": [1], "nodes_truenodeids": [0],
        "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)),
        "nodes_trueleafs": [1], "nodes_falsenodeids": [1], "tree_roots": [0],
        "leaf_targetids": [0, 1], "n_targets": 2,
        "leaf_weights": numpy_helper.from_array(np.array([1.0, 2.0], np.float32)),
    },
}  # fmt: skip


def behind_a_network(operator: str, attributes: Mapping[str, object]) -> onnx.ModelProto:
    """Means of four channels, and such an operator on them."""
    takes_integers = operator in ("LabelEncoder", "OneHotEncoder")
    kernel = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    weights = [numpy_helper.from_array(kernel, "w")]
    read = ["i" if takes_integers else "m"]
    if operator == "ArrayFeatureExtractor":
        read.append("places")
        weights.append(numpy_helper.from_array(np.array([[0, 2]], np.int64), "places"))
    made = ["y", "scores"][: 2 if "Classifier" in operator else 1]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["m"]),
        *([helper.make_node("ArgMax", ["m"], ["i"], axis=1)] if takes_integers else []),
        helper.make_node(operator, read, made, "node", domain="ai.onnx.ml", **attributes),
    ]
    version = 5 if operator == "TreeEnsemble" else 3
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 3, 8, 8))
    outputs = [helper.make_empty_tensor_value_info(name) for name in made]
    return helper.make_model(
        helper.make_graph(nodes, "g", [x], outputs, weights),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)],
        ir_version=8,
    )


def test_every_operator_that_is_known_is_tried() -> None:
    assert CASES.keys() == contrib.ML_RULES.keys()


@pytest.mark.parametrize("operator", CASES)
def test_types_are_those_of_what_the_engine_makes(tmp_path: Path, operator: str) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(behind_a_network(operator, CASES[operator]), path)
    model = cnn.read(path)
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(path)
    wanted = dict(zip(model.outputs, session.run(None, {"x": x}), strict=True))
    whole = model.cut(model.network.layer, ["x"], list(wanted), tmp_path / "cut").graph
    made = onnxruntime.InferenceSession(whole).run(None, {"x": x})
    for found, (name, right) in zip(made, wanted.items(), strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5)
        tensor = model.network.tensors[name]
        assert (tensor.shape, tensor.dtype) == (right.shape, right.dtype.name)


def test_an_operator_on_maps_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(behind_a_network("ZipMap", {"classlabels_int64s": [0, 1, 2, 3]}), path)
    refused(path, r"'node' \(ZipMap\) of the domain 'ai.onnx.ml' is one that works on .* maps")
