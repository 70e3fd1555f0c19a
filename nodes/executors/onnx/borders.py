"""Lets tensors enter and leave a subnet in the blocked layout of ONNX Runtime's convolutions.

ONNX Runtime computes convolutions in blocks of channels (NCHWc): it stores [N, C, H, W] as
[N, C/block, H, W, block], with 16 channels per block where there is AVX-512. An optimised subnet
converts what enters it (`ReorderInput`) and what leaves it (`ReorderOutput`). Where the subnets on
both sides of a channel are of the same kind, both conversions are superfluous: in ResNet50's plans
for ten devices they take 3.6 % of the time of all phases, and each converted tensor is in memory
twice. `with_blocked_borders` removes them, or adds the inverse one where the subnet itself computes
in the usual order. The shapes that it declares stay those of the usual order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.blocking import image_channels
from nodes.executors.onnx.protobuf import field as bytes_field
from nodes.executors.onnx.protobuf import parts, submessages, text_field, texts
from nodes.executors.onnx.schema import (
    GraphField,
    ModelField,
    NodeField,
    OperatorSetField,
    ValueInfoField,
    graphs,
    has_bodies,
)
from nodes.executors.onnx.writing import model_of, node, operator_set, value_info
from nodes.protocol.payload import Array

DOMAIN = "com.microsoft.nchwc"
"""The domain of ONNX Runtime's operators in the blocked layout."""

_TO_BLOCKS, _FROM_BLOCKS = "ReorderInput", "ReorderOutput"

_USUAL = " in the usual order"
"""Ends the name of a tensor that a subnet computes in the usual order and that crosses its border
in blocks."""


def in_blocks(array: Array, block: int) -> Array:
    """Return a tensor [N, C, H, W] in blocks of channels, as an array of the same shape."""
    frames, channels, rows, columns = array.shape
    divided = array.reshape(frames, channels // block, block, rows, columns)
    return np.ascontiguousarray(divided.transpose(0, 1, 3, 4, 2)).reshape(array.shape)


def with_blocked_borders(model: bytes, names: Collection[str]) -> bytes:
    """Return an optimised subnet whose inputs and outputs `names` are in blocks.

    Raises ExecutorError if operators have graphs inside, which may also read these tensors, or if
    the subnet has no such input or output of known channels. Raises ValueError or IndexError if the
    bytes are not an ONNX model.
    """
    if has_bodies(memoryview(model)):
        raise ExecutorError("an operator contains a graph, which would read them in another order")
    graph = _Graph.read(model)
    unknown = sorted(set(names) - graph.inputs.keys() - graph.outputs.keys())
    if unknown:
        raise ExecutorError(f"it has no input or output {unknown[0]!r}")
    for name in sorted(graph.inputs.keys() & names):
        graph.take_in_blocks(name)
    for name in sorted(graph.outputs.keys() & names):
        graph.make_in_blocks(name)
    return graph.written(model)


def check_block(ort: Any, options: Any, block: int) -> None:
    """Raise ExecutorError unless ONNX Runtime has blocks of `block` channels on this processor."""
    usual = np.arange(4 * block, dtype=np.float32).reshape(1, 2 * block, 1, 2)
    session = ort.InferenceSession(_conversion(), options, providers=["CPUExecutionProvider"])
    if not np.array_equal(session.run(None, {"x": usual})[0], in_blocks(usual, block)):
        raise ExecutorError(
            f"ONNX Runtime {ort.__version__} uses blocks of another size here than the {block} "
            "channels that this agent offers"
        )


@dataclass(slots=True)
class _Node:
    """A node, and the names of its inputs and outputs, which may change."""

    message: bytes
    operator: str
    inputs: list[str]
    outputs: list[str]

    @classmethod
    def read(cls, message: memoryview) -> _Node:
        operator = text_field(message, NodeField.OP_TYPE) or ""
        is_blocked = text_field(message, NodeField.DOMAIN) == DOMAIN
        return cls(
            bytes(message),
            operator if is_blocked else "",
            texts(message, NodeField.INPUT),
            texts(message, NodeField.OUTPUT),
        )

    def written(self) -> bytes:
        names = (NodeField.INPUT, NodeField.OUTPUT)
        others = [bytes(part) for n, _, part in parts(memoryview(self.message)) if n not in names]
        inputs = [bytes_field(NodeField.INPUT, name.encode()) for name in self.inputs]
        outputs = [bytes_field(NodeField.OUTPUT, name.encode()) for name in self.outputs]
        return b"".join((*inputs, *outputs, *others))


@dataclass(slots=True)
class _Graph:
    """The nodes of a subnet, and the channels of its inputs and outputs."""

    nodes: list[_Node] = field(default_factory=list)
    inputs: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, model: bytes) -> _Graph:
        found = cls()
        for graph in graphs(memoryview(model)):
            for number, message in submessages(graph):
                if number == GraphField.NODE:
                    found.nodes.append(_Node.read(message))
                elif number in (GraphField.INPUT, GraphField.OUTPUT):
                    of = found.inputs if number == GraphField.INPUT else found.outputs
                    of[text_field(message, ValueInfoField.NAME) or ""] = image_channels(message)
        return found

    def take_in_blocks(self, name: str) -> None:
        """Let an input be in blocks."""
        usual = name + _USUAL
        readers = [layer for layer in self.nodes if name in layer.inputs]
        for layer in readers:
            if layer.operator == _TO_BLOCKS:
                self.nodes.remove(layer)
                self._read_instead(layer.outputs[0], name)
            else:
                layer.inputs = [usual if each == name else each for each in layer.inputs]
        if any(usual in layer.inputs for layer in self.nodes):
            self.nodes.insert(0, _from_blocks(name, usual, self.inputs[name]))

    def make_in_blocks(self, name: str) -> None:
        """Let an output be in blocks."""
        usual = name + _USUAL
        producer = next(layer for layer in self.nodes if name in layer.outputs)
        source = producer.inputs[0] if producer.operator == _FROM_BLOCKS else name
        free = source not in self.inputs and source not in self.outputs
        producer.outputs = [usual if each == name else each for each in producer.outputs]
        self._read_instead(name, usual)
        if not free:
            self.nodes.append(_to_blocks(usual, name))
            return
        for layer in self.nodes:
            layer.outputs = [name if each == source else each for each in layer.outputs]
        self._read_instead(source, name)
        if not any(usual in layer.inputs for layer in self.nodes):
            self.nodes.remove(producer)

    def _read_instead(self, before: str, after: str) -> None:
        for layer in self.nodes:
            layer.inputs = [after if each == before else each for each in layer.inputs]

    def written(self, model: bytes) -> bytes:
        """Return `model` with these nodes instead of its own."""
        return b"".join(self._model_parts(memoryview(model)))

    def _model_parts(self, model: memoryview) -> Iterator[bytes]:
        knows = False
        for number, value, part in parts(model):
            if number == ModelField.GRAPH and isinstance(value, memoryview):
                yield bytes_field(number, b"".join(self._graph_parts(value)))
                continue
            if number == ModelField.OPSET_IMPORT and isinstance(value, memoryview):
                knows = knows or text_field(value, OperatorSetField.DOMAIN) == DOMAIN
            yield bytes(part)
        if not knows:
            yield bytes_field(ModelField.OPSET_IMPORT, operator_set(DOMAIN, 1))

    def _graph_parts(self, graph: memoryview) -> Iterator[bytes]:
        for layer in self.nodes:
            yield bytes_field(GraphField.NODE, layer.written())
        for number, _, part in parts(graph):
            if number != GraphField.NODE:
                yield bytes(part)


def _to_blocks(source: str, target: str) -> _Node:
    return _Node(node(_TO_BLOCKS, domain=DOMAIN), _TO_BLOCKS, [source], [target])


def _from_blocks(source: str, target: str, channels: int) -> _Node:
    message = node(_FROM_BLOCKS, attributes={"channels": channels}, domain=DOMAIN)
    return _Node(message, _FROM_BLOCKS, [source], [target])


def _conversion() -> bytes:
    """Return a model that converts `x`, of any shape [1, C, 1, 2], to blocks `y`."""
    layers = (_to_blocks("x", "y").written(),)
    tensors = value_info("x", "float32"), value_info("y", "float32")
    return model_of("conversion", layers, *tensors, opsets={"": 13, DOMAIN: 1})
