"""What an ONNX file may hold where an agent's engine reads it, as a table of onnx.proto3.

An engine follows the name of a file wherever a model has a tensor: in weights, in attributes, in
what functions take for granted. A reader that looks for tensors in the places that it knows misses
those that it does not know. So this one walks through every message by a table that has every field
of the format, and refuses a field that the table does not have. `tests/nodes/executors` holds the
table to the `onnx` package.

A graph inside of a node (the body of an `If`, a `Loop` or a `Scan`) is walked like the model's own,
so whatever holds for that holds for it. Bodies may be nested `MOST_BODIES` deep. Refused altogether
is what no launcher sends: functions, sparse tensors, and training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.protobuf import fields, text_field

MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR = (
    "ModelProto", "GraphProto", "NodeProto", "AttributeProto", "TensorProto"
)  # fmt: skip


class NotAllowedError(ExecutorError):
    """Something that no file may hold here; the text completes "it has …"."""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of a message by number: those that hold no tensor, however deep inside; those that
    are messages of this table; and those that are refused, with what they are called."""

    plain: frozenset[int]
    holding: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)


_TRAINING = "steps of training"
_FUNCTIONS = "functions of its own"
_SPARSE = "sparse tensors"

MESSAGES: Mapping[str, Message] = {
    MODEL: Message(
        frozenset({1, 2, 3, 4, 5, 6, 8, 14, 26}), {7: GRAPH}, {20: _TRAINING, 25: _FUNCTIONS}
    ),
    GRAPH: Message(frozenset({2, 10, 11, 12, 13, 14, 16}), {1: NODE, 5: TENSOR}, {15: _SPARSE}),
    NODE: Message(frozenset({1, 2, 3, 4, 6, 7, 8, 9, 10}), {5: ATTRIBUTE}),
    ATTRIBUTE: Message(
        frozenset({1, 2, 3, 4, 7, 8, 9, 13, 14, 15, 20, 21}),
        {5: TENSOR, 6: GRAPH, 10: TENSOR, 11: GRAPH},
        {22: _SPARSE, 23: _SPARSE},
    ),
    TENSOR: Message(frozenset({*range(1, 15), 16})),
}

MOST_BODIES = 16
"""How deep bodies may be nested: far more than any network has, and far less than would exhaust the
stack of whoever reads them."""

# Field numbers that are looked at.
_MODEL_GRAPH, _GRAPH_NAME = 7, 2
_TENSOR_EXTERNAL, _TENSOR_LOCATION = 13, 14
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
NODE_NAME, NODE_OPERATOR, NODE_DOMAIN, NODE_OUTPUT = 3, 4, 7, 2

_OUTSIDE = 1
"""`TensorProto.data_location`: in another file."""


def walk(
    message: memoryview, kind: str = MODEL, bodies: int = 0
) -> Iterator[tuple[str, memoryview, int]]:
    """Every message of the table inside of `message`, itself first: what it is, its bytes, and in
    how many bodies it lies.

    Each is valid until the next is asked for. Raises NotAllowedError for what the table refuses or
    does not have, ValueError or IndexError where the file is malformed.
    """
    if bodies > MOST_BODIES:
        raise NotAllowedError(f"more than {MOST_BODIES} graphs one inside of the other")
    yield kind, message, bodies
    known = MESSAGES[kind]
    for number, value in fields(message):
        if (refused := known.refused.get(number)) is not None:
            raise NotAllowedError(refused)
        inner = known.holding.get(number)
        if isinstance(value, memoryview):
            with value:
                if inner is not None:
                    yield from walk(value, inner, bodies + (kind == ATTRIBUTE and inner == GRAPH))
        elif inner is not None:
            raise ValueError(f"field {number} of {kind} is no message")
        if inner is None and number not in known.plain:
            raise NotAllowedError(
                f"the field {number} of {kind}, which this version does not know; install a newer "
                "one of csdf-edge on this node"
            )


def graph_name(model: memoryview) -> str | None:
    """The name of a model's graph, "" if it has none; None if there is no graph."""
    name = None
    for number, value in fields(model):
        if number == _MODEL_GRAPH and isinstance(value, memoryview):
            with value:
                name = text_field(value, _GRAPH_NAME) or name or ""
        elif isinstance(value, memoryview):
            value.release()
    return name


def external_entries(tensor: memoryview) -> list[tuple[str, str]] | None:
    """What a tensor says of the file that holds its content; None if nothing."""
    entries = []
    is_outside = False
    for number, value in fields(tensor):
        if number == _TENSOR_LOCATION:
            is_outside = value == _OUTSIDE
        if not isinstance(value, memoryview):
            continue
        with value:
            if number == _TENSOR_EXTERNAL:
                key, text = text_field(value, _ENTRY_KEY), text_field(value, _ENTRY_VALUE)
                entries.append((key or "", text or ""))
    return entries if entries or is_outside else None
