"""What a field of a message may hold, and how a map of fields becomes a frozen dataclass.

A `Convert` checks one value that came off the wire (or is about to go onto it) and returns it
converted, or raises `ValueError` with what is wrong; a `Record` names the field in front of that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from nodes.protocol.messages import CHUNK_BYTES

MAX_NAME = 4096
"""Characters in the name of a tensor, phase, node or address."""

MAX_TEXT = 1 << 16
"""Bytes in a sentence such as `Failed.reason`."""

MAX_ITEMS = 4096
"""Items in a list: phases, channels, digests. A list is allocated before its items are read, so
this also bounds what a hostile few bytes can make us allocate."""

MAX_RANK = 16
MAX_DIMENSION = (1 << 31) - 1
MAX_COUNT = (1 << 63) - 1

DTYPE_BYTES = {
    "bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
"""The dtypes that tensors may have on the wire (NumPy's names) and the bytes of one element."""

Convert = Callable[[Any], Any]
"""Checks a value and returns it converted; raises `ValueError` saying what is wrong with it."""


def shown(value: object) -> str:
    """A value from the wire, short enough for a sentence (deep nesting has no `repr`)."""
    if isinstance(value, (str, int, float)) or value is None:
        return f"{value!r:.80}"
    return f"a {type(value).__name__}"


def integer(low: int, high: int) -> Convert:
    """A whole number in low…high; `True` is none."""

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{shown(value)} is not a whole number in {low}…{high}")
        return value

    return check


def real(low: float, high: float) -> Convert:
    """A finite number in low…high; whole numbers become floats."""

    def check(value: Any) -> float:
        if type(value) is int:
            value = float(value) if -MAX_COUNT < value < MAX_COUNT else math.inf
        if type(value) is not float or not low <= value <= high:
            raise ValueError(f"{shown(value)} is not a number in {low:g}…{high:g}")
        return value

    return check


def string(most: int) -> Convert:
    """A string of at most that many characters."""

    def check(value: Any) -> str:
        if type(value) is not str or len(value) > most:
            raise ValueError(f"{shown(value)} is not a string of at most {most} characters")
        return value

    return check


def printable(text: str, *, lines: bool = False) -> str:
    """`text` with escapes for all that would steer a terminal or forge a line of a log.

    That is whatever Unicode does not call printable: control characters, marks that turn the
    direction of writing, halves of characters. With `lines` it may have several lines.
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
    """A string of at most that many characters which people are shown: it comes out printable."""
    check = string(most)
    return lambda value: printable(check(value), lines=True)


def one_of(*allowed: str) -> Convert:
    """One of a few words."""
    choices = frozenset(allowed)

    def check(value: Any) -> str:
        if type(value) is not str or value not in choices:
            raise ValueError(f"{shown(value)} is none of {', '.join(allowed)}")
        return value

    return check


def flag(value: Any) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return value


def chunk(value: Any) -> bytes:
    """At most `CHUNK_BYTES` raw bytes."""
    if type(value) is not bytes or len(value) > CHUNK_BYTES:
        raise ValueError(f"not a chunk of at most {CHUNK_BYTES} bytes")
    return value


_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


def digest(value: Any) -> str:
    """A SHA-256 as 64 lower-case hex digits."""
    if type(value) is not str or not _is_digest(value):
        raise ValueError(f"{shown(value)} is not a SHA-256 in lower-case hex")
    return value


def dtype(value: Any) -> str:
    """One of `DTYPE_BYTES`."""
    if type(value) is not str or value not in DTYPE_BYTES:
        raise ValueError(f"{shown(value)} is not a dtype that can be sent")
    return value


def shape(value: Any) -> tuple[int, ...]:
    """A tensor's static shape; `()` is a scalar's."""
    if type(value) is not tuple or len(value) > MAX_RANK:
        raise ValueError(f"{shown(value)} is not a shape of at most {MAX_RANK} axes")
    for axis in value:
        if type(axis) is not int or not 0 <= axis <= MAX_DIMENSION:
            raise ValueError(f"{shown(axis)} is not the length of an axis")
    return value


def several(item: Convert) -> Convert:
    """A list of at most `MAX_ITEMS` such items."""

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
    """Such an item or None."""
    return lambda value: None if value is None else item(value)


class Record:
    """How a frozen dataclass becomes a map and comes back; compiled once, at import."""

    def __init__(self, cls: type, fields: dict[str, Convert | tuple[Convert, Convert]]) -> None:
        self.cls = cls
        self.kind = cls.__name__
        self.names = frozenset(fields)
        both = {
            name: field if isinstance(field, tuple) else (field, field)
            for name, field in fields.items()
        }
        self._packers = tuple((name, pack) for name, (pack, _) in both.items())
        self._unpackers = tuple((name, unpack) for name, (_, unpack) in both.items())

    def pack(self, value: Any) -> dict[str, Any]:
        """The value's fields as a map; `ValueError` names the field that is wrong."""
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
        """The dataclass of a map with exactly its fields; `ValueError` names a wrong one."""
        if type(plain) is not dict or plain.keys() != self.names:
            raise ValueError(f"not a map of {', '.join(sorted(self.names)) or 'nothing'}")
        values = []
        name = ""
        try:
            for name, unpack in self._unpackers:
                values.append(unpack(plain[name]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        return self.cls(*values)


def nested(record: Record) -> tuple[Convert, Convert]:
    """A field that holds a record: how it is packed and unpacked."""
    return record.pack, record.unpack


def records(record: Record) -> tuple[Convert, Convert]:
    """A field that holds a list of records."""
    return several(record.pack), several(record.unpack)
