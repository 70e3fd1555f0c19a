"""ONNX Runtime's own operators: their types are those that ONNX Runtime makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import cnn
from cnn.operators import contrib
from cnn.rewrite.rewrites import Bands, Slices
from tests.cnn import models
from tests.cnn.test_bands import outputs

Given = np.ndarray | None

R = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def whole(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    return R.integers(0, 100, shape).astype(dtype)


SCALE, ZERO = np.array(0.02, np.float32), np.array(3, np.uint8)
FACTORS = (SCALE, ZERO)
ONE = np.array([0.02], np.float32)

LSTM: Sequence[Given] = [
    *(floats(4, 2, 3), whole(2, 3, 20), whole(2, 5, 20), None, None, None, None, None),
    *(np.full(2, 0.02, np.float32), np.full(2, 3, np.uint8)) * 2,
]
ATTENTION: Sequence[Given] = [floats(2, 5, 8), floats(8, 24), floats(24)]
GROUPED: Sequence[Given] = [floats(1, 2, 6, 7), floats(4, 1, 3, 3)]
TURNED = {"transBatchA": 1, "transA": 1}
GROUPS = {"activation": "Relu", "group": 2, "strides": [2, 1], "pads": [1, 0, 1, 2]}

CASES: Sequence[tuple[str, Sequence[Given], dict[str, object]]] = [
    ("Attention", ATTENTION, {"num_heads": 2}),
    (
        "Attention",
        [floats(1, 5, 8), floats(8, 20), floats(20)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]},
    ),
    ("BiasGelu", [floats(2, 3, 4), floats(4)], {}),
    ("DequantizeLinear", [whole(2, 3), *FACTORS], {}),
    ("DequantizeLinear", [whole(2, 3, dtype=np.int16), SCALE, np.array(0, np.int16)], {}),
    (
        "DynamicQuantizeLSTM",
        LSTM,
        {"hidden_size": 5, "direction": "bidirectional"},
    ),
    ("DynamicQuantizeMatMul", [floats(2, 3, 4), whole(4, 5), ONE], {}),
    (
        "EmbedLayerNormalization",
        [
            *(whole(2, 5, dtype=np.int32) % 7, None, floats(7, 8), floats(5, 8), None),
            *(floats(8), floats(8)),
        ],
        {},
    ),
    ("FastGelu", [floats(2, 3), floats(3)], {}),
    ("FusedConv", [floats(1, 2, 6, 7), floats(4, 2, 3, 3), floats(4)], {"activation": "Relu"}),
    ("FusedConv", GROUPED, GROUPS),
    ("FusedGemm", [floats(4, 2), floats(5, 4)], {"activation": "Relu", "transA": 1, "transB": 1}),
    ("FusedMatMul", [floats(2, 3, 4), floats(2, 5, 4)], {"transB": 1}),
    ("FusedMatMul", [floats(4, 3, 2), floats(2, 3, 5)], {"transBatchA": 1, "transBatchB": 1}),
    ("FusedMatMul", [floats(4, 3, 2), floats(3, 4, 5)], TURNED),
    ("Gelu", [floats(2, 3)], {}),
    ("MatMulIntegerToFloat", [whole(2, 3, 4), whole(4, 5), SCALE, SCALE, ZERO, ZERO], {}),
    (
        "MatMulNBits",
        [floats(2, 3, 32), whole(8, 2, 8), abs(floats(8, 2))],
        {"K": 32, "N": 8, "bits": 4, "block_size": 16},
    ),
    ("MultiHeadAttention", [floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 4)], {"num_heads": 2}),
    (
        "MultiHeadAttention",
        [floats(2, 5, 8), floats(2, 2, 6, 4), floats(2, 2, 6, 4)],
        {"num_heads": 2},
    ),
    (
        "QAttention",
        [whole(2, 5, 8), whole(8, 24), floats(24), SCALE, SCALE, None, ZERO, ZERO],
        {"num_heads": 2},
    ),
    ("QGemm", [whole(2, 4), *FACTORS, whole(4, 5), *FACTORS], {}),
    ("QGemm", [whole(2, 4), *FACTORS, whole(5, 4), *FACTORS, None, *FACTORS], {"transB": 1}),
    ("QLinearAdd", [whole(1, 2, 3), *FACTORS, whole(2, 1), *FACTORS, *FACTORS], {}),
    (
        "QLinearAveragePool",
        [whole(1, 2, 6, 7), *FACTORS, *FACTORS],
        {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1},
    ),
    (
        "QLinearConcat",
        [*FACTORS, whole(1, 2, 3), *FACTORS, whole(1, 4, 3), *FACTORS],
        {"axis": 1},
    ),
    ("QLinearGlobalAveragePool", [whole(1, 2, 6, 7), *FACTORS, *FACTORS], {"channels_last": 0}),
    ("QLinearLeakyRelu", [whole(2, 3), *FACTORS, *FACTORS], {"alpha": 0.1}),
    ("QLinearMul", [whole(1, 2, 3), *FACTORS, whole(1), *FACTORS, *FACTORS], {}),
    ("QLinearSigmoid", [whole(2, 3), *FACTORS, *FACTORS], {}),
    ("QLinearSoftmax", [whole(2, 3), *FACTORS, *FACTORS], {"axis": 1, "opset": 13}),
    (
        "QLinearWhere",
        [whole(2, 1) > 50, whole(3), *FACTORS, whole(2, 3), *FACTORS, *FACTORS],
        {},
    ),
    ("QuantizeLinear", [floats(2, 3), *FACTORS], {}),
    ("QuantizeLinear", [floats(2, 3), SCALE, np.array(0, np.int16)], {}),
    ("QuickGelu", [floats(2, 3)], {"alpha": 1.7}),
    (
        "RotaryEmbedding",
        [floats(1, 3, 8), np.arange(3, dtype=np.int64)[None], floats(4, 2), floats(4, 2)],
        {"num_heads": 2},
    ),
    ("SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8)], {}),
    ("SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8)], {}),
    ("TransposeMatMul", [floats(2, 4, 3), floats(2, 4, 5)], {"transA": 1}),
]


def described(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def saved(
    folder: Path,
    operator: str,
    inputs: Sequence[Given],
    attributes: dict[str, object],
    *,
    outputs: int = 1,
    weights: Collection[int] = (),
    domain: str = contrib.DOMAIN,
    opset: int = 13,
) -> Path:
    """One such operator; its inputs are the network's but for single numbers and `weights`."""
    names = ["" if array is None else f"i{number}" for number, array in enumerate(inputs)]
    made = [f"o{number}" for number in range(outputs)]
    node = helper.make_node(operator, names, made, "node", domain=domain, **attributes)
    is_constant = [
        array is not None and (array.size == 1 or number in weights)
        for number, array in enumerate(inputs)
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [
            described(name, array)
            for name, array, constant in zip(names, inputs, is_constant, strict=True)
            if array is not None and not constant
        ],
        [helper.make_empty_tensor_value_info(name) for name in made],
        [
            onnx.numpy_helper.from_array(array, name)
            for name, array, constant in zip(names, inputs, is_constant, strict=True)
            if array is not None and constant
        ],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(contrib.DOMAIN, 1)]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def run(path: Path, inputs: Sequence[Given]) -> list[np.ndarray]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    feed = {f"i{n}": array for n, array in enumerate(inputs) if f"i{n}" in wanted}
    return session.run(None, feed)


def test_every_operator_that_is_known_is_tried() -> None:
    assert {operator for operator, *_ in CASES} == contrib.RULES.keys()


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    CASES,
    ids=[f"{operator}-{number}" for number, (operator, *_) in enumerate(CASES)],
)
def test_types_are_those_of_what_the_engine_makes(
    tmp_path: Path, operator: str, inputs: Sequence[Given], attributes: dict[str, object]
) -> None:
    outputs = 2 if operator == "EmbedLayerNormalization" else 1  # ONNX Runtime wants its second
    path = saved(tmp_path, operator, inputs, attributes, outputs=outputs)
    model = cnn.read(path)
    made = run(path, inputs)[0]
    tensor = model.network.tensors["o0"]
    assert (tensor.shape, tensor.dtype) == (made.shape, made.dtype.name)
    whole_subnet = model.cut(["node"], model.network.inputs, ["o0"], tmp_path / "cut").graph
    np.testing.assert_array_equal(run(whole_subnet, inputs)[0], made)


@pytest.mark.parametrize(
    ("operator", "outputs", "inputs"),
    [
        ("DynamicQuantizeLSTM", 3, LSTM),
        ("SkipLayerNormalization", 1, [floats(2, 3, 8), floats(2, 3, 8), floats(8)]),
    ],
)
def test_further_outputs_have_types_of_their_own(
    tmp_path: Path, operator: str, outputs: int, inputs: Sequence[Given]
) -> None:
    attributes = {"hidden_size": 5, "direction": "bidirectional"} if outputs > 1 else {}
    path = saved(tmp_path, operator, inputs, attributes, outputs=outputs)
    network = cnn.read(path).network
    for name, made in zip(network.outputs, run(path, inputs), strict=True):
        assert network.tensors[name].shape == made.shape


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_normalisation_may_stand_in_an_operator_set_that_does_not_have_it(
    tmp_path: Path, operator: str
) -> None:
    inputs = [floats(2, 3, 8), floats(8)]
    path = saved(tmp_path, operator, inputs, {"axis": -1}, domain="", opset=12)
    assert cnn.read(path).network.tensors["o0"].shape == run(path, inputs)[0].shape


@pytest.mark.parametrize(
    ("domain", "operator", "sentence"),
    [
        ("com.microsoft", "BeamSearch", "its quantizer and optimiser write"),
        ("com.microsoft", "EPContext", "its quantizer and optimiser write"),
        ("com.microsoft.nchwc", "Conv", "for the processor of one machine.*level `extended`"),
        ("my.ops", "Swirl", "of the domain 'my.ops' is a custom operator"),
    ],
)
def test_other_operators_are_refused_by_name(
    tmp_path: Path, domain: str, operator: str, sentence: str
) -> None:
    path = saved(tmp_path, operator, [floats(1, 2)], {}, domain=domain)
    with pytest.raises(cnn.ModelError, match=sentence) as refused:
        cnn.read(path)
    assert f"layer 'node' ({operator})" in str(refused.value)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("QLinearAdd", [whole(2, 3), *FACTORS, whole(2, 4), *FACTORS, *FACTORS], {}),
        ("FusedMatMul", [floats(2, 3), floats(4, 5)], {}),
        ("FusedConv", [floats(2, 3), floats(4, 5)], {"activation": "Relu"}),
        ("QLinearGlobalAveragePool", [whole(1, 6, 7, 2), *FACTORS, *FACTORS], {"channels_last": 1}),
        ("DynamicQuantizeLSTM", [floats(3)], {}),
        ("QLinearConcat", [*FACTORS], {"axis": 0}),
        ("Attention", [floats(2, 5, 8), floats(8)], {"qkv_hidden_sizes": [8, 8, 4]}),
        ("Attention", ATTENTION, {"qkv_hidden_sizes": [8, 8, -4]}),
        ("MultiHeadAttention", [floats(2, 5, 8), None, floats(2, 6, 4)], {"num_heads": 2}),
        ("FusedMatMul", [floats(2, 3), floats(3, 5)], {"transA": [1, 2]}),
    ],
)
def test_operands_that_do_not_fit_are_refused_in_a_sentence(
    tmp_path: Path, operator: str, inputs: Sequence[Given], attributes: dict[str, object]
) -> None:
    with pytest.raises(cnn.ModelError):
        cnn.read(saved(tmp_path, operator, inputs, attributes))


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "macs"),
    [
        ("FusedConv", GROUPED, GROUPS, 4 * 3 * 7 * 9),
        ("FusedGemm", [floats(4, 2), floats(4, 5)], {"activation": "Relu", "transA": 1}, 2 * 4 * 5),
        ("FusedMatMul", [floats(2, 3, 4), floats(2, 5, 4)], {"transB": 1}, 2 * 3 * 4 * 5),
        ("FusedMatMul", [floats(4, 3, 2), floats(3, 4, 5)], TURNED, 3 * 2 * 4 * 5),
        ("QGemm", [whole(2, 4), *FACTORS, whole(4, 5), *FACTORS], {}, 2 * 4 * 5),
        ("MatMulIntegerToFloat", [whole(3, 4), whole(4, 5), SCALE, SCALE], {}, 3 * 4 * 5),
        ("DynamicQuantizeMatMul", [floats(3, 4), whole(4, 5), ONE], {}, 3 * 4 * 5),
        ("Attention", ATTENTION, {"num_heads": 2}, 2 * 5 * 8 * 24 + 2 * (2 * 5 * 5 * 8)),
        (
            "MultiHeadAttention",
            [floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 4)],
            {"num_heads": 2},
            2 * 5 * 6 * (8 + 4),
        ),
        ("QLinearAdd", [whole(1, 2), *FACTORS, whole(2, 1), *FACTORS, *FACTORS], {}, 0),
    ],
)
def test_multiply_accumulates_are_those_of_the_standard_operators(
    tmp_path: Path,
    operator: str,
    inputs: Sequence[Given],
    attributes: dict[str, object],
    macs: int,
) -> None:
    model = cnn.read(saved(tmp_path, operator, inputs, attributes))
    assert sum(layer.macs for layer in model.network.layers) == macs


IMAGE, OTHER = whole(1, 6, 8, 5), whole(1, 6, 8, 5)
COLUMNS = np.linspace(0.01, 0.03, 5).astype(np.float32)

PARTS: Sequence[tuple[str, Sequence[Given], dict[str, object], Collection[int], str]] = [
    ("DequantizeLinear", [IMAGE, *FACTORS], {}, (), "both"),
    ("DynamicQuantizeMatMul", [floats(3, 4), whole(4, 5), COLUMNS], {}, (1, 2), "slices"),
    ("FusedConv", [floats(1, 2, 6, 7), *GROUPED[1:]], GROUPS, (1,), "both"),
    (
        "FusedConv",
        [floats(1, 2, 6, 7), floats(4, 2, 3, 3), floats(4)],
        {"activation": "Relu", "pads": [1, 1, 1, 1]},
        (1, 2),
        "both",
    ),
    (
        "FusedGemm",
        [floats(3, 4), floats(4, 5), floats(5)],
        {"activation": "Relu"},
        (1, 2),
        "slices",
    ),
    ("Gelu", [floats(1, 6, 8, 5)], {}, (), "both"),
    (
        "MatMulIntegerToFloat",
        [whole(3, 4), whole(4, 5), SCALE, COLUMNS, ZERO, None, floats(5)],
        {},
        (1, 3, 6),
        "slices",
    ),
    (
        "QGemm",
        [whole(3, 4), *FACTORS, whole(5, 4), COLUMNS, np.full(5, 3, np.uint8), None, *FACTORS],
        {"transB": 1},
        (3, 4, 5),
        "slices",
    ),
    ("QLinearAdd", [IMAGE, *FACTORS, OTHER, *FACTORS, *FACTORS], {}, (), "both"),
    ("QLinearAdd", [IMAGE, *FACTORS, whole(6, 1, 1), *FACTORS, *FACTORS], {}, (3,), "both"),
    (
        "QLinearAveragePool",
        [IMAGE, *FACTORS, *FACTORS],
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]},
        (),
        "both",
    ),
    ("QLinearGlobalAveragePool", [IMAGE, *FACTORS, *FACTORS], {"channels_last": 0}, (), "slices"),
    ("QLinearLeakyRelu", [IMAGE, *FACTORS, *FACTORS], {"alpha": 0.1}, (), "both"),
    ("QLinearMul", [IMAGE, *FACTORS, OTHER[:, :, :1, :1], *FACTORS, *FACTORS], {}, (), "both"),
    ("QLinearSigmoid", [IMAGE, *FACTORS, *FACTORS], {}, (), "both"),
    ("QLinearSoftmax", [IMAGE, *FACTORS, *FACTORS], {"axis": 1, "opset": 13}, (), "neither"),
    ("QLinearConcat", [*FACTORS, IMAGE, *FACTORS, OTHER, *FACTORS], {"axis": 1}, (), "bands"),
    ("QLinearConcat", [*FACTORS, IMAGE, *FACTORS, OTHER, *FACTORS], {"axis": 2}, (), "neither"),
    ("SkipLayerNormalization", [floats(2, 3, 8)] * 2 + [floats(8)] * 2, {}, (2, 3), "neither"),
    ("Attention", ATTENTION, {"num_heads": 2}, (1, 2), "neither"),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "weights", "how"),
    PARTS,
    ids=[f"{operator}-{number}" for number, (operator, *_) in enumerate(PARTS)],
)
def test_parts_compute_what_the_whole_does_or_there_are_none(
    tmp_path: Path,
    operator: str,
    inputs: Sequence[Given],
    attributes: dict[str, object],
    weights: Collection[int],
    how: str,
) -> None:
    path = saved(tmp_path, operator, inputs, attributes, weights=weights)
    built = cnn.read(path)
    frame = {f"i{n}": array for n, array in enumerate(inputs) if f"i{n}" in built.network.inputs}
    expected = models.run(path, frame)[0]
    channels = built.slice_channels()
    assert ("node" in channels) == (how in ("slices", "both"))
    assert (built.band_layers() == ("node",)) == (how in ("bands", "both"))
    rewrites: list[Slices | Bands] = []
    if "node" in channels:
        rewrites.append(Slices("node", tuple(x for x in channels["node"].divide([1, 2]) if x)))
    if built.band_layers():
        height = built.fused(["node"]).height
        rewrites.append(Bands(("node",), (1, height - 1)))
    for rewrite in rewrites:
        found = outputs(built.rewritten([rewrite]), frame, tmp_path)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
