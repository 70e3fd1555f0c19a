"""Each layer of a quantised network is fused as in the whole one, whatever stands between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import cnn
from cnn.simplify.quantisers import MOVERS
from tests.cnn.models import constant, model, node, run, save, value

SHAPE = (1, 8, 16, 16)
CONSTANTS = [
    constant("s", 0.0537, np.float32),
    constant("z", 7, np.uint8),
    constant("wide", 0.3701, np.float32),
    constant("middle", 120, np.uint8),
    constant("kernel", np.random.default_rng(0).integers(-90, 91, (8, 8, 3, 3)), np.int8),
    constant("ks", np.linspace(0.008, 0.012, 8), np.float32),
    constant("kz", [0] * 8, np.int8),
    constant("shape", [1, 8, 8, 32]),
    constant("first", [0]),
    constant("two", [2]),
    constant("ten", [10]),
    constant("half", 0.5, np.float32),
]
"""Scales that floats do not represent exactly, so that rounding tells what was fused."""

MOVES = {
    "MaxPool": [node("MaxPool", ["a"], ["b"], "move", kernel_shape=[2, 2])],
    "Reshape": [node("Reshape", ["a", "shape"], ["b"], "move")],
    "Slice": [node("Slice", ["a", "two", "ten", "two"], ["b"], "move")],
    "Transpose": [node("Transpose", ["a"], ["b"], "move", perm=[0, 1, 3, 2])],
    "Squeeze": [
        node("Unsqueeze", ["a", "first"], ["longer"], "move"),
        node("Transpose", ["longer"], ["turned"], "turn", perm=[0, 1, 2, 4, 3]),
        node("Squeeze", ["turned", "first"], ["b"], "back"),
    ],
}


def renamed(nodes: list[onnx.NodeProto], names: dict[str, str]) -> list[onnx.NodeProto]:
    found = []
    for each in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(each)
        copy.input[:] = [names.get(name, name) for name in each.input]
        copy.output[:] = [names.get(name, name) for name in each.output]
        found.append(copy)
    return found


def quantise(source: str, made: str, scale: str = "wide", zero: str = "middle") -> onnx.NodeProto:
    return node("QuantizeLinear", [source, scale, zero], [made], made)


def floats(source: str, made: str, scale: str = "wide", zero: str = "middle") -> onnx.NodeProto:
    return node("DequantizeLinear", [source, scale, zero], [made], made)


def convolution(source: str, made: str) -> list[onnx.NodeProto]:
    weights = node("DequantizeLinear", ["kernel", "ks", "kz"], [f"{made}.k"], f"{made}.k", axis=0)
    return [weights, node("Conv", [source, f"{made}.k"], [made], made, pads=[1, 1, 1, 1])]


def first_convolution() -> list[onnx.NodeProto]:
    return [quantise("x", "xq", "s", "z"), floats("xq", "xf", "s", "z"), *convolution("xf", "c")]


def second_convolution(source: str) -> list[onnx.NodeProto]:
    return [*convolution(source, "d"), quantise("d", "dq"), floats("dq", "y")]


def read(nodes: list[onnx.NodeProto], folder: Path, *more: str, opset: int = 13) -> cnn.Model:
    outputs = [value(name) for name in ("y", *more)]
    return cnn.read(save(model(nodes, [value("x", SHAPE)], outputs, CONSTANTS, opset), folder))


def frame() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 4, SHAPE).astype(np.float32)


def optimised(path: Path, fed: dict[str, np.ndarray], folder: Path) -> tuple[list, list[str]]:
    """What an engine that fuses makes of a model, and the operators that it then has."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    written = onnx.load(folder / "optimised.onnx", load_external_data=False)
    return session.run(None, fed), [x.op_type for x in written.graph.node]


def is_fused_alike(built: cnn.Model, folder: Path) -> None:
    """Layers that run one by one compute what the whole file does, in the same operators."""
    expected, whole = optimised(folder / "model.onnx", {"x": frame()}, folder)
    held, alone = {"x": frame()}, []
    for layer in built.network.layers:
        subnet = built.cut([layer.name], layer.inputs, layer.outputs, folder).graph
        made, operators = optimised(subnet, {name: held[name] for name in layer.inputs}, folder)
        held.update(zip(layer.outputs, made, strict=True))
        alone += operators
    computing = [sorted(x for x in found if x not in MOVERS) for found in (alone, whole)]
    assert computing[0] == computing[1]
    for name, wanted in zip(built.network.outputs, expected, strict=True):
        np.testing.assert_array_equal(held[name], wanted)


def crossing(built: cnn.Model) -> set[str]:
    """The types of the tensors between layers."""
    network = built.network
    ends = {*network.inputs, *network.outputs}
    return {x.dtype for name, x in network.tensors.items() if name not in ends}


def test_the_examples_have_every_operator_that_quantisers_are_moved_over() -> None:
    assert {each.op_type for moves in MOVES.values() for each in moves} == MOVERS


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_an_operator_after_a_dequantiser_moves_8_bits(
    moves: list[onnx.NodeProto], tmp_path: Path
) -> None:
    moved = renamed(moves, {"a": "f"})
    nodes = [*first_convolution(), quantise("c", "q"), floats("q", "f"), *moved]
    built = read([*nodes, *second_convolution("b")], tmp_path)
    assert crossing(built) == {"uint8"}
    is_fused_alike(built, tmp_path)


@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
def test_an_operator_in_front_of_a_quantiser_moves_8_bits(
    moves: list[onnx.NodeProto], tmp_path: Path
) -> None:
    moved = renamed(moves, {"a": "c"})
    nodes = [*first_convolution(), *moved, quantise("b", "q"), floats("q", "f")]
    built = read([*nodes, *second_convolution("f")], tmp_path)
    assert crossing(built) == {"uint8"}
    is_fused_alike(built, tmp_path)


def test_an_operator_between_quantisers_stays_one_layer_with_both(tmp_path: Path) -> None:
    nodes = [*first_convolution(), quantise("c", "q"), floats("q", "f"), *MOVES["Transpose"]]
    nodes = renamed(nodes, {"a": "f"})
    built = read([*nodes, quantise("b", "p"), *second_convolution("g"), floats("p", "g")], tmp_path)
    assert built.network.layer["move"].inputs == ("q",)
    assert built.network.layer["move"].outputs == ("p",)


def test_a_pool_stays_in_floats_where_the_operator_set_has_none_for_8_bits(tmp_path: Path) -> None:
    moved = renamed(MOVES["MaxPool"], {"a": "f"})
    nodes = [*first_convolution(), quantise("c", "q"), floats("q", "f"), *moved]
    for each in nodes:
        if each.name == "c.k":
            del each.attribute[:]
    constants = [x for x in CONSTANTS if x.name not in ("ks", "kz")]
    constants += [constant("ks", 0.01, np.float32), constant("kz", 0, np.int8)]
    proto = model([*nodes, quantise("b", "y")], [value("x", SHAPE)], [value("y", None, 2)],
                  constants, 11)  # fmt: skip
    built = cnn.read(save(proto, tmp_path))
    assert built.network.layer["move"].inputs == ("q",)
    subnet = built.cut(built.network.layer, ["x"], ["y"], tmp_path).graph
    expected = run(tmp_path / "model.onnx", {"x": frame()})[0]
    np.testing.assert_array_equal(run(subnet, {"x": frame()})[0], expected)


def test_what_is_read_and_an_output_too_is_read_in_8_bits(tmp_path: Path) -> None:
    nodes = [*first_convolution(), quantise("c", "q"), floats("q", "f"), *second_convolution("f")]
    built = read(nodes, tmp_path, "f")
    assert built.network.layer["d"].inputs == ("q",)
    is_fused_alike(built, tmp_path)


@pytest.mark.parametrize(
    "between",
    [
        [node("Sigmoid", ["c"], ["b"], "between")],
        [node("HardSwish", ["c"], ["b"], "between")],
        [node("Div", ["c", "half"], ["h"], "halve"), node("Erf", ["h"], ["b"], "between")],
    ],
    ids=["Sigmoid", "HardSwish", "Div, Erf"],
)
def test_what_works_element_by_element_in_front_of_a_quantiser_belongs_to_the_layer(
    between: list[onnx.NodeProto], tmp_path: Path
) -> None:
    nodes = [*first_convolution(), *between, quantise("b", "q"), floats("q", "f")]
    built = read([*nodes, *second_convolution("f")], tmp_path, opset=14)
    assert built.network.layer["c"].outputs == ("q",)
    assert crossing(built) == {"uint8"}
    is_fused_alike(built, tmp_path)


def test_a_product_with_a_constant_per_channel_does_not(tmp_path: Path) -> None:
    factors = node("Mul", ["c", "ks8"], ["b"], "scale")
    nodes = [*first_convolution(), node("Sigmoid", ["c"], ["g"], "gate"), factors]
    nodes = renamed(nodes, {"ks8": "per_channel"})
    nodes[-1].input[0] = "g"
    proto = model(
        [*nodes, quantise("b", "y")],
        [value("x", SHAPE)],
        [value("y", None, 2)],
        [*CONSTANTS, constant("per_channel", np.arange(1, 9).reshape(1, 8, 1, 1), np.float32)],
        13,
    )
    built = cnn.read(save(proto, tmp_path))
    assert built.network.layer["scale"].outputs == ("y",)
    assert built.network.layer["scale"].inputs == ("g",)
