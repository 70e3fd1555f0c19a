"""Reading gives the architecture that the papers describe, and a digest that tells models apart."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import cnn
from cnn.reading.source import WHEEL_MODELS
from tests.cnn.models import convolution, node, save, value


@pytest.fixture(scope="module")
def resnet50() -> cnn.Model:
    return cnn.read("onnx-wheel:resnet50")


def operators(model: cnn.Model) -> dict[str, int]:
    names = [layer.operator for layer in model.network.layers]
    return {name: names.count(name) for name in dict.fromkeys(names)}


def parameters(model: cnn.Model) -> int:
    return sum(weight.elements for weight in model.network.weights.values())


def macs(model: cnn.Model) -> int:
    return sum(layer.macs for layer in model.network.layers)


def test_resnet50_is_the_published_network(resnet50: cnn.Model) -> None:
    assert operators(resnet50) == {
        "Conv": 53,
        "Relu": 49,
        "MaxPool": 1,
        "Sum": 16,
        "AveragePool": 1,
        "Reshape": 1,
        "Gemm": 1,
        "Softmax": 1,
    }
    assert parameters(resnet50) == pytest.approx(25.6e6, rel=0.005)
    assert macs(resnet50) == pytest.approx(4.1e9, rel=0.01)
    assert len(resnet50.network.edges) == 122 + 16  # a chain, and a shortcut past each block


def test_resnet50_has_its_shapes(resnet50: cnn.Model) -> None:
    network = resnet50.network
    (source,), (sink,) = network.inputs, network.outputs
    assert network.tensors[source].shape == (1, 3, 224, 224)
    assert network.tensors[sink].shape == (1, 1000)
    assert network.tensors[network.layers[0].outputs[0]].shape == (1, 64, 112, 112)
    assert {tensor.dtype for tensor in network.tensors.values()} == {"float32"}


def test_batch_norms_after_convolutions_are_part_of_them(resnet50: cnn.Model) -> None:
    convolutions = [layer for layer in resnet50.network.layers if layer.operator == "Conv"]
    assert all(len(layer.weights) == 2 for layer in convolutions)  # kernel and bias


def test_weights_belong_to_layers_and_each_to_one(resnet50: cnn.Model) -> None:
    network = resnet50.network
    read = [name for layer in network.layers for name in layer.weights]
    assert sorted(read) == sorted(network.weights)
    whole = sum(weight.bytes for weight in network.weights.values())
    assert network.weight_bytes(frozenset(network.layer)) == whole
    assert whole == pytest.approx(4 * parameters(resnet50), rel=1e-6)  # one shape is in int64


def test_every_wheel_model_can_be_named() -> None:
    assert len(WHEEL_MODELS) == 9
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    assert {path.stem for path in light.glob("*.onnx")} == {f"light_{x}" for x in WHEEL_MODELS}


def test_the_digest_is_that_of_file_seed_and_shape(tmp_path: Path) -> None:
    same = "onnx-wheel:squeezenet"
    assert cnn.read(same).digest == cnn.read(same).digest
    assert cnn.read(same).digest != cnn.read(same, seed=1).digest
    path = save(convolution(("n", 3, 8, 8)), tmp_path)
    alone = cnn.read(path)
    assert alone.filled_seed is None
    assert alone.digest == cnn.read(path, seed=1).digest  # nothing is filled, the seed is idle
    assert alone.digest != cnn.read(path, input_shapes=(2, 3, 8, 8)).digest
    other = convolution(("n", 3, 8, 8))
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    assert alone.digest != cnn.read(save(other, tmp_path)).digest
    assert len(alone.digest) == 64


def test_the_digest_covers_external_data(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(convolution(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    before = cnn.read(path).digest
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert cnn.read(path).digest != before


def test_layers_without_names_get_unique_ones(tmp_path: Path) -> None:
    more = [node("Relu", ["y"], ["z"], "c"), node("Sigmoid", ["z"], ["s"])]
    layers = cnn.read(save(convolution((1, 3, 8, 8), *more), tmp_path)).network.layers
    assert [layer.name for layer in layers] == ["c", "c#2", "s"]


def test_an_input_read_twice_by_a_layer_is_listed_once(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Add", ["y", "y"], ["z"], "twice"))
    network = cnn.read(save(proto, tmp_path)).network
    assert network.layer["twice"].inputs == ("y",)


def test_an_input_that_nothing_reads_is_left_out(tmp_path: Path) -> None:
    proto = convolution()
    proto.graph.input.append(value("idle", (1,)))
    model = cnn.read(save(proto, tmp_path))
    assert model.network.inputs == ("x",)
    original = onnx.load(str(model.write_original(tmp_path)))
    assert [x.name for x in original.graph.input] == ["x"]
