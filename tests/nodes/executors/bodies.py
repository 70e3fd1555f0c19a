"""Networks whose operators have bodies, for tests of what becomes of those in an engine.

Each network has `Conv`, `Relu` and `MaxPool` around one operator with bodies (`CONTROLS`), and in
its bodies one of the `STAGES`, which an optimiser fuses or lays out again. Stages read kernels of
the graph, of the body, or both, and tensors of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, SIZE = 16, 8
SHAPE = (1, CHANNELS, SIZE, SIZE)

Nodes = list[onnx.NodeProto]
Stage = Callable[[str, str, str], Nodes]
"""Makes nodes from a tensor's name to another's; the third name begins those between."""

_node = helper.make_node


def _conv(read: str, made: str, kernel: str = "k", **attributes: object) -> onnx.NodeProto:
    return _node("Conv", [read, kernel], [made], pads=[1, 1, 1, 1], **attributes)


def _batch_norm(read: str, made: str, own: str) -> Nodes:
    return [
        _conv(read, f"{own}c"),
        _node("BatchNormalization", [f"{own}c", *(["one"] * 2), *(["one"] * 2)], [f"{own}n"]),
        _node("Relu", [f"{own}n"], [made]),
    ]


def _two_convolutions(read: str, made: str, own: str) -> Nodes:
    return [
        _conv(read, f"{own}a"),
        _node("Relu", [f"{own}a"], [f"{own}b"]),
        _conv(f"{own}b", f"{own}d", "k2"),
        _node("Add", [f"{own}d", "outer"], [made]),
    ]


def _pool(read: str, made: str, own: str) -> Nodes:
    pool = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}
    return [
        _conv(read, f"{own}a"),
        _node("MaxPool", [f"{own}a"], [f"{own}b"], **pool),
        _node("AveragePool", [f"{own}b"], [made], **pool),
    ]


def _product(read: str, made: str, own: str) -> Nodes:
    return [
        _node("MatMul", [read, "m"], [f"{own}a"]),
        _node("Add", [f"{own}a", "row"], [f"{own}b"]),
        _node("Erf", [f"{own}b"], [f"{own}e"]),
        _node("Add", [f"{own}e", "f"], [f"{own}g"]),
        _node("Mul", [f"{own}b", f"{own}g"], [f"{own}h"]),
        _node("Mul", [f"{own}h", "f"], [made]),
    ]


def _quantised(read: str, made: str, own: str) -> Nodes:
    return [
        _node("QuantizeLinear", [read, "f", "zero8"], [f"{own}q"]),
        _node("DequantizeLinear", [f"{own}q", "f", "zero8"], [f"{own}d"]),
        _conv(f"{own}d", f"{own}c", "k2"),
        _node("QuantizeLinear", [f"{own}c", "f", "zero8"], [f"{own}r"]),
        _node("DequantizeLinear", [f"{own}r", "f", "zero8"], [made]),
    ]


def _captured(read: str, made: str, own: str) -> Nodes:
    return [
        _conv("outer", f"{own}a"),
        _node("Concat", [f"{own}a", read], [f"{own}b"], axis=1),
        _conv(f"{own}b", f"{own}c", "wide"),
        _node("Sigmoid", [f"{own}c"], [f"{own}s"]),
        _node("Mul", [f"{own}c", f"{own}s"], [made]),
    ]


STAGES: Mapping[str, Stage] = {
    "batch norm": _batch_norm,
    "two convolutions": _two_convolutions,
    "pools": _pool,
    "product": _product,
    "quantised": _quantised,
    "captured": _captured,
}

Control = Callable[[Callable[[str, str, str], Nodes], str], Nodes]
"""Makes the operator with bodies from a stage; reads `read`, makes the name given."""


def _value(
    name: str, shape: Sequence[int] | None, kind: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _own_kernels() -> list[onnx.TensorProto]:
    """A body's own kernel, under a name that the graph does not have."""
    return [numpy_helper.from_array(_weights()["k2"] / 2, "own_k")]


def _if(stage: Stage, read: str, made: str, own: str) -> Nodes:
    then = helper.make_graph(
        stage(read, f"{own}t", f"{own}t_"), "then", [], [_value(f"{own}t", SHAPE)]
    )
    other = helper.make_graph(
        [_conv(read, f"{own}x", "own_k"), _node("Relu", [f"{own}x"], [f"{own}o"])],
        "else", [], [_value(f"{own}o", SHAPE)], _own_kernels(),
    )  # fmt: skip
    return [_node("If", ["condition"], [made], f"{own}if", then_branch=then, else_branch=other)]


def _loop(stage: Stage, read: str, made: str, own: str) -> Nodes:
    body = helper.make_graph(
        [_node("Identity", [f"{own}on"], [f"{own}go"]), *stage(f"{own}v", f"{own}w", f"{own}l_")],
        "body",
        [_value(f"{own}i", [], TensorProto.INT64), _value(f"{own}on", [], TensorProto.BOOL),
         _value(f"{own}v", SHAPE)],
        [_value(f"{own}go", [], TensorProto.BOOL), _value(f"{own}w", SHAPE)],
    )  # fmt: skip
    return [_node("Loop", ["times", "yes", read], [made], f"{own}loop", body=body)]


def _scan(stage: Stage, read: str, made: str, own: str) -> Nodes:
    body = helper.make_graph(
        [*stage(f"{own}v", f"{own}w", f"{own}s_"), _node("Mul", [f"{own}r", "f"], [f"{own}y"])],
        "body",
        [_value(f"{own}v", SHAPE), _value(f"{own}r", [])],
        [_value(f"{own}w", SHAPE), _value(f"{own}y", [])],
    )
    return [
        _node(
            "Scan", [read, "rows"], [made, f"{own}ys"], f"{own}scan", body=body, num_scan_inputs=1
        )
    ]


def _sequence_map(stage: Stage, read: str, made: str, own: str) -> Nodes:
    body = helper.make_graph(
        stage(f"{own}v", f"{own}w", f"{own}m_"),
        "body",
        [_value(f"{own}v", SHAPE)],
        [_value(f"{own}w", SHAPE)],
    )
    return [
        _node("SequenceConstruct", [read, "outer"], [f"{own}sq"]),
        _node("SequenceMap", [f"{own}sq"], [f"{own}sm"], f"{own}map", body=body),
        _node("SequenceAt", [f"{own}sm", "nought"], [made]),
    ]


def _inside(outer: Callable[..., Nodes], inner: Callable[..., Nodes]) -> Callable[..., Nodes]:
    def nested(stage: Stage, read: str, made: str, own: str) -> Nodes:
        def both(read: str, made: str, own: str) -> Nodes:
            return [_conv(read, f"{own}z"), *inner(stage, f"{own}z", made, f"{own}n")]

        return outer(both, read, made, own)

    return nested


CONTROLS: Mapping[str, Callable[[Stage, str, str, str], Nodes]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
    "If in If": _inside(_if, _if),
    "Loop in If": _inside(_if, _loop),
    "If in Loop": _inside(_loop, _if),
    "Scan in Loop": _inside(_loop, _scan),
}


def _weights() -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(7)

    def normal(*shape: int) -> np.ndarray:
        return (numbers.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    return {
        "k": normal(CHANNELS, CHANNELS, 3, 3),
        "k2": normal(CHANNELS, CHANNELS, 3, 3),
        "wide": normal(CHANNELS, 2 * CHANNELS, 3, 3),
        "m": normal(SIZE, SIZE),
        "row": normal(SIZE),
        "one": np.ones(CHANNELS, np.float32),
        "f": np.array(0.5, np.float32),
        "zero8": np.array(0, np.uint8),
        "times": np.array(2, np.int64),
        "yes": np.array(True),
        "nought": np.array(0, np.int64),
        "rows": np.ones(3, np.float32),
    }


def network(control: str, stage: str, *, sees_shared: bool = True) -> onnx.ModelProto:
    """Return a network with inputs `x` and `condition` and output `y`."""
    nodes = [
        _conv("x", "first"),
        _node("Relu", ["first"], ["outer"]),
        _node("Neg", ["outer"], ["other"]),
        *CONTROLS[control](STAGES[stage], "outer", "made", "b"),
        _conv("made", "last", "k2"),
        _node("MaxPool", ["last"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes, "bodies",
        [_value("x", SHAPE), _value("condition", [], TensorProto.BOOL)],
        [_value("y", (1, CHANNELS, SIZE // 2, SIZE // 2))],
        [numpy_helper.from_array(array, name) for name, array in _weights().items()],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
