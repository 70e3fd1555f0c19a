"""Small networks that keep state from frame to frame, and the plain loop to compare them with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from tests.cnn.models import constant, model, node, value

CELL = {"h": "hn"}
LSTM = {"h": "hn", "c": "cn"}


def _gentle(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    """A weight that leaves values between -1 and 1, where tanh tells them apart."""
    values = np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return numpy_helper.from_array(values.astype(np.float32), name)


def _image_features(channels: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """`x` [1, 3, 8, 8] → `f` [1, channels]."""
    nodes = [
        node("Conv", ["x", "conv w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], "relu"),
        node("Conv", ["b", "conv2 w"], ["p"], "conv2", pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["p"], ["g"], "pool"),
        node("Flatten", ["g"], ["f"], "flatten"),
    ]
    return nodes, [_gentle("conv w", 8, 3, 3, 3), _gentle("conv2 w", channels, 8, 3, 3, seed=1)]


def cell(hidden: int = 4) -> onnx.ModelProto:
    """Convolutions, a recurrent cell of four operators (hn = tanh(f W + h U)), and a head of two.

    State `CELL`: `h` → `hn`, both [1, hidden]; the other output is `y` [1, 5].
    """
    nodes, weights = _image_features(hidden)
    nodes += [
        node("MatMul", ["f", "W"], ["fw"], "in"),
        node("MatMul", ["h", "U"], ["hu"], "back"),
        node("Add", ["fw", "hu"], ["sum"], "add"),
        node("Tanh", ["sum"], ["hn"], "tanh"),
        node("MatMul", ["hn", "V"], ["z"], "head"),
        node("Softmax", ["z"], ["y"], "softmax"),
    ]
    weights += [_gentle("W", hidden, hidden, seed=2), _gentle("U", hidden, hidden, seed=3)]
    weights += [_gentle("V", hidden, 5, seed=4)]
    return model(
        nodes,
        [value("x", (1, 3, 8, 8)), value("h", (1, hidden))],
        [value("y", (1, 5)), value("hn", (1, hidden))],
        weights,
    )


def lstm(hidden: int = 4) -> onnx.ModelProto:
    """Convolutions, ONNX's LSTM and a head. State `LSTM`; the other output is `y` [1, 5]."""
    nodes, weights = _image_features(hidden)
    nodes += [
        node("Reshape", ["f", "as sequence"], ["sequence"], "to sequence"),
        node(
            "LSTM",
            ["sequence", "W", "R", "", "", "h", "c"],
            ["", "hn", "cn"],
            "lstm",
            hidden_size=hidden,
        ),
        node("Reshape", ["hn", "as row"], ["row"], "to row"),
        node("MatMul", ["row", "V"], ["z"], "head"),
        node("Softmax", ["z"], ["y"], "softmax"),
    ]
    weights += [_gentle("W", 1, 4 * hidden, hidden, seed=2), _gentle("R", 1, 4 * hidden, hidden)]
    weights += [_gentle("V", hidden, 5, seed=4), constant("as sequence", [1, 1, hidden])]
    weights += [constant("as row", [1, hidden])]
    shape = (1, 1, hidden)
    return model(
        nodes,
        [value("x", (1, 3, 8, 8)), value("h", shape), value("c", shape)],
        [value("y", (1, 5)), value("hn", shape), value("cn", shape)],
        weights,
    )


def camera_frames(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Frames for the networks of this module."""
    generator = np.random.default_rng(seed)
    return [{"x": generator.standard_normal((1, 3, 8, 8), dtype=np.float32)} for _ in range(count)]


def plain_loop(
    path: Path, frames: Iterable[Mapping[str, np.ndarray]], state: Mapping[str, str]
) -> Iterator[dict[str, np.ndarray]]:
    """What the whole model gives for each frame, its state fed back by hand, from zeros on."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    shapes = {found.name: found.shape for found in session.get_inputs()}
    kept = {name: np.zeros(shapes[name], np.float32) for name in state}
    names = [found.name for found in session.get_outputs()]
    for frame in frames:
        results = dict(zip(names, session.run(names, {**frame, **kept}), strict=True))
        kept = {name: results[output] for name, output in state.items()}
        yield results
