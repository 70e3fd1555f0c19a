"""Makes the synthetic networks of Villarrubia et al. (2025, §3.1), also at 8 bits per weight.

A network is L convolutions of f filters of 3 × 3 each on maps of 64 × 64, the first one on 3
channels, as an ONNX file without weights (`cnn.reading.fill`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cnn.network import Network

LAYERS = 5
CHANNELS = 3
SIDE = 64


def write_synthetic(path: Path, filters: int, layers: int = LAYERS) -> Path:
    """Write the network of `layers` convolutions with `filters` filters each; returns `path`."""
    nodes, shapes = [], []
    for number in range(layers):
        shape = (filters, filters if number else CHANNELS, 3, 3)
        weight = f"weight{number}"
        shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{weight}.shape"))
        nodes.append(helper.make_node("ConstantOfShape", [f"{weight}.shape"], [weight]))
        source, made = ("image" if number == 0 else f"map{number - 1}"), f"map{number}"
        nodes.append(
            helper.make_node(
                "Conv", [source, weight], [made], f"conv{number}", kernel_shape=[3, 3], pads=[1] * 4
            )
        )
    size = [SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        f"synthetic{filters}",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, CHANNELS, *size])],
        [
            helper.make_tensor_value_info(
                f"map{layers - 1}", onnx.TensorProto.FLOAT, [1, filters, *size]
            )
        ],
        shapes,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def at_8_bits(network: Network) -> Network:
    """`network` as if quantised: a byte for each element of its weights and activations."""
    return replace(
        network,
        tensors={n: replace(tensor, dtype="uint8") for n, tensor in network.tensors.items()},
        weights={n: replace(weight, dtype="int8") for n, weight in network.weights.items()},
    )
