"""Control flow whose course is known in advance is unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cnn
from tests.cnn.models import FLOAT, INT64, constant, graph, model, node, run, save, value, weight
from tests.cnn.whole import agrees

BOOL = onnx.TensorProto.BOOL


def body(
    nodes: Sequence[onnx.NodeProto],
    states: dict[str, str],
    scanned: Sequence[str] = (),
    going_on: str = "on",
    weights: Sequence[onnx.TensorProto] = (),
    integers: Sequence[str] = (),
) -> onnx.GraphProto:
    """The body of a `Loop` whose states are read under the keys and given under the values."""

    def state(name: str) -> onnx.ValueInfoProto:
        return value(name, None, INT64 if name in integers else FLOAT)

    inputs = [value("i", (), INT64), value("on", (), BOOL), *map(state, states)]
    outputs = [value(going_on, (), BOOL), *map(state, states.values())]
    outputs += [value(name, (1, 4)) for name in scanned]
    return graph(nodes, "body", inputs, outputs, list(weights))


def read(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], directory: Path, *weights):
    """A network with the input `x`; an output whose name begins with `n_` is a whole number."""
    ends = [value(name, None, INT64 if name.startswith("n_") else FLOAT) for name in outputs]
    return cnn.read(save(model(nodes, [value("x", (1, 4))], ends, weights), directory))


def negations() -> onnx.GraphProto:
    return body([node("Neg", ["h"], ["g"])], {"h": "g"})


def halving() -> onnx.GraphProto:
    """Halves the last axis of `h` until it has length 1."""
    nodes = [
        node("Shape", ["h"], ["s"]),
        node("Constant", [], ["last"], value_int=1),
        node("Constant", [], ["pairs"], value_ints=[1, -1, 2]),
        node("Reshape", ["h", "pairs"], ["p"]),
        node("ReduceMax", ["p"], ["g"], axes=[2], keepdims=0),
        node("Shape", ["g"], ["t"]),
        node("Gather", ["t", "last"], ["length"]),
        node("Greater", ["length", "last"], ["go"]),
    ]
    return body(nodes, {"h": "g"}, going_on="go")


def operators(found: cnn.Model) -> list[str]:
    return [layer.operator for layer in found.network.layers]


def test_a_loop_that_runs_three_times_is_written_out_three_times(tmp_path: Path) -> None:
    inner = body(
        [node("Mul", ["h", "k"], ["m"], "scale"), node("Add", ["m", "x"], ["g"], "shift")],
        {"h": "g"},
        ["m"],
        weights=[constant("k", 0.5, np.float32)],
    )
    loop = node("Loop", ["count", "", "x"], ["last", "all"], "repeat", body=inner)
    found = read([loop], ["last", "all"], tmp_path, constant("count", 3))
    assert operators(found).count("Mul") == operators(found).count("Add") == 3
    assert {"scale[0]", "scale[1]", "scale[2]"} <= found.network.layer.keys()
    last, every = agrees(found, tmp_path, {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_allclose(last, np.full((1, 4), 1.875))
    np.testing.assert_allclose(every[:, 0, 0], [0.5, 0.75, 0.875])


def test_a_loop_ends_when_its_counter_says_so(tmp_path: Path) -> None:
    inner = body(
        [
            node("Add", ["n", "one"], ["next"]),
            node("Less", ["next", "limit"], ["go"]),
            node("Neg", ["h"], ["g"]),
        ],
        {"n": "next", "h": "g"},
        going_on="go",
        integers=["n", "next"],
    )
    start = [
        constant("zero", 0),
        constant("one", 1),
        constant("limit", 5),
        constant("yes", True, bool),
    ]
    loop = node("Loop", ["", "yes", "zero", "x"], ["n_end", "y"], body=inner)
    found = read([loop], ["y", "n_end"], tmp_path, *start)
    assert operators(found) == ["Neg"] * 5
    np.testing.assert_array_equal(found.constant_outputs["n_end"], 5)
    agrees(found, tmp_path)


def test_a_trip_count_may_follow_from_a_shape(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"], start=1),
        node("Squeeze", ["s"], ["count"]),
        node("Loop", ["count", "", "x"], ["y"], body=negations()),
    ]
    found = read(nodes, ["y"], tmp_path)
    assert operators(found) == ["Neg"] * 4
    agrees(found, tmp_path)


def test_a_loop_with_the_largest_of_all_counts_may_end_early(tmp_path: Path) -> None:
    """As torch exports `while`."""
    nodes = [
        node("Shape", ["x"], ["whole"]),
        node("ReduceProd", ["whole"], ["size"], keepdims=0),
        node("Greater", ["size", "one"], ["start"]),
        node("Loop", ["count", "start", "x"], ["y"], body=halving()),
    ]
    found = read(nodes, ["y"], tmp_path, constant("count", 2**63 - 1), constant("one", 1))
    assert operators(found).count("ReduceMax") == 2
    agrees(found, tmp_path)


def test_a_branch_in_a_loop_may_depend_on_the_iteration(tmp_path: Path) -> None:
    branches = {
        f"{name}_branch": graph([node(operator, ["h"], ["p"])], name, [], [value("p", (1, 4))])
        for name, operator in (("then", "Neg"), ("else", "Relu"))
    }
    inner = body(
        [node("Less", ["i", "one"], ["first"]), node("If", ["first"], ["g"], **branches)],
        {"h": "g"},
    )
    loop = node("Loop", ["count", "", "x"], ["y"], body=inner)
    found = read([loop], ["y"], tmp_path, constant("count", 3), constant("one", 1))
    assert operators(found) == ["Neg", "Relu", "Relu"]
    agrees(found, tmp_path, {"x": np.array([[-2, -1, 1, 2]], np.float32)})


def test_loops_in_loops_read_tensors_from_around_both(tmp_path: Path) -> None:
    within = body([node("Add", ["a", "h"], ["b"]), node("Add", ["b", "x"], ["c"])], {"a": "c"})
    around = body([node("Loop", ["two", "", "h"], ["g"], body=within)], {"h": "g"}, ["g"])
    loop = node("Loop", ["count", "", "x"], ["y", "all"], body=around)
    found = read([loop], ["y", "all"], tmp_path, constant("count", 3), constant("two", 2))
    assert operators(found).count("Add") == 12
    agrees(found, tmp_path)


def test_a_loop_that_never_runs_hands_its_states_on(tmp_path: Path) -> None:
    inner = body([node("Neg", ["h"], ["g"]), node("Abs", ["g"], ["a"])], {"h": "g"}, ["a"])
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Loop", ["count", "", "r"], ["y", "none"], body=inner),
    ]
    found = read(nodes, ["y", "none"], tmp_path, constant("count", 0))
    assert operators(found) == ["Relu"]
    assert found.constant_outputs["none"].shape == (0, 1, 4)
    agrees(found, tmp_path)


def test_states_that_change_places_are_not_confused(tmp_path: Path) -> None:
    inner = body([node("Neg", ["a"], ["n"])], {"a": "b", "b": "n"})
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Loop", ["count", "", "x", "r"], ["y", "z"], body=inner),
    ]
    agrees(read(nodes, ["y", "z"], tmp_path, constant("count", 3)), tmp_path)


def test_a_loop_that_cannot_be_written_out_stays_as_it_was(tmp_path: Path) -> None:
    inner = body(
        [
            node("Add", ["h", "w"], ["g"]),
            node("ReduceSum", ["g"], ["sum"], keepdims=0),
            node("Greater", ["limit", "sum"], ["go"]),
        ],
        {"h": "g"},
        going_on="go",
        weights=[weight("w", 1, 4)],
    )
    loop = node("Loop", ["count", "", "x"], ["y"], "wait", body=inner)
    limit = constant("limit", 3.0, np.float32)
    found = read([loop], ["y"], tmp_path, constant("count", 9), limit)
    (layer,) = found.network.layers
    assert set(layer.weights) == {"count", "limit"}
    agrees(found, tmp_path)


@pytest.mark.parametrize("count", [2_000_000, 2**62])
def test_nor_of_one_that_runs_too_often(count: int, tmp_path: Path) -> None:
    loop = node("Loop", ["n", "", "x"], ["y"], "long", body=negations())
    assert len(read([loop], ["y"], tmp_path, constant("n", count)).network.layers) == 1


def test_nor_of_one_that_comes_to_more_constants_than_memory_should_hold(tmp_path: Path) -> None:
    inner = body([node("Add", ["t", "t"], ["u"]), node("Neg", ["h"], ["g"])], {"t": "u", "h": "g"})
    loop = node("Loop", ["n", "", "table", "x"], ["end", "y"], "long", body=inner)
    table = weight("table", 1000, 1000)
    found = read([loop], ["y", "end"], tmp_path, constant("n", 2000), table)
    assert len(found.network.layers) == 1
    assert set(found.network.weights) == {"n", "table"}


@pytest.mark.slow
def test_nor_of_one_that_never_ends(tmp_path: Path) -> None:
    loop = node("Loop", ["", "", "x"], ["y"], "long", body=negations())
    assert len(read([loop], ["y"], tmp_path).network.layers) == 1


def scan(directions: Sequence[int], axes: Sequence[int], out_direction: int, out_axis: int):
    """h ← h + a − b along two sequences; gives the last h and all products h · a."""
    element = [value(name, (2,)) for name in ("h", "a", "b")]
    nodes = [
        node("Add", ["h", "a"], ["s"], "sum"),
        node("Sub", ["s", "b"], ["g"]),
        node("Mul", ["s", "a"], ["p"]),
    ]
    return node(
        "Scan",
        ["start", "x", "z"],
        ["last", "all"],
        body=graph(nodes, "body", element, [value("g", (2,)), value("p", (2,))]),
        num_scan_inputs=2,
        scan_input_directions=list(directions),
        scan_input_axes=list(axes),
        scan_output_directions=[out_direction],
        scan_output_axes=[out_axis],
    )


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1)])
@pytest.mark.parametrize(("out_direction", "out_axis"), [(0, 0), (1, 0), (0, 1), (1, -1)])
def test_a_scan_is_as_long_as_its_sequences(
    directions: tuple[int, int], out_direction: int, out_axis: int, tmp_path: Path
) -> None:
    proto = model(
        [scan(directions, (0, -1), out_direction, out_axis)],
        [value("x", (3, 2)), value("z", (2, 3))],
        [value("last"), value("all")],
        [weight("start", 2)],
    )
    found = cnn.read(save(proto, tmp_path))
    assert operators(found).count("Add") == 3
    assert found.network.inputs == ("x", "z")
    agrees(found, tmp_path)


def test_sequences_of_unlike_lengths_are_left_to_be_refused(tmp_path: Path) -> None:
    proto = model(
        [scan((0, 0), (0, 1), 0, 0)],
        [value("x", (3, 2)), value("z", (2, 4))],
        [value("last"), value("all")],
        [weight("start", 2)],
    )
    with pytest.raises(cnn.ModelError, match="Scan"):
        cnn.read(save(proto, tmp_path))


def test_a_branch_in_a_branch_may_use_the_names_of_another(tmp_path: Path) -> None:
    """As silero-vad does: both branches, and what is inside, call their tensors alike."""

    def branch(operator: str) -> onnx.GraphProto:
        inner = {
            f"{name}_branch": graph([node(op, ["t"], ["u"])], name, [], [value("u", (1, 4))])
            for name, op in (("then", "Abs"), ("else", "Neg"))
        }
        nodes = [
            node(operator, ["x"], ["t"]),
            node("Size", ["t"], ["n"]),
            node("Equal", ["n", "four"], ["is_four"]),
            node("If", ["is_four"], ["v"], "inner", **inner),
        ]
        return graph(nodes, operator, [], [value("v", (1, 4))], [constant("four", 4)])

    branches = {"then_branch": branch("Sigmoid"), "else_branch": branch("Tanh")}
    nodes = [
        node("If", ["yes"], ["y"], "inner", **branches),
        node("If", ["no"], ["z"], "inner", **branches),
    ]
    conditions = [constant("yes", True, bool), constant("no", False, bool)]
    found = read(nodes, ["y", "z"], tmp_path, *conditions)
    assert sorted(operators(found)) == ["Abs", "Abs", "Sigmoid", "Tanh"]
    agrees(found, tmp_path)


STEPS = {
    "Neg": lambda a, b: ("Neg", [a]),
    "Add": lambda a, b: ("Add", [a, b]),
    "Mul": lambda a, b: ("Mul", [a, b]),
    "Sigmoid": lambda a, b: ("Sigmoid", [a]),
    "weight": lambda a, b: ("Add", [a, "w"]),
    "outer": lambda a, b: ("Sub", [a, "x"]),
}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9)), min_size=1, max_size=6
    ),
    count=st.integers(0, 4),
    opset=st.sampled_from([11, 13, 17]),
)
@settings(max_examples=25)
def test_any_loop_computes_what_the_engine_does(
    steps: list[tuple[str, int]], count: int, opset: int, tmp_path: Path
) -> None:
    made, nodes = ["h", "x"], []
    for number, (step, other) in enumerate(steps):
        operator, reads = STEPS[step](made[-1], made[other % len(made)])
        nodes.append(node(operator, reads, [f"t{number}"]))
        made.append(f"t{number}")
    nodes.append(node("Abs", [made[len(made) // 2]], ["seen"]))
    inner = body(nodes, {"h": made[-1]}, ["seen"], weights=[weight("w", 1, 4)])
    loop = [
        node("Relu", ["x"], ["start"]),
        node("Loop", ["count", "", "start"], ["y", "all"], body=inner),
    ]
    ends = [value("y"), value("all")]
    proto = model(loop, [value("x", (1, 4))], ends, [constant("count", count)], opset)
    path = save(proto, tmp_path)
    frame = {"x": np.random.default_rng(count).standard_normal((1, 4)).astype(np.float32)}
    found = cnn.read(path)
    results = dict(zip(found.outputs, agrees(found, tmp_path, frame), strict=True))
    for name, expected in zip(("y", "all"), run(path, frame), strict=True):
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-6)


def test_a_branch_that_reads_what_nothing_makes_is_damaged(tmp_path: Path) -> None:
    broken = graph([node("Add", ["x", "nowhere"], ["p"])], "then", [], [value("p")])
    nodes = [node("If", ["yes"], ["y"], then_branch=broken, else_branch=broken)]
    with pytest.raises(cnn.ModelError, match="damaged"):
        read(nodes, ["y"], tmp_path, constant("yes", True, bool))
