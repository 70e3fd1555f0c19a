"""What holds for every model that is read, before anything looks at what it says.

Names are text; every operator makes something; and only weights, the initialisers of the graph,
lie in other files: whatever else has a tensor (constants, functions, the bodies of control flow)
has it inside. So no library that is handed the model later opens a file that it names.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]

from cnn.errors import ModelError
from cnn.read.external import is_external

_ELEMENT_TYPES = frozenset(onnx.TensorProto.DataType.values())


def check_form(proto: onnx.ModelProto, label: str) -> None:
    """Raise `ModelError` where one of these does not hold.

    Fields that the `onnx` package does not know are dropped.
    """
    proto.DiscardUnknownFields()
    if not proto.graph.output:
        raise ModelError(f"{label}: the model has no output; export it again")
    damaged = f"{label}: the file is damaged, export or download it again: "
    outside = 0
    for message in messages(proto):
        kind = message.DESCRIPTOR.name.removesuffix("Proto")
        if not all(isinstance(text, str) for text in _texts(message)):
            raise ModelError(f"{damaged}a {kind} has a name that is no text")
        if isinstance(message, onnx.NodeProto) and not message.output:
            raise ModelError(f"{damaged}an operator {message.op_type!r} makes nothing")
        if isinstance(message, onnx.GraphProto) and (name := _made_twice(message)):
            raise ModelError(f"{damaged}two operators, or one and an input, make {name!r}")
        if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type not in _ELEMENT_TYPES:
            raise ModelError(f"{damaged}a tensor has the element type {message.elem_type}")
        if isinstance(message, onnx.TensorProto) and is_external(message):
            outside += 1
    if outside > sum(map(is_external, proto.graph.initializer)):
        raise ModelError(
            f"{label}: a constant of the model lies in another file, where only its weights may; "
            "load it with onnx.load and save it with onnx.save"
        )


def _made_twice(graph: onnx.GraphProto) -> str | None:
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for name in (name for node in graph.node for name in node.output if name):
        if name in made:
            return str(name)
        made.add(name)
    return None


def messages(message: Message) -> Iterator[Message]:
    """A message and all that are inside of it; tensors are not looked into, they may be large."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        yield message
        if isinstance(message, onnx.TensorProto):
            waiting.extend(message.external_data)
            continue
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, Message) else value)


def _texts(message: Message) -> Iterator[object]:
    if isinstance(message, onnx.TensorProto):
        yield message.name
        return
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            yield from [value] if isinstance(value, str | bytes) else value
