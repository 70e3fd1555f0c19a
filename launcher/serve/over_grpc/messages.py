"""The protocol's protobuf messages, made at run time from the compiled `open_inference.proto`.

They are in a separate pool, so that a program may import another copy of the protocol as well.
`bytes` fields of megabytes are kept out of protobuf, which would copy them: a repeated field may
stand anywhere in a message, and `parted` and `field` take it out and put it in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet  # type: ignore[import-untyped]
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from launcher.serve.errors import RequestError
from launcher.serve.tensors import FEW

DESCRIPTORS = Path(__file__).with_name("open_inference.binpb")
SERVICE = "inference.GRPCInferenceService"

_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
"""Wire type → bytes, for types of a fixed length."""

LONGEST_VARINT = 10


def descriptors() -> Sequence[Any]:
    """Return the descriptors of the protocol's files."""
    return tuple(FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file)


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in descriptors():
        pool.Add(file)
    return pool


_POOL = _pool()

METHODS: Mapping[str, tuple[Any, Any]] = {
    method.name: (GetMessageClass(method.input_type), GetMessageClass(method.output_type))
    for method in _POOL.FindServiceByName(SERVICE).methods
    if not method.client_streaming
}
"""Method that takes one message → the classes of its request and its response."""

STREAM = "ModelStreamInfer"
"""The method that takes a stream of the requests of `ModelInfer`."""

ERROR_MESSAGE, INFER_RESPONSE = 1, 2
"""The numbers of the fields of its responses, which `field` writes."""


def parsed(kind: Any, data: bytes) -> Any:
    """Return the message of class `kind` in `data`. Raises `RequestError`."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RequestError("the message is not a valid protobuf of its type") from None


def parted(data: bytes, *numbers: int) -> tuple[bytes, dict[int, list[memoryview]]]:
    """Return a message without its length-delimited fields of these numbers, and their contents.

    The contents are views of `data`. Raises `RequestError` for bytes that are not a message, and
    for more than `FEW` fields, which are counted before they are decoded.
    """
    view = memoryview(data)
    rest: list[memoryview] = []
    contents: dict[int, list[memoryview]] = {number: [] for number in numbers}
    at = count = 0
    while at < len(data):
        count += 1
        if count > FEW:
            raise RequestError(f"the message has more than {FEW} fields")
        tag, begin = _varint(data, at)
        match tag & 7:
            case 0:
                end = _varint(data, begin)[1]
            case 1 | 5 as fixed:
                end = begin + _FIXED_BYTES[fixed]
            case 2:
                size, begin = _varint(data, begin)
                end = begin + size
            case _:  # groups, which proto3 does not have
                raise RequestError("the message is not a valid protobuf of its type")
        if end > len(data):
            raise RequestError("the message is cut off")
        if tag & 7 == _LENGTH_DELIMITED and tag >> 3 in contents:
            contents[tag >> 3].append(view[begin:end])
        else:
            rest.append(view[at:end])
        at = end
    return b"".join(rest), contents


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `at`, and where it ends."""
    value = 0
    for index, byte in enumerate(data[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise RequestError("the message is cut off")


def field(number: int, contents: Sequence[bytes]) -> list[bytes]:
    """Return a repeated `bytes` field in its wire format, in parts."""
    parts = []
    for content in contents:
        parts += [_as_varint(number << 3 | _LENGTH_DELIMITED) + _as_varint(len(content)), content]
    return parts


def _as_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
