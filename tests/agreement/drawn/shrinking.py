"""Find the fewest operators of a network that fail as the whole network does."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
from onnx import helper

from cnn.operators.bodies import reads
from tests.agreement.drawn.check import check
from tests.agreement.drawn.network import Drawn


def smallest(drawn: Drawn, kind: str) -> Drawn:
    """Return the network up to the first tensor at which it fails as the whole does; itself if
    there is none.
    """
    for node in drawn.model.graph.node:
        for name in filter(None, node.output):
            part = up_to(drawn, name)
            with tempfile.TemporaryDirectory() as folder:
                if check(part, Path(folder)).kind == kind:
                    return part
    return drawn


def up_to(drawn: Drawn, tensor: str) -> Drawn:
    """Only the operators that `tensor`, the only output then, depends on."""
    graph = onnx.GraphProto()
    graph.CopyFrom(drawn.model.graph)
    wanted, kept = {tensor}, []
    for node in reversed(graph.node):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(reads(node))
    model = onnx.ModelProto()
    model.CopyFrom(drawn.model)
    del model.graph.node[:], model.graph.output[:], model.graph.initializer[:], model.graph.input[:]
    model.graph.node.extend(reversed(kept))
    model.graph.initializer.extend(x for x in graph.initializer if x.name in wanted)
    model.graph.input.extend(x for x in graph.input if x.name in wanted)
    model.graph.output.append(helper.make_value_info(tensor, drawn.types[tensor]))
    inputs = {name: drawn.inputs[name] for name in drawn.inputs if name in wanted}
    return replace(drawn, model=model, inputs=inputs)
