"""The fields of ONNX's file format that may occur in a subnet, by number and name.

An engine opens the file that a model names wherever the model has a tensor: in weights, in
attributes, in defaults of functions. A reader that searches only the usual places for tensors
misses the others. `walk` therefore visits every message by a table (`MESSAGES`) that contains every
field of onnx.proto3, and refuses a field that the table does not contain.

A graph inside a node (the body of an `If`, a `Loop` or a `Scan`) is visited like the model's own
graph, up to `MOST_BODIES` deep. Functions, sparse tensors and training are refused; no launcher
sends them.

`tests/nodes/executors/test_onnx_schema.py` compares numbers, names and table with the `onnx`
package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.protobuf import (
    fields,
    nested,
    number_field,
    submessages,
    text_field,
)


class ModelField(IntEnum):
    """`ModelProto`."""

    IR_VERSION = 1
    PRODUCER_NAME = 2
    PRODUCER_VERSION = 3
    DOMAIN = 4
    MODEL_VERSION = 5
    DOC_STRING = 6
    GRAPH = 7
    OPSET_IMPORT = 8
    METADATA_PROPS = 14
    TRAINING_INFO = 20
    FUNCTIONS = 25
    CONFIGURATION = 26


class GraphField(IntEnum):
    """`GraphProto`."""

    NODE = 1
    NAME = 2
    INITIALIZER = 5
    DOC_STRING = 10
    INPUT = 11
    OUTPUT = 12
    VALUE_INFO = 13
    QUANTIZATION_ANNOTATION = 14
    SPARSE_INITIALIZER = 15
    METADATA_PROPS = 16


class NodeField(IntEnum):
    """`NodeProto`."""

    INPUT = 1
    OUTPUT = 2
    NAME = 3
    OP_TYPE = 4
    ATTRIBUTE = 5
    DOC_STRING = 6
    DOMAIN = 7
    OVERLOAD = 8
    METADATA_PROPS = 9
    DEVICE_CONFIGURATIONS = 10


class AttributeField(IntEnum):
    """`AttributeProto`."""

    NAME = 1
    F = 2
    I = 3  # noqa: E741 - the format's name
    S = 4
    T = 5
    G = 6
    FLOATS = 7
    INTS = 8
    STRINGS = 9
    TENSORS = 10
    GRAPHS = 11
    DOC_STRING = 13
    TP = 14
    TYPE_PROTOS = 15
    TYPE = 20
    REF_ATTR_NAME = 21
    SPARSE_TENSOR = 22
    SPARSE_TENSORS = 23


class TensorField(IntEnum):
    """`TensorProto`."""

    DIMS = 1
    DATA_TYPE = 2
    SEGMENT = 3
    FLOAT_DATA = 4
    INT32_DATA = 5
    STRING_DATA = 6
    INT64_DATA = 7
    NAME = 8
    RAW_DATA = 9
    DOUBLE_DATA = 10
    UINT64_DATA = 11
    DOC_STRING = 12
    EXTERNAL_DATA = 13
    DATA_LOCATION = 14
    METADATA_PROPS = 16


class EntryField(IntEnum):
    """`StringStringEntryProto`: an entry of a tensor's `external_data`."""

    KEY = 1
    VALUE = 2


class ValueInfoField(IntEnum):
    """`ValueInfoProto`: a tensor's name and type."""

    NAME = 1
    TYPE = 2
    DOC_STRING = 3
    METADATA_PROPS = 4


class OperatorSetField(IntEnum):
    """`OperatorSetIdProto`."""

    DOMAIN = 1
    VERSION = 2


class DimensionField(IntEnum):
    """`TensorShapeProto.Dimension`."""

    DIM_VALUE = 1
    DIM_PARAM = 2
    DENOTATION = 3


TYPE_TENSOR, TENSOR_SHAPE, SHAPE_DIM = 1, 2, 1
"""`TypeProto.tensor_type`, `TypeProto.Tensor.shape` and `TensorShapeProto.dim`."""

TENSOR_ELEMENT_TYPE = 1
"""`TypeProto.Tensor.elem_type`."""

FLOAT = 1
"""`TensorProto.FLOAT`, an element type."""

EXTERNAL = 1
"""The value of `TensorProto.data_location` for content in another file."""

MODEL, GRAPH, NODE, ATTRIBUTE, TENSOR = (
    "ModelProto", "GraphProto", "NodeProto", "AttributeProto", "TensorProto"
)  # fmt: skip

MOST_BODIES = 16
"""The deepest nesting of bodies: far more than any network has, and far less than would exhaust the
reader's stack."""

_TRAINING = "training steps"
_FUNCTIONS = "functions"
_SPARSE = "sparse tensors"


class NotAllowedError(ExecutorError):
    """The file contains something that no subnet may contain; the text completes "it has …"."""


@dataclass(frozen=True, slots=True)
class Message:
    """The fields of one kind of message, by number.

    `plain` fields hold no tensor and no node, however deep. `holding` fields are messages of the
    kind that they map to. `refused` fields map to the words by which an error names them.
    """

    plain: frozenset[int]
    holding: Mapping[int, str] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)


def _message(
    numbers: type[IntEnum],
    holding: Mapping[int, str] | None = None,
    refused: Mapping[int, str] | None = None,
) -> Message:
    holding, refused = holding or {}, refused or {}
    return Message(frozenset(numbers) - holding.keys() - refused.keys(), holding, refused)


MESSAGES: Mapping[str, Message] = {
    MODEL: _message(
        ModelField,
        {ModelField.GRAPH: GRAPH},
        {ModelField.TRAINING_INFO: _TRAINING, ModelField.FUNCTIONS: _FUNCTIONS},
    ),
    GRAPH: _message(
        GraphField,
        {GraphField.NODE: NODE, GraphField.INITIALIZER: TENSOR},
        {GraphField.SPARSE_INITIALIZER: _SPARSE},
    ),
    NODE: _message(NodeField, {NodeField.ATTRIBUTE: ATTRIBUTE}),
    ATTRIBUTE: _message(
        AttributeField,
        {
            AttributeField.T: TENSOR,
            AttributeField.G: GRAPH,
            AttributeField.TENSORS: TENSOR,
            AttributeField.GRAPHS: GRAPH,
        },
        {AttributeField.SPARSE_TENSOR: _SPARSE, AttributeField.SPARSE_TENSORS: _SPARSE},
    ),
    TENSOR: _message(TensorField),
}


def walk(
    message: memoryview, kind: str = MODEL, bodies: int = 0
) -> Iterator[tuple[str, memoryview, int]]:
    """Yield `message` and every message of the table inside it, outer ones first.

    Each comes with its kind, its bytes, and the number of bodies that it lies in; the bytes are
    valid until the next one is requested. Raises NotAllowedError for a field that the table refuses
    or does not contain, ValueError or IndexError where the file is malformed.
    """
    if bodies > MOST_BODIES:
        raise NotAllowedError(f"more than {MOST_BODIES} graphs nested in one another")
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
            raise ValueError(f"field {number} of {kind} is not a message")
        if inner is None and number not in known.plain:
            raise NotAllowedError(
                f"the field {number} of {kind}, which this version does not know; install a newer "
                "one of csdf-edge on this node"
            )


def graphs(model: memoryview) -> Iterator[memoryview]:
    """Yield a model's graph; a file may have it in several pieces, or not at all.

    Each is valid until the next one is requested. Raises ValueError or IndexError where the model
    is malformed.
    """
    for number, graph in submessages(model):
        if number == ModelField.GRAPH:
            yield graph


def dimensions(value_info: memoryview) -> list[int]:
    """Return the shape of an input, an output or an inner tensor; 0 for each unknown dimension."""
    path = (ValueInfoField.TYPE, TYPE_TENSOR, TENSOR_SHAPE, SHAPE_DIM)
    return [number_field(each, DimensionField.DIM_VALUE) for each in nested(value_info, path)]


def graph_name(model: memoryview) -> str | None:
    """Return the name of a model's graph, "" if it has none; None if there is no graph."""
    name = None
    for graph in graphs(model):
        name = text_field(graph, GraphField.NAME) or name or ""
    return name


def has_bodies(model: memoryview) -> bool:
    """Return whether an operator of a model has a graph inside it; raises as `graphs` does."""
    return any(
        part in (AttributeField.G, AttributeField.GRAPHS)
        for graph in graphs(model)
        for number, node in submessages(graph)
        if number == GraphField.NODE
        for inner, attribute in submessages(node)
        if inner == NodeField.ATTRIBUTE
        for part, _ in submessages(attribute)
    )


def external_entries(tensor: memoryview) -> list[tuple[str, str]] | None:
    """Return the keys and values by which a tensor names the file that holds its content.

    None if its content is in the model itself.
    """
    entries = []
    is_outside = False
    for number, value in fields(tensor):
        if number == TensorField.DATA_LOCATION:
            is_outside = value == EXTERNAL
        if not isinstance(value, memoryview):
            continue
        with value:
            if number == TensorField.EXTERNAL_DATA:
                key = text_field(value, EntryField.KEY)
                entries.append((key or "", text_field(value, EntryField.VALUE) or ""))
    return entries if entries or is_outside else None
