"""Which optimisers of ONNX Runtime are switched off for a model."""

from __future__ import annotations

from pathlib import Path

from nodes.executors.onnx_sessions import MISTAKEN_OPTIMIZERS
from nodes.executors.protobuf import submessages

_MISTAKEN_ABOUT_BODIES = ["ConstantFolding"]
"""Those for models whose operators have bodies (1.31 at least): this one replaces an `If` by the
branch that is taken, and loses tensors that branches inside of branches read; then loading such a
model fails, or the process crashes. silero-vad is an example."""

_GRAPH, _NODE, _ATTRIBUTE, _BODY = 7, 1, 5, 6
"""Fields of onnx.proto3."""


def mistaken_optimizers(model: Path) -> list[str]:
    """Names of the optimisers to switch off for a model."""
    try:
        has_bodies = _has_bodies(model.read_bytes())
    except (OSError, ValueError, IndexError):  # the engine will say what is wrong with the file
        has_bodies = False
    return [*MISTAKEN_OPTIMIZERS, *(_MISTAKEN_ABOUT_BODIES if has_bodies else ())]


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
