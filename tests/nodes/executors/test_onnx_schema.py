"""The numbers and names of ONNX's fields are those of the `onnx` package."""

from __future__ import annotations

from enum import IntEnum

import onnx
import pytest

from nodes.executors.onnx import schema
from nodes.executors.onnx.schema import MESSAGES


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (schema.ModelField, onnx.ModelProto),
        (schema.GraphField, onnx.GraphProto),
        (schema.NodeField, onnx.NodeProto),
        (schema.AttributeField, onnx.AttributeProto),
        (schema.TensorField, onnx.TensorProto),
        (schema.EntryField, onnx.StringStringEntryProto),
        (schema.ValueInfoField, onnx.ValueInfoProto),
        (schema.OperatorSetField, onnx.OperatorSetIdProto),
        (schema.DimensionField, onnx.TensorShapeProto.Dimension),
    ],
)
def test_every_field_has_the_number_and_the_name_of_the_format(
    fields: type[IntEnum], message: type
) -> None:
    expected = {f.name.upper(): f.number for f in message.DESCRIPTOR.fields}
    assert {member.name: member.value for member in fields} == expected


def test_the_path_from_a_value_to_its_dimensions_is_that_of_the_format() -> None:
    path = [
        (onnx.TypeProto, "tensor_type", schema.TYPE_TENSOR),
        (onnx.TypeProto.Tensor, "shape", schema.TENSOR_SHAPE),
        (onnx.TensorShapeProto, "dim", schema.SHAPE_DIM),
    ]
    for message, name, number in path:
        assert message.DESCRIPTOR.fields_by_name[name].number == number
    assert schema.EXTERNAL == onnx.TensorProto.EXTERNAL


def test_the_table_has_every_place_of_the_format_that_may_hold_a_tensor_or_an_operator() -> None:
    """A message is passed over only if nothing inside of it can name a file or run."""
    holders = {"TensorProto", "NodeProto"}

    def holds(message, seen: frozenset[str] = frozenset()) -> bool:
        if message.name in holders:
            return True
        inner = {f.message_type.name: f.message_type for f in message.fields if f.message_type}
        return any(holds(m, seen | inner.keys()) for name, m in inner.items() if name not in seen)

    left = [onnx.ModelProto.DESCRIPTOR]
    checked = set()
    while left:
        message = left.pop()
        if message.name in checked:
            continue
        checked.add(message.name)
        table = MESSAGES[message.name]
        for f in message.fields:
            what = f"{message.name}.{f.name}"
            if f.message_type is None or not holds(f.message_type):
                assert f.number in table.plain, what
            elif f.number in table.holding:
                assert table.holding[f.number] == f.message_type.name, what
                left.append(f.message_type)
            else:
                assert f.number in table.refused, what
    assert checked == MESSAGES.keys()
