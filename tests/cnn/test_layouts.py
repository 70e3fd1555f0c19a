"""Transpositions that only change the order in which operators see the axes are removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from tests.agreement.comparison import LIMIT, random_frame, relative_error
from tests.cnn.models import constant, graph, model, node, run, save, value, weight

SHAPE = (1, 5, 6, 4)
"""Of an image: rows, columns, channels."""


def convolved(source: str, name: str) -> list[onnx.NodeProto]:
    """A convolution as Keras exports it: a transposition on either side."""
    return [
        node("Transpose", [source], [f"{name}.in"], perm=[0, 3, 1, 2]),
        node("Conv", [f"{name}.in", "w"], [f"{name}.out"], f"{name}.conv"),
        node("Transpose", [f"{name}.out"], [name], perm=[0, 2, 3, 1]),
    ]


def simplified(
    directory: Path,
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
) -> cnn.Network:
    """The network, which computes the same as the file."""
    proto = model(
        [*convolved("x", "a"), *nodes], [value("x", SHAPE)], [*map(value, outputs)],
        [weight("w", 4, 4, 1, 1), *weights], opset,
    )  # fmt: skip
    read = cnn.read(save(proto, directory))
    network = read.network
    frame = random_frame(network, seed=0)
    subnet = read.cut(network.layer, network.inputs, network.outputs, directory)
    expected = run(read.write_original(directory), frame)
    for found, original in zip(run(subnet.graph, frame), expected, strict=True):
        assert relative_error(found, original) <= LIMIT
    return network


def transpositions(network: cnn.Network) -> list[str]:
    """The tensors that are made by one."""
    return [x.outputs[0] for x in network.layers if x.operator == "Transpose"]


BETWEEN = {
    "clip": [node("Clip", ["a", "low", "high"], ["b"])],
    "cast": [node("Cast", ["a"], ["c"], to=11), node("Cast", ["c"], ["b"], to=1)],
    "scalar": [node("Pow", ["a", "two"], ["b"])],
    "per channel": [node("Max", ["a", "channels"], ["b"])],
    "per column": [node("Max", ["columns", "a"], ["b"])],
    "per row": [node("Where", ["at", "a", "rows"], ["b"])],
    "everywhere": [node("Div", ["a", "everywhere"], ["b"])],
    "a pad": [node("Pad", ["a", "pads", "half"], ["b"])],
    "a pad that mirrors": [node("Pad", ["a", "pads"], ["b"], mode="reflect")],
    "a slice": [node("Slice", ["a", "starts", "ends", "axes", "steps"], ["b"])],
    "a slice of the first axes": [node("Slice", ["a", "starts", "ends"], ["b"])],
    "parts": [
        node("Split", ["a"], ["p", "q"], axis=2),
        node("Concat", ["q", "p", "more"], ["b"], axis=-2),
    ],
    "softmax": [node("Softmax", ["a"], ["b"])],
    "a gate": [
        node("ReduceMean", ["a"], ["m"], axes=[1, -2]),
        node("Sigmoid", ["m"], ["s"]),
        node("Mul", ["a", "s"], ["b"]),
    ],
    "a sum": [node("ReduceSum", ["a", "rows and columns"], ["m"]), node("Add", ["a", "m"], ["b"])],
    "a choice": [
        node("ArgMax", ["a"], ["i"], axis=1),
        node("Cast", ["i"], ["c"], to=1),
        node("Add", ["a", "c"], ["b"]),
    ],
    "levels by channel": [
        node("QuantizeLinear", ["a", "steps of channels", "zeros"], ["8"], axis=-1),
        node("DequantizeLinear", ["8", "steps of channels", "zeros"], ["b"], axis=3),
    ],
    "levels": [
        node("QuantizeLinear", ["a", "step", "zero"], ["8"]),
        node("DequantizeLinear", ["8", "step", "zero"], ["b"]),
    ],
}  # fmt: skip

CONSTANTS = [
    constant("low", 0, np.float32),
    constant("high", 2, np.float32),
    constant("half", 0.5, np.float32),
    constant("two", [2.0], np.float32),
    weight("channels", 4, seed=1),
    weight("columns", 6, 1, seed=2),
    weight("rows", 5, 1, 1, seed=3),
    constant("at", np.arange(24).reshape(1, 1, 6, 4) % 2 == 0, np.bool_),
    weight("everywhere", 1, 5, 6, 4, seed=4),
    weight("more", 1, 5, 2, 4, seed=5),
    constant("pads", [0, 1, 2, 0, 0, 3, 0, 0]),
    constant("starts", [0, -1]),
    constant("ends", [9, -9]),
    constant("axes", [1, 2]),
    constant("steps", [2, -1]),
    constant("rows and columns", [2, 1]),
    constant("step", 0.1, np.float32),
    constant("zero", 3, np.uint8),
    constant("steps of channels", [0.1, 0.2, 0.05, 0.3], np.float32),
    constant("zeros", [0, 1, 2, 3], np.int8),
]


@pytest.mark.parametrize("name", BETWEEN)
def test_between_two_convolutions_there_is_none(name: str, tmp_path: Path) -> None:
    nodes = [*BETWEEN[name], *convolved("b", "z")]
    read = {tensor for each in nodes for tensor in each.input}
    weights = [x for x in CONSTANTS if x.name in read]
    if name == "a slice of the first axes":
        weights = [x for x in weights if x.name not in ("starts", "ends")]
        weights += [constant("starts", [0, 1, 2]), constant("ends", [1, 5, 4])]
    network = simplified(tmp_path, nodes, ["z"], weights)
    assert len(transpositions(network)) == 2  # in front of all, and behind


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18, 21])
def test_in_every_operator_set(opset: int, tmp_path: Path) -> None:
    pads, axes = [0, 1, 1, 0, 0, 0, 0, 0], [1, 2]
    pad = node("Pad", ["a"], ["p"], pads=pads) if opset < 11 else node("Pad", ["a", "pads"], ["p"])
    mean = (
        node("ReduceMean", ["p"], ["m"], axes=axes)
        if opset < 18
        else node("ReduceMean", ["p", "axes"], ["m"])
    )
    nodes = [pad, mean, node("Sub", ["p", "m"], ["b"]), *convolved("b", "z")]
    weights = [constant("pads", pads)] * (opset >= 11) + [constant("axes", axes)] * (opset >= 18)
    network = simplified(tmp_path, nodes, ["z"], weights, opset)
    assert len(transpositions(network)) == 2


def test_pads_of_named_axes_are_those_of_other_axes(tmp_path: Path) -> None:
    nodes = [node("Pad", ["a", "pads", "", "axes"], ["b"]), *convolved("b", "z")]
    weights = [constant("pads", [1, 2, 0, -2]), constant("axes", [-2, 3])]
    assert len(transpositions(simplified(tmp_path, nodes, ["z"], weights, 18))) == 2


def test_branches_that_meet_again_stay_in_one_order(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["a"], ["r"]),
        *convolved("r", "b"),
        node("Add", ["b", "r"], ["s"]),
        node("Concat", ["s", "a"], ["t"], axis=3),
        node("Split", ["t"], ["u", "v"], axis=3),
        node("Mul", ["u", "v"], ["m"]),
        *convolved("m", "z"),
    ]
    assert len(transpositions(simplified(tmp_path, nodes, ["z"]))) == 2


def test_what_is_an_output_too_comes_in_its_own_order(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["r"]), *convolved("r", "z")]
    network = simplified(tmp_path, nodes, ["r", "z"])
    assert sorted(transpositions(network)[1:]) == ["r", "z"]
    assert network.tensors["r"].shape == SHAPE


def test_a_mean_over_rows_and_columns_may_end_it(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["r"]), node("ReduceMean", ["r"], ["z"], axes=[1, 2], keepdims=0)]
    network = simplified(tmp_path, nodes, ["z"])
    assert len(transpositions(network)) == 1


def test_a_mean_that_would_leave_other_axes_in_front_does_not(tmp_path: Path) -> None:
    nodes = [node("Relu", ["a"], ["r"]), node("ReduceMean", ["r"], ["z"], axes=[1], keepdims=0)]
    network = simplified(tmp_path, nodes, ["z"])
    assert len(transpositions(network)) == 2


STAYS = {
    "an output": [node("Relu", ["a"], ["z"])],
    "a product": [node("Relu", ["a"], ["r"]), node("MatMul", ["r", "v"], ["z"])],
    "a view": [node("Relu", ["a"], ["r"]), node("Reshape", ["r", "flat"], ["z"])],
    "another tensor": [node("Mul", ["x", "a"], ["z"])],
    "fewer axes": [
        node("ReduceMax", ["x"], ["l"], axes=[0, 1], keepdims=0),
        node("Add", ["l", "a"], ["z"]),
    ],
}


@pytest.mark.parametrize("name", STAYS)
def test_one_that_would_only_be_moved_stays(name: str, tmp_path: Path) -> None:
    read = {tensor for each in STAYS[name] for tensor in each.input}
    weights = [weight("v", 4, 4, seed=1), constant("flat", [1, -1])]
    network = simplified(tmp_path, STAYS[name], ["z"], [x for x in weights if x.name in read])
    assert transpositions(network)[1:] == ["a"]


def test_one_that_others_read_as_well_stays(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["a"], ["r"]),
        *convolved("r", "z"),
        node("Reshape", ["a", "flat"], ["f"]),
    ]
    network = simplified(tmp_path, nodes, ["z", "f"], [constant("flat", [1, -1])])
    assert len(transpositions(network)) == 3


def test_two_orders_become_one(tmp_path: Path) -> None:
    nodes = [
        *convolved("x", "c"),
        node("Add", ["a", "c"], ["s"]),
        node("Transpose", ["s"], ["z"], perm=[0, 2, 1, 3]),
    ]
    network = simplified(tmp_path, nodes, ["z"])
    assert transpositions(network)[1:] == ["z"]


SQUARE = (4, 4)


def computed(directory: Path, nodes: Sequence[onnx.NodeProto]) -> cnn.Network:
    """A network on a matrix of 4 × 4, which computes the same as the file."""
    proto = model(nodes, [value("x", SQUARE)], [value("z")], [weight("w", 4, 4)])
    read = cnn.read(save(proto, directory))
    network = read.network
    frame = random_frame(network, seed=0)
    subnet = read.cut(network.layer, network.inputs, network.outputs, directory)
    expected = run(read.write_original(directory), frame)
    assert relative_error(run(subnet.graph, frame)[0], expected[0]) <= LIMIT
    return network


def turned(source: str, name: str) -> onnx.NodeProto:
    return node("Transpose", [source], [name], perm=[1, 0])


def test_an_operator_may_read_a_tensor_and_its_transpose(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        turned("m", "a"),
        node("Relu", ["a"], ["r"]),
        turned("r", "t"),
        node("Sub", ["r", "t"], ["s"]),
        turned("s", "b"),
        node("MatMul", ["b", "w"], ["z"]),
    ]
    assert len(transpositions(computed(tmp_path, nodes))) == 1


def test_regions_on_either_side_of_a_transposition_are_not_both_turned_over(tmp_path: Path) -> None:
    """The transposition between them would be counted for both."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Relu", ["m"], ["r"]),
        turned("r", "a"),
        node("Tanh", ["a"], ["b"]),
        turned("b", "c"),
        node("Sigmoid", ["c"], ["s"]),
        turned("s", "d"),
        node("MatMul", ["d", "w"], ["z"]),
    ]
    assert len(transpositions(computed(tmp_path, nodes))) == 1


def test_what_a_branch_reads_keeps_its_order(tmp_path: Path) -> None:
    then = graph([node("Reshape", ["r", "flat"], ["y"])], "then", [], [value("y")])
    other = graph([node("Reshape", ["a", "flat"], ["n"])], "else", [], [value("n")])
    nodes = [
        node("Relu", ["a"], ["r"]),
        *convolved("r", "z"),
        node("If", ["yes"], ["i"], then_branch=then, else_branch=other),
    ]
    weights = [constant("flat", [1, -1]), constant("yes", 1, np.bool_)]
    simplified(tmp_path, nodes, ["z", "i"], weights)


def test_a_batch_norm_in_three_operators_is_part_of_its_convolution(tmp_path: Path) -> None:
    """As Keras's exporter writes it."""
    nodes = [
        node("Sub", ["a", "mean"], ["s"]),
        node("Mul", ["scale", "s"], ["m"]),
        node("Div", ["m", "scale"], ["d"]),
        node("Add", ["d", "offset"], ["o"]),
        node("Relu", ["o"], ["r"]),
        *convolved("r", "z"),
    ]
    weights = [weight(name, 4, seed=n) for n, name in enumerate(("mean", "scale", "offset"), 1)]
    network = simplified(tmp_path, nodes, ["z"], weights)
    kinds = [layer.operator for layer in network.layers if layer.operator != "Transpose"]
    assert kinds == ["Conv", "Relu", "Conv"]


@pytest.mark.parametrize("operator", ["Sub", "Div"])
def test_a_difference_or_quotient_the_other_way_round_is_not(operator: str, tmp_path: Path) -> None:
    nodes = [node(operator, ["c", "a"], ["s"]), *convolved("s", "z")]
    network = simplified(tmp_path, nodes, ["z"], [weight("c", 4, seed=1)])
    assert operator in [layer.operator for layer in network.layers]


def test_nor_is_a_quotient_by_zero(tmp_path: Path) -> None:
    nodes = [
        node("Div", ["a", "c"], ["s"]),
        node("Clip", ["s", "low", "high"], ["t"]),
        *convolved("t", "z"),
    ]
    divisors = constant("c", [1, 0, -2, 3], np.float32)
    network = simplified(tmp_path, nodes, ["z"], [divisors, *CONSTANTS[:2]])
    assert "Div" in [layer.operator for layer in network.layers]


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Operators that carry an order of axes, products that do not, and transpositions between."""
    shapes = {"x": draw(st.permutations([2, 3, 4]))}
    nodes, weights = [], []
    for number in range(draw(st.integers(3, 14))):
        source, name = draw(st.sampled_from(sorted(shapes))), f"t{number}"
        shape, axis = shapes[source], draw(st.integers(-3, 2))
        made = list(shape)
        kind = draw(st.sampled_from(
            ["Transpose"] * 5 + ["Relu", "Add", "Mul", "Concat", "Softmax", "ReduceMean", "Pad",
                                 "Slice", "MatMul"]
        ))  # fmt: skip
        if kind == "Transpose":
            perm = draw(st.sampled_from([[0, 2, 1], [1, 2, 0], [2, 0, 1], [1, 0, 2]]))
            nodes.append(node(kind, [source], [name], perm=perm))
            made = [shape[place] for place in perm]
        elif kind in ("Add", "Concat"):
            alike = sorted(other for other in shapes if shapes[other] == shape)
            more = {"axis": axis} if kind == "Concat" else {}
            nodes.append(node(kind, [source, draw(st.sampled_from(alike))], [name], **more))
            made[axis] *= 2 if kind == "Concat" else 1
        elif kind == "Mul":
            own = [draw(st.sampled_from([1, size])) for size in shape][draw(st.integers(0, 3)) :]
            weights.append(weight(f"c{number}", *own, seed=number))
            nodes.append(node(kind, [source, f"c{number}"], [name]))
        elif kind == "ReduceMean":
            keeps = draw(st.booleans())
            nodes.append(node(kind, [source], [f"{name}.mean"], axes=[axis], keepdims=int(keeps)))
            if keeps:
                nodes.append(node("Sub", [source, f"{name}.mean"], [name]))
            else:
                weights.append(
                    constant(f"s{number}", [*made[: axis % 3], 1, *made[axis % 3 + 1 :]])
                )
                nodes.append(node("Reshape", [f"{name}.mean", f"s{number}"], [name]))
                made[axis] = 1
        elif kind == "Pad":
            pads = [draw(st.integers(0, 2)) for _ in range(6)]
            weights.append(constant(f"p{number}", pads))
            nodes.append(node(kind, [source, f"p{number}"], [name], mode="edge"))
            made = [size + pads[place] + pads[3 + place] for place, size in enumerate(shape)]
        elif kind == "Slice":
            weights += [constant(f"b{number}", [-1]), constant(f"e{number}", [-99])]
            weights += [constant(f"a{number}", [axis]), constant(f"d{number}", [-1])]
            nodes.append(node(kind, [source, *(f"{x}{number}" for x in "bead")], [name]))
        elif kind == "MatMul":
            weights.append(weight(f"w{number}", shape[-1], 3, seed=number))
            nodes.append(node(kind, [source, f"w{number}"], [name]))
            made[-1] = 3
        else:
            nodes.append(
                node(kind, [source], [name], **({"axis": axis} if kind == "Softmax" else {}))
            )
        shapes[name] = made
    read = {name for each in nodes for name in each.input}
    ends = [name for name in shapes if name not in read or draw(st.integers(0, 5)) == 0]
    outputs = [value(name) for name in ends if name != "x"] or [value(nodes[-1].output[0])]
    return model(nodes, [value("x", list(shapes["x"]))], outputs, weights)


@given(proto=networks())
@settings(max_examples=60)
def test_any_network_of_transpositions_computes_the_same_with_no_more_of_them(
    proto: onnx.ModelProto, tmp_path: Path
) -> None:
    read = cnn.read(save(proto, tmp_path))
    network = read.network
    written = sum(each.op_type == "Transpose" for each in proto.graph.node)
    assert len(transpositions(network)) <= written
    frame = random_frame(network, seed=0)
    subnet = read.cut(network.layer, network.inputs, network.outputs, tmp_path)
    expected = run(read.write_original(tmp_path), frame)
    for found, original in zip(run(subnet.graph, frame), expected, strict=True):
        assert relative_error(found, original) <= LIMIT
