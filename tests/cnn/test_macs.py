"""Multiply-accumulates per operator, against figures counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cnn
from tests.cnn.models import constant, model, node, save, value, weight


def macs(path: Path) -> list[int]:
    return [layer.macs for layer in cnn.read(path).network.layers]


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes", "expected"),
    [
        ((1, 3, 8, 8), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}, 4 * 8 * 8 * 3 * 9),
        ((1, 4, 8, 8), (4, 1, 3, 3), {"group": 4}, 4 * 6 * 6 * 9),
        ((1, 4, 8, 8), (6, 2, 1, 1), {"group": 2, "strides": [2, 2]}, 6 * 4 * 4 * 2),
        ((1, 3, 10), (5, 3, 3), {}, 5 * 8 * 3 * 3),
        ((1, 2, 4, 4, 4), (3, 2, 2, 2, 2), {}, 3 * 27 * 2 * 8),
        ((2, 3, 8, 8), (4, 3, 1, 1), {}, 2 * 4 * 64 * 3),
    ],
    ids=["plain", "depthwise", "grouped and strided", "one axis", "three axes", "batch of two"],
)
def test_convolutions(
    tmp_path: Path, shape: tuple[int, ...], kernel: tuple[int, ...], attributes, expected: int
) -> None:
    conv = node("Conv", ["x", "w"], ["y"], **attributes)
    proto = model([conv], [value("x", shape)], [value("y")], [weight("w", *kernel)])
    assert macs(save(proto, tmp_path)) == [expected]


def test_a_transposed_convolution_spreads_each_input(tmp_path: Path) -> None:
    up = node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    proto = model([up], [value("x", (1, 3, 4, 4))], [value("y")], [weight("w", 3, 5, 2, 2)])
    assert macs(save(proto, tmp_path)) == [3 * 16 * 5 * 4]


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_matrix_product_of_either_layout(tmp_path: Path, transposed: int) -> None:
    kernel = (7, 20) if transposed else (20, 7)
    gemm = node("Gemm", ["x", "w"], ["y"], transB=transposed)
    proto = model([gemm], [value("x", (2, 20))], [value("y")], [weight("w", *kernel)])
    assert macs(save(proto, tmp_path)) == [2 * 20 * 7]


def test_a_product_of_two_activations(tmp_path: Path) -> None:
    product = node("MatMul", ["a", "b"], ["y"])
    inputs = [value("a", (2, 3, 4)), value("b", (2, 4, 5))]
    assert macs(save(model([product], inputs, [value("y")]), tmp_path)) == [2 * 3 * 4 * 5]


def test_quantised_convolutions_count_and_the_rest_does_not(tmp_path: Path) -> None:
    scales = [constant("s", 0.1, np.float32), constant("z", 0, np.uint8)]
    kernel = constant("w", np.ones((4, 3, 3, 3)), np.uint8)
    conv = node("QLinearConv", ["q", "s", "z", "w", "s", "z", "s", "z"], ["r"])
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        conv,
        node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    proto = model(nodes, [value("x", (1, 3, 8, 8))], [value("y")], [*scales, kernel])
    assert macs(save(proto, tmp_path)) == [0, 4 * 36 * 27, 0]
