"""Networks of the tables, on 2, 3, 5 and 8 devices: each crossing tensor is the original's."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cnn
from tests.agreement.comparison import (
    DEVICES,
    LIMIT,
    NETWORKS,
    agreements,
    measure,
    random_frame,
    random_partition,
    relative_error,
    short_name,
)

SIBLINGS = {
    f"{name}.onnx"
    for name in ("VGG16", "DenseNet121", "DenseNet169", "ResNet101", "ResNet101V2", "ResNet152")
}
"""Built like others that are here."""

COSTLY = {
    *("bvlc_alexnet", "densenet121", "resnet50", "vgg19", "zfnet512", "builtin:yolov2"),
    *("DenseNet201.onnx", "ResNet152V2.onnx", "Xception.onnx"),
}
"""Networks of so many weights or phases that two numbers of devices take as long as all four of
another."""

ALWAYS = {
    *("inception_v1", "resnet50", "shufflenet", "builtin:yolov2"),
    *("DenseNet201.onnx", "MobileNetV2.onnx", "ResNet50V2.onnx"),
}
"""Branches, shortcuts, groups, reordered pixels, dense blocks, depthwise layers and padding before
pooling. `make further` tries all other networks."""

PERMUTED = {"DenseNet201.onnx": 0.1}
"""The least part of the tensors that the original has, too, where simplification changes the order
of axes and therefore names: all others are compared with the simplified whole alone."""


def test_squeezenet_agrees_on_three_devices() -> None:
    (found,) = measure("onnx-wheel:squeezenet", devices=(3,))
    assert found.crossing <= LIMIT
    assert found.against_original == found.tensors > 30


def test_a_single_other_weight_would_be_noticed() -> None:
    model = cnn.read("onnx-wheel:squeezenet")
    name = "conv1_w_0"
    other = dict(model._weights)
    other[name] = other[name].copy()
    other[name][0, 0, 0, 0] += 1
    changed = dataclasses.replace(model, _weights=other)
    partition = random_partition(model.network, 2, seed=0)
    (found,) = agreements(changed, [partition], random_frame(model.network, seed=0))
    assert found.crossing > LIMIT


def test_two_frames_are_told_apart() -> None:
    model = cnn.read("onnx-wheel:squeezenet")
    partition = random_partition(model.network, 2, seed=0)
    frames = [random_frame(model.network, seed) for seed in (0, 1)]
    assert relative_error(*(frame["data_0"] for frame in frames)) > 0.1
    assert all(agreements(model, [partition], frame)[0].crossing <= LIMIT for frame in frames)


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 1e-9], [0.0, 0.0], np.inf),
        ([np.nan, 2.0], [1.0, 2.0], np.inf),
        ([1.0], [1.0, 2.0], np.inf),
    ],
)
def test_the_measure_of_error(found: list[float], expected: list[float], error: float) -> None:
    assert relative_error(np.array(found), np.array(expected)) == pytest.approx(error)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if short_name(path) in ALWAYS else pytest.mark.further)
        for path in NETWORKS
        if short_name(path) not in SIBLINGS
    ],
    ids=short_name,
)
def test_every_kind_of_network_agrees_on_all_numbers_of_devices(path: str) -> None:
    devices = DEVICES[::3] if short_name(path) in COSTLY else DEVICES
    found = measure(path, devices)
    assert [row.devices for row in found] == list(devices)
    assert max(row.crossing for row in found) <= LIMIT
    least = PERMUTED.get(short_name(path), 0.9)
    assert all(row.against_original >= least * row.tensors for row in found)
