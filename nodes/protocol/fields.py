"""Validators for the fields of messages, and the conversion between dataclasses and maps.

A `Convert` checks one value that was received or is to be sent, and returns it converted or raises
`ValueError`. A `Record` applies one to each field of a dataclass and adds the field's name to the
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from nodes.protocol.messages import CHUNK_BYTES

MAX_NAME = 4096
"""Characters that the name of a tensor, phase, node or address may have."""

MAX_WORD = 64
"""Characters that the name of an engine, a device, a precision or an option may have."""

MAX_TEXT = 1 << 16
"""UTF-8 bytes that a string such as `Failed.reason` may have."""

MAX_ITEMS = 4096
"""Items that a list of phases, channels or digests may have. A list is allocated before its items
are read, so this also bounds what a short hostile message can allocate."""

MAX_RANK = 16
MAX_DIMENSION = (1 << 31) - 1
MAX_COUNT = (1 << 63) - 1

DTYPE_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""The dtypes that tensors may have in messages (NumPy's names), and the bytes of one element."""

Convert = Callable[[Any], Any]
"""Checks a value and returns it converted; raises `ValueError` with what is wrong."""


def shown(value: object) -> str:
    """Return a received value short enough for an error message.

    For a list or a map it gives the type only: `repr` of a deeply nested one would fail.
    """
    if isinstance(value, (str, int, float)) or value is None:
        return f"{value!r:.80}"
    return f"a {type(value).__name__}"


def integer(low: int, high: int) -> Convert:
    """Accept whole numbers in low…high; booleans are refused."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{shown(value)} is not a whole number in {low}…{high}")
        return value

    return check


def real(low: float, high: float) -> Convert:
    """Accept finite numbers in low…high; whole numbers become floats."""

    def check(value: Any) -> float:
        if type(value) is int:
            value = float(value) if -MAX_COUNT < value < MAX_COUNT else math.inf
        if type(value) is not float or not low <= value <= high:
            raise ValueError(f"{shown(value)} is not a number in {low:g}…{high:g}")
        return value

    return check


def string(most: int) -> Convert:
    """Accept strings of at most `most` characters."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > most:
            raise ValueError(f"{shown(value)} is not a string of at most {most} characters")
        return value

    return check


def printable(text: str, *, lines: bool = False) -> str:
    """Return `text` with escapes for what could steer a terminal or forge a line of a log.

    That is all that Unicode does not call printable: control characters, marks of the direction of
    writing, surrogates. With `lines`, newlines and tabs stay.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else _escape(ord(c)) for c in text)


def _escape(code: int) -> str:
    if code < 1 << 8:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def sentence(most: int) -> Convert:
    """Accept strings of at most `most` characters that people will read; make them printable."""
    check = string(most)
    return lambda value: printable(check(value), lines=True)


def word(most: int) -> Convert:
    """Accept strings of at most `most` characters; make them printable, without getting longer."""
    check = string(most)
    return lambda value: printable(check(value))[:most]


def one_of(*allowed: str) -> Convert:
    """Accept the strings `allowed` only."""
    choices = frozenset(allowed)

    def check(value: Any) -> str:
        if type(value) is not str or value not in choices:
            raise ValueError(f"{shown(value)} is not one of {', '.join(allowed)}")
        return value

    return check


def flag(value: Any) -> bool:
    """Accept True and False."""
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def chunk(value: Any) -> bytes:
    """Accept at most `CHUNK_BYTES` raw bytes."""
    if type(value) is not bytes or len(value) > CHUNK_BYTES:
        raise ValueError(f"not a chunk of at most {CHUNK_BYTES} bytes")
    return value


_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


def digest(value: Any) -> str:
    """Accept a SHA-256 as 64 lower-case hexadecimal digits."""
    if type(value) is not str or not _is_digest(value):
        raise ValueError(f"{shown(value)} is not a SHA-256 in lower-case hex")
    return value


def dtype(value: Any) -> str:
    """Accept the dtypes in `DTYPE_BYTES`."""
    if type(value) is not str or value not in DTYPE_BYTES:
        raise ValueError(f"{shown(value)} is not a dtype that can be sent")
    return value


def shape(value: Any) -> tuple[int, ...]:
    """Accept a tensor's shape, at most `MAX_RANK` axes; `()` is that of a scalar."""
    if type(value) is not tuple or len(value) > MAX_RANK:
        raise ValueError(f"{shown(value)} is not a shape of at most {MAX_RANK} axes")
    for axis in value:
        if type(axis) is not int or not 0 <= axis <= MAX_DIMENSION:
            raise ValueError(f"{shown(axis)} is not the length of an axis")
    return value


def list_of(item: Convert) -> Convert:
    """Accept lists of at most `MAX_ITEMS` such items."""

    def convert(value: Any) -> tuple[Any, ...]:
        if type(value) is not tuple or len(value) > MAX_ITEMS:
            raise ValueError(f"not a list of at most {MAX_ITEMS} items")
        converted = []
        try:
            for one in value:
                converted.append(item(one))  # noqa: PERF401 - the error names the item's place
        except ValueError as error:
            raise ValueError(f"[{len(converted)}]: {error}") from None
        return tuple(converted)

    return convert


def optional(item: Convert) -> Convert:
    """Accept such an item or None."""
    return lambda value: None if value is None else item(value)


class Record:
    """Converts a frozen dataclass to a map and back.

    `fields` maps each field's name to its `Convert`, or to two: one for packing, one for unpacking.
    A field that maps to None is not sent; a received value has the dataclass's default there.
    """

    def __init__(
        self, cls: type, fields: Mapping[str, Convert | tuple[Convert, Convert] | None]
    ) -> None:
        self.cls = cls
        self.kind = cls.__name__
        both = {
            name: field if isinstance(field, tuple) else (field, field)
            for name, field in fields.items()
            if field is not None
        }
        self.names = frozenset(both)
        self._packers = tuple((name, pack) for name, (pack, _) in both.items())
        self._unpackers = tuple((name, unpack) for name, (_, unpack) in both.items())

    def pack(self, value: Any) -> dict[str, Any]:
        """Return the value's fields as a map; `ValueError` names the field that is wrong."""
        if type(value) is not self.cls:
            raise ValueError(f"{type(value).__name__} where {self.kind} belongs")
        plain = {}
        name = ""
        try:
            for name, pack in self._packers:
                plain[name] = pack(getattr(value, name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return plain

    def unpack(self, plain: Any) -> Any:
        """Return the dataclass of a map, which must have exactly its fields.

        Raises `ValueError` with the name of the field that is wrong.
        """
        if type(plain) is not dict or plain.keys() != self.names:
            raise ValueError(f"not a map of {', '.join(sorted(self.names)) or 'nothing'}")
        values = {}
        name = ""
        try:
            for name, unpack in self._unpackers:
                values[name] = unpack(plain[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return self.cls(**values)


def nested(record: Record) -> tuple[Convert, Convert]:
    """Return how to pack and unpack a field that holds a record."""
    return record.pack, record.unpack


def records(record: Record) -> tuple[Convert, Convert]:
    """Return how to pack and unpack a field that holds a list of records."""
    return list_of(record.pack), list_of(record.unpack)
