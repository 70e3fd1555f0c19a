"""ONNX's own tests of single operators, which the `onnx` package carries, as data.

Each is a model with inputs and the outputs that ONNX expects of it. All that the operator reads is
an input there, though in networks most of it is constant; so each can be had with constants.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests


@dataclass(frozen=True)
class NodeTest:
    """A model, its inputs and the outputs that are expected, by name."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]

    def with_constants(self, names: Collection[str]) -> onnx.ModelProto:
        """The model with these of its inputs as initialisers."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.model)
        kept = [x for x in proto.graph.input if x.name not in names]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        for name in names:
            proto.graph.initializer.append(numpy_helper.from_array(self.inputs[name], name))
        return proto


def node_tests() -> Iterator[NodeTest]:
    """All whose inputs and outputs are tensors of numbers that NumPy has."""
    for case in load_model_tests(kind="node"):
        inputs, outputs = (list(arrays) for arrays in case.data_sets[0])
        if inputs and all(map(_has_numbers, (*inputs, *outputs))):
            graph = case.model.graph
            yield NodeTest(
                case.name,
                case.model,
                {x.name: array for x, array in zip(graph.input, inputs, strict=True)},
                {x.name: array for x, array in zip(graph.output, outputs, strict=True)},
            )


def agrees(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether a result is what ONNX expects, within a tolerance like that of its own runner."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    left, right = found.astype(np.float64), wanted.astype(np.float64)
    return bool(np.allclose(left, right, rtol=1e-3, atol=1e-5, equal_nan=True))


def _has_numbers(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
