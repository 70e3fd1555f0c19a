"""Reads a network of the zoo, and makes its part of a `cluster.yaml`."""

from __future__ import annotations

import cnn
from benchmarks.zoo.cache import file_of
from benchmarks.zoo.registry import Entry


def model_of(entry: Entry) -> cnn.Model:
    """The network as the project reads it; raises `cnn.ModelError`."""
    return cnn.read(
        file_of(entry.name),
        input_shapes=entry.input_shapes,
        inputs=entry.inputs,
        outputs=entry.outputs,
        state=entry.state,
    )


def settings(entry: Entry) -> dict[str, object]:
    """The section `model` of a `cluster.yaml`."""
    shapes = entry.input_shapes
    plain = {k: list(v) for k, v in shapes.items()} if isinstance(shapes, dict) else shapes
    given = {
        "input_shape": plain, "inputs": dict(entry.inputs), "outputs": list(entry.outputs),
        "state": dict(entry.state),
    }  # fmt: skip
    return {"path": str(file_of(entry.name))} | {key: x for key, x in given.items() if x}
