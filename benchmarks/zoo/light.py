"""Exports the papers' networks that are not in `tests/fixtures/models`, without their weights.

    python -m benchmarks.zoo.light FOLDER [NAME …]

It needs a Python that has torch, timm, keras, onnx and onnxscript; for NASNetMobile, which Keras
does not make with torch, one that has tensorflow and tf2onnx. Networks have their usual size of
images. A `ConstantOfShape` node stands for every large weight, so files are small, and `cnn.read`
fills them from a seed.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

NETWORKS = {
    "InceptionV4": ("timm", "inception_v4", 299),
    "InceptionResNetV2": ("keras", "InceptionResNetV2", 299),
    "NASNetMobile": ("tensorflow", "NASNetMobile", 224),
    "EfficientNetLiteB0": ("timm", "efficientnet_lite0", 224),
    "EfficientNetLiteB1": ("timm", "efficientnet_lite1", 240),
    "EfficientNetLiteB2": ("timm", "efficientnet_lite2", 260),
    "EfficientNetLiteB3": ("timm", "efficientnet_lite3", 280),
    "EfficientNetLiteB4": ("timm", "efficientnet_lite4", 300),
}
"""By name: who makes it, what it is called there, and the side of its images."""

SMALL = 64
"""Elements up to which a weight stays in the file, since it may be a shape or a factor."""

OPSET, TENSORFLOW_OPSET = 20, 18


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    options = parser.parse_args()
    for name in options.names:
        file = options.folder / f"{name}.onnx"
        export(name, file)
        print(f"{file}: {file.stat().st_size} bytes", flush=True)
    return 0


def export(name: str, file: Path) -> None:
    """Write the network called `name` to `file`."""
    maker, model, side = NETWORKS[name]
    if maker == "tensorflow":
        made = _by_tensorflow(model, side)
    else:
        made = _by_torch(_of_timm(model) if maker == "timm" else _of_keras(model, side), side, file)
    onnx.save(without_weights(made), file)


def _by_torch(network: Any, side: int, file: Path) -> onnx.ModelProto:
    import torch  # noqa: PLC0415 (Keras reads its backend first)

    image = torch.zeros(1, 3, side, side)
    with torch.no_grad():
        torch.onnx.export(
            network.eval(), (image,), str(file), opset_version=OPSET, dynamo=False,
            input_names=["input_0"], output_names=["output_0"],
        )  # fmt: skip
    return onnx.load(file)


def _by_tensorflow(model: str, side: int) -> onnx.ModelProto:
    keras, tensorflow, tf2onnx = map(importlib.import_module, ("keras", "tensorflow", "tf2onnx"))
    network = getattr(keras.applications, model)(weights=None, input_shape=(side, side, 3))
    image = tensorflow.TensorSpec((1, side, side, 3), tensorflow.float32, name="input_0")
    made: onnx.ModelProto
    made, _ = tf2onnx.convert.from_function(
        tensorflow.function(lambda x: {"output_0": network(x, training=False)}),
        input_signature=(image,), opset=TENSORFLOW_OPSET, inputs_as_nchw=["input_0"],
    )  # fmt: skip
    return made


def _of_timm(model: str) -> Any:
    importlib.import_module("benchmarks.zoo.torchvision_operators")  # timm imports torchvision
    return importlib.import_module("timm").create_model(model, pretrained=False)


def _of_keras(model: str, side: int) -> Any:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras  # noqa: PLC0415 (it reads its backend when it is imported)

    keras.config.set_image_data_format("channels_first")
    return getattr(keras.applications, model)(weights=None, input_shape=(3, side, side))


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every float weight of more than `SMALL` elements by a node that makes zeros."""
    kept, nodes, shapes = [], [], []
    for weight in model.graph.initializer:
        if math.prod(weight.dims) <= SMALL or weight.data_type != onnx.TensorProto.FLOAT:
            kept.append(weight)
            continue
        shape = f"{weight.name}__shape"
        shapes.append(numpy_helper.from_array(np.array(weight.dims, np.int64), shape))
        nodes.append(helper.make_node("ConstantOfShape", [shape], [weight.name]))
    nodes += model.graph.node
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend([*kept, *shapes])
    model.graph.node.extend(nodes)
    return model


if __name__ == "__main__":
    raise SystemExit(main())
