"""Exports the papers' networks that are not in `tests/fixtures/models`, without their weights.

    python -m benchmarks.zoo.light FOLDER [NAME …]

It needs a Python that has torch, timm, keras, onnx and onnxscript. Networks have their usual size
of images. A `ConstantOfShape` node stands for every large weight, so files are small, and
`cnn.read` fills them from a seed.
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
    "EfficientNetLiteB0": ("timm", "efficientnet_lite0", 224),
    "EfficientNetLiteB1": ("timm", "efficientnet_lite1", 240),
    "EfficientNetLiteB2": ("timm", "efficientnet_lite2", 260),
    "EfficientNetLiteB3": ("timm", "efficientnet_lite3", 280),
    "EfficientNetLiteB4": ("timm", "efficientnet_lite4", 300),
}
"""By name: who makes it, what it is called there, and the side of its images.

NASNetMobile is missing: Keras refuses to make it with the backend that exports.
"""

SMALL = 64
"""Elements up to which a weight stays in the file, since it may be a shape or a factor."""

OPSET = 20


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
    network = _of_timm(model) if maker == "timm" else _of_keras(model, side)
    import torch  # noqa: PLC0415 (Keras reads its backend first)

    image = torch.zeros(1, 3, side, side)
    with torch.no_grad():
        torch.onnx.export(
            network.eval(), (image,), str(file), opset_version=OPSET, dynamo=False,
            input_names=["input_0"], output_names=["output_0"],
        )  # fmt: skip
    onnx.save(without_weights(onnx.load(file)), file)


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
