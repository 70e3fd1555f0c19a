"""A network that was read, in one piece, beside its original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import cnn
from tests.agreement.comparison import LIMIT, random_frame, relative_error
from tests.cnn.models import run


def agrees(
    model: cnn.Model, directory: Path, frame: dict[str, np.ndarray] | None = None
) -> list[np.ndarray]:
    """The results of `frame` in the model's order, after they were held to the original's."""
    network = model.network
    frame = random_frame(network, seed=0) if frame is None else frame
    subnet = model.cut(network.layer, network.inputs, network.outputs, directory)
    found = dict(zip(network.outputs, run(subnet.graph, frame), strict=True))
    found |= model.constant_outputs
    original = model.write_original(directory)
    names = [output.name for output in onnx.load(original, load_external_data=False).graph.output]
    assert set(names) == set(model.outputs)
    for name, wanted in zip(names, run(original, frame), strict=True):
        assert found[name].shape == wanted.shape
        assert found[name].dtype == wanted.dtype
        assert relative_error(found[name], wanted) <= LIMIT
    return [found[name] for name in model.outputs]
