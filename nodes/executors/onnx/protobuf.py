"""Reads and writes the wire format of protocol buffers, as far as ONNX files use it.

A message is a sequence of fields, each a key (`number << 3 | wire type`) and a value. Readers skip
the fields that they do not need without reading them, so a file of any size costs a few pages of
memory. The numbers of ONNX's fields are in `nodes.executors.onnx.schema`.

Readers raise ValueError or IndexError where a message is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_LARGEST_KEY = (1 << 32) - 1


def fields(message: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield each field's number and value: an integer, or the bytes of any other type."""
    for number, value, _ in parts(message):
        yield number, value


def parts(message: memoryview) -> Iterator[tuple[int, memoryview | int, memoryview]]:
    """Yield each field's number, its value, and all of its bytes including the key."""
    position, end = 0, len(message)
    while position < end:
        began = position
        key, position = _varint(message, position)
        if key > _LARGEST_KEY:
            raise ValueError("invalid key of a field")
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, position = _varint(message, position)
            yield number, value, message[began:position]
            continue
        if wire == _BYTES:
            length, position = _varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if length > end - position:
            raise ValueError("a field longer than its message")
        yield number, message[position : position + length], message[began : position + length]
        position += length


def submessages(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and bytes of each field that is a message, a text or bytes.

    The bytes are valid until the next field is requested.
    """
    for number, value in fields(message):
        if isinstance(value, memoryview):
            with value:
                yield number, value


def nested(message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview]:
    """Yield all messages that this path of field numbers leads to, outermost number first.

    Each is valid until the next one is requested.
    """
    if not path:
        yield message
        return
    for number, value in submessages(message):
        if number == path[0]:
            yield from nested(value, path[1:])


def has_field(message: memoryview, wanted: int) -> bool:
    """Return whether a message has a field of this number."""
    return any(number == wanted for number, _ in fields(message))


def text_field(message: memoryview, wanted: int) -> str | None:
    """Return a field's text, None without one; of several the last, as the format prescribes."""
    text = None
    for number, value in submessages(message):
        if number == wanted:
            text = str(value, "utf-8")
    return text


def texts(message: memoryview, wanted: int) -> list[str]:
    """Return the texts of all fields of this number."""
    return [str(value, "utf-8") for number, value in submessages(message) if number == wanted]


def number_field(message: memoryview, wanted: int) -> int:
    """Return a field's integer, 0 without one; of several the last, as the format prescribes."""
    values = [value for number, value in fields(message) if number == wanted]
    return values[-1] if values and isinstance(values[-1], int) else 0


def edited(message: memoryview, wanted: int, edit: Callable[[memoryview], bytes | None]) -> bytes:
    """Return the message with `edit(value)` in place of each field of this number.

    A field for which `edit` returns None is left out.
    """
    written = bytearray()
    for number, value, part in parts(message):
        if number != wanted or not isinstance(value, memoryview):
            written += part
        elif (content := edit(value)) is not None:
            written += field(number, content)
    return bytes(written)


def field(number: int, content: bytes) -> bytes:
    """Return a serialised field that is a message, a text or bytes."""
    return _encoded(number << 3 | _BYTES) + _encoded(len(content)) + content


def integer_field(number: int, value: int) -> bytes:
    """Return a serialised field that is an integer of 0 or more."""
    return _encoded(number << 3 | _VARINT) + _encoded(value)


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("varint longer than ten bytes")
