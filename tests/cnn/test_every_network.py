"""All networks of the papers' tables: architecture, equality with the original, sound outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cnn
from tests.agreement.comparison import (
    KERAS,
    LIMIT,
    NETWORKS,
    random_frame,
    relative_error,
    short_name,
)
from tests.agreement.test_known_networks import ALWAYS
from tests.cnn.models import opened, run

# Parameters (millions) and multiply-accumulates (billions) as commonly reported, rounded. Fused
# batch norms make up to 2 % fewer parameters.
PUBLISHED = {
    "bvlc_alexnet": (61.0, 0.66),
    "densenet121": (8.0, 2.83),
    "inception_v1": (7.0, 1.43),
    "inception_v2": (11.2, 2.02),
    "resnet50": (25.6, 4.09),
    "shufflenet": (1.4, 0.125),
    "squeezenet": (1.24, 0.349),
    "vgg19": (143.7, 19.63),
    "zfnet512": (87.3, 1.48),
    "DenseNet121": (8.0, 2.83),
    "DenseNet169": (14.2, 3.36),
    "DenseNet201": (20.2, 4.29),
    "InceptionV3": (23.9, 5.71),
    "MobileNet": (4.2, 0.569),
    "MobileNetV2": (3.5, 0.30),
    "ResNet101": (44.6, 7.57),
    "ResNet101V2": (44.7, 7.2),
    "ResNet152": (60.3, 11.3),
    "ResNet152V2": (60.4, 10.9),
    "ResNet50": (25.6, 3.86),
    "ResNet50V2": (25.6, 3.48),
    "VGG16": (138.4, 15.47),
    "Xception": (22.9, 8.36),
    "yolov2": (50.98, 14.73),
}

HEAVY = {"bvlc_alexnet", "vgg19", "zfnet512", "VGG16.onnx"}
"""Networks of many weights, which take a second or two to read; `make further` reads them."""


def test_the_table_is_complete() -> None:
    assert len(NETWORKS) == len(PUBLISHED) == 9 + 14 + 1
    assert len(list(KERAS.glob("*.onnx"))) == 14


@pytest.mark.slow
def test_yolov2_is_the_published_network() -> None:
    network = cnn.read("builtin:yolov2").network
    operators = [layer.operator for layer in network.layers]
    assert operators.count("Conv") == 23
    assert operators.count("LeakyRelu") == 22
    assert operators.count("MaxPool") == 5
    assert operators.count("SpaceToDepth") == operators.count("Concat") == 1
    parameters = sum(weight.elements for weight in network.weights.values())
    assert parameters == pytest.approx(50.95e6, rel=1e-3)
    assert 2 * sum(layer.macs for layer in network.layers) == pytest.approx(29.47e9, rel=1e-3)
    assert network.tensors["boxes"].shape == (1, 425, 13, 13)
    (joined,) = [layer for layer in network.layers if layer.operator == "Concat"]
    assert network.tensors[joined.outputs[0]].shape == (1, 1280, 13, 13)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.further if short_name(path) in HEAVY else ())
        for path in NETWORKS
    ],
    ids=short_name,
)
def test_architecture(path: str) -> None:
    network = cnn.read(path).network
    parameters, macs = PUBLISHED[network.name]
    assert sum(x.elements for x in network.weights.values()) == pytest.approx(
        parameters * 1e6, rel=0.025
    )
    assert sum(x.macs for x in network.layers) == pytest.approx(macs * 1e9, rel=0.01)
    assert len(network.edges) >= len(network.layers) - 1
    assert "Identity" not in {layer.operator for layer in network.layers}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if short_name(path) in ALWAYS else pytest.mark.further)
        for path in NETWORKS
    ],
    ids=short_name,
)
def test_outputs(path: str, tmp_path: Path) -> None:
    model = cnn.read(path)
    network = model.network
    frames = [random_frame(network, seed) for seed in (0, 1)]
    whole = model.cut(network.layer, network.inputs, network.outputs, tmp_path)
    session = opened(whole.graph)
    (one,), (other,) = (session.run(None, frame) for frame in frames)
    del session
    assert np.isfinite(one).all()
    assert relative_error(one, other) > 20 * LIMIT  # frames can be told apart
    if network.layers[-1].operator == "Softmax":
        assert one.max() < 0.95  # not a foregone conclusion
        assert one.std() > 1e-5  # and not indifferent
    if short_name(path) not in ALWAYS:  # of those, `test_known_networks` compares the outputs
        original = model.write_original(tmp_path)
        del model
        (expected,) = run(original, frames[0])
        assert relative_error(one, expected) <= LIMIT
