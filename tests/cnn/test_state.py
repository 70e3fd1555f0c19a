"""State fed back from frame to frame stays within one layer, which rewrites leave alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cnn
from cnn.errors import ModelError
from cnn.merge import merge
from cnn.network import MERGED
from cnn.rewrite.rewrites import Bands, Copies, Slices
from tests.cnn.models import INT64, model, node, run, save, value, weight
from tests.recurrent import CELL, LSTM, camera_frames, cell, lstm, plain_loop


@pytest.fixture
def recurrent(tmp_path: Path) -> cnn.Model:
    return cnn.read(save(cell(), tmp_path), state=CELL)


def stateful(network: cnn.Network) -> list[cnn.Layer]:
    return [layer for layer in network.layers if layer.state]


def test_the_layers_of_a_recurrent_cell_are_one_layer(recurrent: cnn.Model) -> None:
    (kept,) = stateful(recurrent.network)
    assert kept.operator == MERGED
    assert (kept.name, kept.state, kept.outputs) == ("back…tanh", (("h", "hn"),), ("hn",))
    names = [layer.name for layer in recurrent.network.layers]
    assert names == [
        "conv",
        "relu",
        "conv2",
        "pool",
        "flatten",
        "in",
        "back…tanh",
        "head",
        "softmax",
    ]


def test_state_is_not_an_input_of_the_network(recurrent: cnn.Model) -> None:
    assert recurrent.network.inputs == ("x",)
    assert recurrent.network.outputs == ("y", "hn")
    assert recurrent.network.state == {"h": "hn"}
    assert recurrent.network.tensors["h"].shape == (1, 4)


def test_an_operator_that_keeps_its_state_itself_stays_as_it_is(tmp_path: Path) -> None:
    network = cnn.read(save(lstm(), tmp_path), state=LSTM).network
    (kept,) = stateful(network)
    assert (kept.name, kept.operator) == ("lstm", "LSTM")
    assert kept.state == (("h", "hn"), ("c", "cn"))


def test_the_cut_layer_computes_the_plain_loop(tmp_path: Path) -> None:
    for number, (proto, state) in enumerate([(cell(), CELL), (lstm(), LSTM)]):
        path = save(proto, tmp_path, f"{number}.onnx")
        network = cnn.read(path, state=state).network
        whole = cnn.read(path, state=state).cut(
            network.layer, network.inputs, network.outputs, tmp_path / str(number)
        )
        kept = {name: np.zeros(network.tensors[name].shape, np.float32) for name in state}
        frames = camera_frames(4)
        for frame, wanted in zip(frames, plain_loop(path, frames, state), strict=True):
            made = dict(zip(network.outputs, run(whole.graph, {**frame, **kept}), strict=True))
            assert all(np.allclose(made[name], wanted[name], atol=1e-6) for name in made)
            kept = {name: made[output] for name, output in state.items()}


def test_states_that_are_independent_are_layers_of_their_own(tmp_path: Path) -> None:
    """Of two cells one behind the other each can be on its own device."""
    nodes = [
        node("Add", ["x", "h1"], ["s1"], "add1"),
        node("Tanh", ["s1"], ["n1"], "tanh1"),
        node("Add", ["n1", "h2"], ["s2"], "add2"),
        node("Tanh", ["s2"], ["n2"], "tanh2"),
    ]
    shape = (1, 4)
    inputs = [value(name, shape) for name in ("x", "h1", "h2")]
    proto = model(nodes, inputs, [value("n1", shape), value("n2", shape)])
    network = cnn.read(save(proto, tmp_path), state={"h1": "n1", "h2": "n2"}).network
    assert [layer.name for layer in network.layers] == ["add1…tanh1", "add2…tanh2"]


def test_states_that_wait_for_each_other_are_one_layer(tmp_path: Path) -> None:
    """Each cell reads what the other made a frame ago."""
    nodes = [
        node("Add", ["x", "h2"], ["n1"], "first"),
        node("Relu", ["n1"], ["between"], "between"),
        node("Add", ["between", "h1"], ["n2"], "second"),
    ]
    shape = (1, 4)
    inputs = [value(name, shape) for name in ("x", "h1", "h2")]
    proto = model(nodes, inputs, [value("n1", shape), value("n2", shape)])
    network = cnn.read(save(proto, tmp_path), state={"h1": "n1", "h2": "n2"}).network
    (kept,) = network.layers
    assert set(kept.state) == {("h1", "n1"), ("h2", "n2")}


def test_a_value_that_is_only_delayed_is_state_too(tmp_path: Path) -> None:
    """What a frame adds is a part of the frame before: no way leads from `h` to `hn`."""
    nodes = [
        node("Relu", ["x"], ["hn"], "relu"),
        node("Neg", ["hn"], ["n"], "neg"),
        node("Add", ["n", "h"], ["y"], "add"),
        node("Exp", ["y"], ["z"], "exp"),
    ]
    shape = (1, 4)
    proto = model(
        nodes, [value("x", shape), value("h", shape)], [value("z", shape), value("hn", shape)]
    )
    network = cnn.read(save(proto, tmp_path), state=CELL).network
    assert [layer.name for layer in network.layers] == ["relu…add", "exp"]
    assert network.layers[0].outputs == ("hn", "y")


def test_layers_stay_in_a_topological_order(tmp_path: Path) -> None:
    """`Network` refuses any other; here a layer must move behind the region that it reads."""
    nodes = [
        node("Add", ["x", "h"], ["s"], "add"),
        node("Exp", ["s"], ["side"], "side"),
        node("Relu", ["x"], ["r"], "relu"),
        node("Mul", ["s", "r"], ["hn"], "mul"),
    ]
    shape = (1, 4)
    proto = model(
        nodes, [value("x", shape), value("h", shape)], [value("side", shape), value("hn", shape)]
    )
    network = cnn.read(save(proto, tmp_path), state=CELL).network
    assert [layer.name for layer in network.layers] == ["relu", "add…mul", "side"]


def test_the_digest_tells_networks_with_state_from_those_without(tmp_path: Path) -> None:
    path = save(cell(), tmp_path)
    assert cnn.read(path).digest != cnn.read(path, state=CELL).digest


def test_merged_networks_keep_state_of_their_own(tmp_path: Path) -> None:
    first = cnn.read(save(cell(), tmp_path), state=CELL).with_name("one")
    second = cnn.read(save(lstm(), tmp_path, "other.onnx"), state=LSTM).with_name("two")
    merged = merge([first, second]).network
    assert merged.state == {"one/h": "one/hn", "two/h": "two/hn", "two/c": "two/cn"}
    assert merged.inputs == ("one/x", "two/x")


def test_a_network_with_state_is_raised_to_the_operator_set_of_another(tmp_path: Path) -> None:
    old = cell()
    old.opset_import[0].version = 12
    raised = merge(
        [
            cnn.read(save(old, tmp_path), state=CELL).with_name("one"),
            cnn.read(save(lstm(), tmp_path, "other.onnx"), state=LSTM).with_name("two"),
        ]
    )
    (kept,) = (layer for layer in stateful(raised.network) if layer.operator == MERGED)
    cut = raised.cut([kept.name], kept.inputs, kept.outputs, tmp_path / "cut")
    frame = {name: np.ones((1, 4), np.float32) for name in (*kept.inputs, "one/h")}
    assert run(cut.graph, frame)[0].shape == (1, 4)


def test_rewrites_leave_a_layer_with_state_alone(tmp_path: Path) -> None:
    shape = (1, 4, 6, 6)
    nodes = [node("Add", ["x", "h"], ["hn"], "add"), node("Relu", ["hn"], ["y"], "relu")]
    proto = model(
        nodes, [value("x", shape), value("h", shape)], [value("y", shape), value("hn", shape)]
    )
    path = save(proto, tmp_path)
    assert "add" in cnn.read(path).slice_channels()
    kept = cnn.read(path, state=CELL)
    assert set(kept.slice_channels()) == {"relu"}
    assert kept.band_layers() == ("relu",)
    with pytest.raises(ModelError, match="cannot be computed in slices"):
        kept.rewritten([Slices("add", (2, 2))])
    with pytest.raises(ModelError, match="keeps state from frame to frame"):
        kept.rewritten([Bands(("add",), (3, 3))])
    with pytest.raises(ModelError, match="cannot be distributed over copies"):
        kept.rewritten([Copies((1, 1))])


def test_layers_around_state_are_rewritten_as_ever(tmp_path: Path, recurrent: cnn.Model) -> None:
    sliced = recurrent.rewritten([Slices("conv2", (2, 2)), Slices("head", (2, 3))])
    assert sliced.network.state == {"h": "hn"}
    whole = recurrent.network
    frame = camera_frames(1)[0] | {"h": np.full((1, 4), 0.5, np.float32)}
    results = [
        run(each.cut(each.network.layer, whole.inputs, whole.outputs, tmp_path / name).graph, frame)
        for name, each in (("whole", recurrent), ("sliced", sliced))
    ]
    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"k": "hn"}, "state names the input 'k', but the model's inputs are x, h"),
        ({"h": "kn"}, "state takes 'h' from the output 'kn', but the model's outputs are y, hn"),
        (
            {"h": "y"},
            r"'h', which is float32\[1, 4\], from the output 'y', which is float32\[1, 5\]",
        ),
        ({"h": "hn", "x": "y"}, "names every input of the model, so nothing is left to stream"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, state: dict[str, str], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        cnn.read(save(cell(), tmp_path), state=state)


def test_an_input_without_influence_cannot_be_state(tmp_path: Path) -> None:
    """`h` is read, but only for its shape."""
    nodes = [
        node("Shape", ["h"], ["shape"], "shape"),
        node("Reshape", ["x", "shape"], ["hn"], "reshape"),
        node("MatMul", ["hn", "w"], ["y"], "head"),
    ]
    proto = model(
        nodes,
        [value("x", (4,)), value("h", (1, 4))],
        [value("y"), value("hn", (1, 4))],
        [weight("w", 4, 2)],
    )
    with pytest.raises(ModelError, match="names the input 'h', which no layer reads"):
        cnn.read(save(proto, tmp_path), state=CELL)


def test_what_has_another_shape_in_every_frame_cannot_be_fed_back(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "h"], ["s"], "add"),
        node("Relu", ["s"], ["y"], "relu"),
        node("NonZero", ["s"], ["hn"], "nonzero"),
    ]
    proto = model(
        nodes,
        [value("x", (2, 2), INT64), value("h", (2, 2), INT64)],
        [value("y", (2, 2), INT64), value("hn", (2, "n"), INT64)],
    )
    with pytest.raises(ModelError, match="output 'hn', whose shape depends on the data"):
        cnn.read(save(proto, tmp_path), state=CELL)
