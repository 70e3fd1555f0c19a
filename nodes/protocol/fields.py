"""The types of the fields of messages, and the validators that bound their values.

A `Convert` checks one value that was received or is to be sent, and returns it converted or raises
`ValueError`. A type such as `Name` carries one, or a pair of them: the first packs a value, the
second unpacks it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

MAX_NAME = 4096
"""Characters that the name of a tensor, phase, node or address may have."""

MAX_WORD = 64
"""Characters that the name of an engine, a device, a precision or an option may have."""

MAX_TEXT = 1 << 16
"""UTF-8 bytes that a string such as `Failed.reason` may have."""

MAX_ITEMS = 4096
"""Items that a list of phases, channels or digests may have. A list is allocated before its items
are read, so this also bounds what a short hostile message can allocate."""

MAX_THREADS = 1024
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


def raw(most: int) -> Convert:
    """Accept at most `most` raw bytes."""

    def check(value: Any) -> bytes:
        if type(value) is not bytes or len(value) > most:
            raise ValueError(f"not a chunk of at most {most} bytes")
        return value

    return check


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


@dataclass(frozen=True, slots=True)
class Since:
    """Marks the type of a field that this version of the protocol has added."""

    version: int


Count: TypeAlias = Annotated[int, integer(0, MAX_COUNT)]
Index: TypeAlias = Annotated[int, integer(0, (1 << 31) - 1)]
Positive: TypeAlias = Annotated[int, integer(1, (1 << 31) - 1)]
Threads: TypeAlias = Annotated[int, integer(1, MAX_THREADS)]
Block: TypeAlias = Annotated[int, integer(1, 1024)]
Seconds: TypeAlias = Annotated[float, real(0.0, 1e12)]
PartS: TypeAlias = Annotated[float, real(0.0, 1e3)]
RateS: TypeAlias = Annotated[float, real(1e-18, 1e3)]
Joules: TypeAlias = Annotated[float, real(0.0, 1e15)]
Number: TypeAlias = Annotated[float, real(-1e300, 1e300)]
Name: TypeAlias = Annotated[str, string(MAX_NAME)]
Who: TypeAlias = Annotated[str, string(200)]
Word: TypeAlias = Annotated[str, (string(MAX_WORD), word(MAX_WORD))]
Label: TypeAlias = Annotated[str, (string(MAX_NAME), sentence(MAX_NAME))]
Sentence: TypeAlias = Annotated[str, (string(MAX_TEXT // 4), sentence(MAX_TEXT // 4))]
Digest: TypeAlias = Annotated[str, digest]
Dtype: TypeAlias = Annotated[str, dtype]
Shape: TypeAlias = Annotated[tuple[int, ...], shape]
