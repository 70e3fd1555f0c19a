"""Exports Keras's networks with random weights, by Keras 3's own export over its torch backend."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.zoo.registry import Entry


def export(entry: Entry, file: Path) -> None:
    os.environ["KERAS_BACKEND"] = "torch"
    import keras  # noqa: PLC0415 - it reads its backend when imported

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, entry.model)(weights=None, input_shape=(224, 224, 3))
    generator = np.random.default_rng(1)
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            ranges = {"gamma": (0.7, 1.3), "beta": (-0.2, 0.2)}
            ranges |= {"moving_mean": (-0.2, 0.2), "moving_variance": (0.5, 1.5)}
            for weight in layer.weights:
                weight.assign(generator.uniform(*ranges[weight.name], weight.shape))
    model(np.zeros((1, 224, 224, 3), np.float32))  # it is exported as it was called
    model.export(str(file), format="onnx", verbose=False)
