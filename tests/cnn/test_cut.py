"""A cut is a valid ONNX model, named by its content, in as little memory as can be."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from cnn.reading.weights import INLINE_BYTES
from cnn.subnet import ALIGNMENT, PAGE, PAGE_ALIGNED_BYTES
from tests.cnn.models import convolution, model, node, run, save, value, weight


@pytest.fixture(scope="module")
def squeezenet() -> cnn.Model:
    return cnn.read("onnx-wheel:squeezenet")


def first(built: cnn.Model, count: int, directory: Path) -> cnn.Subnet:
    """The first `count` layers, up to all that they make."""
    network = built.network
    layers = network.layers[:count]
    outputs = [tensor for layer in layers for tensor in layer.outputs]
    return built.cut([layer.name for layer in layers], network.inputs, outputs, directory)


def placed(graph: Path) -> dict[str, tuple[str, int, int]]:
    """External tensor → location, offset, length."""
    found = {}
    for tensor in onnx.load(str(graph), load_external_data=False).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {x.key: x.value for x in tensor.external_data}
            found[tensor.name] = (entry["location"], int(entry["offset"]), int(entry["length"]))
    return found


def test_a_cut_is_a_valid_model(squeezenet: cnn.Model, tmp_path: Path) -> None:
    subnet = first(squeezenet, 30, tmp_path)
    onnx.checker.check_model(str(subnet.graph), full_check=True)
    graph = onnx.load(str(subnet.graph)).graph
    assert [x.name for x in graph.input] == list(squeezenet.network.inputs)


def test_pieces_compute_what_the_whole_computes(squeezenet: cnn.Model, tmp_path: Path) -> None:
    network = squeezenet.network
    names = list(network.layer)
    frame = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    source = network.inputs[0]
    middle = network.layers[10].outputs  # the chain is one tensor wide here
    front = squeezenet.cut(names[:11], [source], middle, tmp_path)
    back = squeezenet.cut(names[11:], middle, network.outputs, tmp_path)
    whole = squeezenet.cut(names, [source], network.outputs, tmp_path)
    (between,) = run(front.graph, {source: frame})
    (found,) = run(back.graph, {middle[0]: between})
    (expected,) = run(whole.graph, {source: frame})
    np.testing.assert_array_equal(found, expected)


def test_files_are_named_by_their_content(squeezenet: cnn.Model, tmp_path: Path) -> None:
    subnet = first(squeezenet, 30, tmp_path)
    assert subnet.weights is not None
    for path, size in ((subnet.graph, subnet.graph_bytes), (subnet.weights, subnet.weights_bytes)):
        content = path.read_bytes()
        assert path.name == hashlib.sha256(content).hexdigest()
        assert size == len(content)
    assert sorted(tmp_path.iterdir()) == sorted([subnet.graph, subnet.weights])


def test_the_same_cut_is_the_same_file(squeezenet: cnn.Model, tmp_path: Path) -> None:
    one = first(squeezenet, 30, tmp_path / "one")
    again = first(squeezenet, 30, tmp_path / "two")
    anew = first(cnn.read("onnx-wheel:squeezenet"), 30, tmp_path / "three")
    assert one.graph.name == again.graph.name == anew.graph.name
    other = first(cnn.read("onnx-wheel:squeezenet", seed=1), 30, tmp_path / "four")
    assert one.graph.name != other.graph.name


def test_all_weights_lie_in_one_file_at_aligned_offsets(tmp_path: Path) -> None:
    sizes = {"a": 300, "b": 600, "c": 500}  # 351 KiB, 1.4 MiB, 977 KiB
    nodes, weights, last = [], [], "x"
    for index, (name, size) in enumerate(sizes.items()):
        nodes.append(node("MatMul", [last, name], [f"t{index}"]))
        weights.append(weight(name, ([300, *sizes.values()])[index], size))
        last = f"t{index}"
    proto = model(nodes, [value("x", (1, 300))], [value(last)], weights)
    subnet = first(cnn.read(save(proto, tmp_path)), 3, tmp_path / "cut")
    places = placed(subnet.graph)
    assert places.keys() == sizes.keys()
    end = 0
    for location, offset, length in places.values():
        assert subnet.weights is not None
        assert location == subnet.weights.name
        assert offset >= end
        assert offset % (PAGE if length >= PAGE_ALIGNED_BYTES else ALIGNMENT) == 0
        end = offset + length
    assert end == subnet.weights_bytes


def test_small_tensors_stay_in_the_graph(squeezenet: cnn.Model, tmp_path: Path) -> None:
    subnet = first(squeezenet, 30, tmp_path)
    inside = onnx.load(str(subnet.graph), load_external_data=False).graph.initializer
    outside = placed(subnet.graph)
    assert len(outside) < len(inside)
    for tensor in inside:
        assert (tensor.name in outside) != (len(tensor.raw_data) in range(1, INLINE_BYTES))


def test_a_cut_without_weights_has_no_weights_file(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"], "r"))
    subnet = cnn.read(save(proto, tmp_path)).cut(["r"], ["y"], ["z"], tmp_path / "cut")
    assert subnet.weights is None
    assert subnet.weights_bytes == 0


def test_a_cut_takes_no_memory_in_addition_to_the_weights(tmp_path: Path) -> None:
    layers = 24
    nodes = [node("MatMul", [f"t{i}" if i else "x", f"w{i}"], [f"t{i + 1}"]) for i in range(layers)]
    weights = [weight(f"w{i}", 400, 400, seed=i) for i in range(layers)]
    proto = model(nodes, [value("x", (1, 400))], [value(f"t{layers}")], weights)
    built = cnn.read(save(proto, tmp_path))
    del proto, weights
    held = sum(weight.bytes for weight in built.network.weights.values())
    tracemalloc.start()
    try:
        subnet = first(built, layers, tmp_path / "cut")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert subnet.weights_bytes >= held
    assert peak < held / 20


def test_external_weights_are_mapped_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])],
        [value("x", (1, 2000))],
        [value("y")],
        [weight("w", 2000, 2000)],
    )
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    del proto
    cnn.read(path)  # imports, which take memory once
    tracemalloc.start()
    try:
        built = cnn.read(path)
        first(built, 1, tmp_path / "cut")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2000 * 2000 * 4 / 4


@pytest.mark.parametrize(
    ("layers", "inputs", "outputs", "sentence"),
    [
        (["nobody"], ["x"], ["y"], "no layer 'nobody'"),
        (["r"], [], ["z"], "layer 'r' reads 'y', which is neither an input"),
        (["c"], ["x"], ["z"], "no layer of the subnet makes its output 'z'"),
    ],
)
def test_impossible_cuts(tmp_path: Path, layers, inputs, outputs, sentence: str) -> None:
    proto = convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"], "r"))
    with pytest.raises(cnn.ModelError, match=sentence):
        cnn.read(save(proto, tmp_path)).cut(layers, inputs, outputs, tmp_path / "cut")
