"""Finds names in an ONNX file that OpenVINO does not report, without the `onnx` package.

The file has been examined before (`nodes.executors.onnx.file.inspect`).
"""

from __future__ import annotations

from pathlib import Path

from nodes.executors.onnx.protobuf import submessages, text_field
from nodes.executors.onnx.schema import (
    NODE,
    GraphField,
    NodeField,
    TensorField,
    ValueInfoField,
    graphs,
    walk,
)
from nodes.protocol.fields import printable


def input_and_output_names(graph: Path) -> tuple[list[str], list[str]]:
    """Return the names of a model's inputs and outputs, in its order.

    Old files list their weights among the inputs; these are left out.
    """
    inputs: list[str] = []
    outputs: list[str] = []
    weights: set[str] = set()
    for message in graphs(memoryview(graph.read_bytes())):
        for number, value in submessages(message):
            if number == GraphField.INPUT:
                inputs.append(text_field(value, ValueInfoField.NAME) or "")
            elif number == GraphField.OUTPUT:
                outputs.append(text_field(value, ValueInfoField.NAME) or "")
            elif number == GraphField.INITIALIZER:
                weights.add(text_field(value, TensorField.NAME) or "")
    return [name for name in inputs if name not in weights], outputs


def layer_name(graph: Path, operator: str, output: str | None = None) -> str | None:
    """Return the name of the first layer with this operator, and this output if it is given.

    A layer without a name is called by its first output. Returns None without such a layer.
    """
    for kind, node, _ in walk(memoryview(graph.read_bytes())):
        if kind != NODE or text_field(node, NodeField.OP_TYPE) != operator:
            continue
        outputs = [str(v, "utf-8") for number, v in submessages(node) if number == NodeField.OUTPUT]
        if output is None or output in outputs:
            return printable(text_field(node, NodeField.NAME) or (outputs or [""])[0])
    return None
