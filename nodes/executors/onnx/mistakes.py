"""Which optimisers of ONNX Runtime are switched off for a model."""

from __future__ import annotations

from pathlib import Path

from nodes.executors.onnx.protobuf import fields, submessages, text_field
from nodes.executors.onnx.sessions import MISTAKEN_OPTIMIZERS

_MISTAKEN_ABOUT_BODIES = ["ConstantFolding"]
"""Those for models whose operators have bodies (1.31 at least): this one replaces an `If` by the
branch that is taken, and loses tensors that branches inside of branches read; then loading such a
model fails, or the process crashes. silero-vad is an example."""

_MISTAKEN_BEFORE_ROUND = ["WeightBiasQuantization"]
"""Those for models of an operator set without `Round` (1.31 at least): this one quantises a bias by
that operator, and then the model cannot be loaded."""

_OPERATOR_SET_OF_ROUND = 11

_GRAPH, _NODE, _ATTRIBUTE, _BODY = 7, 1, 5, 6
_OPERATOR_SETS, _DOMAIN, _VERSION = 8, 1, 2
"""Fields of onnx.proto3."""


def mistaken_optimizers(model: Path) -> list[str]:
    """Names of the optimisers to switch off for a model."""
    try:
        return mistaken_about(model.read_bytes())
    except (OSError, ValueError, IndexError):  # the engine will say what is wrong with the file
        return [*MISTAKEN_OPTIMIZERS]


def mistaken_about(model: bytes) -> list[str]:
    """The same for a serialised model; raises ValueError or IndexError if it is none."""
    return [
        *MISTAKEN_OPTIMIZERS,
        *(_MISTAKEN_ABOUT_BODIES if _has_bodies(model) else ()),
        *(_MISTAKEN_BEFORE_ROUND if _operator_set(model) < _OPERATOR_SET_OF_ROUND else ()),
    ]


def _operator_set(model: bytes) -> int:
    """Of ONNX's own operators; a model that names none cannot be loaded, so any will do."""
    found = _OPERATOR_SET_OF_ROUND
    for part, operator_set in submessages(memoryview(model)):
        if part == _OPERATOR_SETS and not text_field(operator_set, _DOMAIN):
            for number, value in fields(operator_set):
                if number == _VERSION and isinstance(value, int):
                    found = value
    return found


def _has_bodies(model: bytes) -> bool:
    for part, graph in submessages(memoryview(model)):
        if part == _GRAPH:
            for kind, node in submessages(graph):
                if kind == _NODE and any(
                    number == _ATTRIBUTE and any(inner == _BODY for inner, _ in submessages(value))
                    for number, value in submessages(node)
                ):
                    return True
    return False
