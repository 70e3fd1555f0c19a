"""Converts messages to maps and back, in each version, as the types of their fields say."""

from __future__ import annotations

from dataclasses import is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from nodes.protocol import messages as words
from nodes.protocol.fields import Convert, Since, flag, list_of, one_of, optional


class Record:
    """Converts a frozen dataclass to a map and back, in one version of the protocol.

    A field that this version lacks is not sent; a received value has the dataclass's default there.
    Raises `TypeError` for a field whose type has no bounds.
    """

    def __init__(self, cls: type, version: int) -> None:
        self.cls = cls
        self.kind = cls.__name__
        both = {
            name: _converters(hint, version)
            for name, hint in _field_types(cls).items()
            if all(mark.version <= version for mark in _marks(hint))
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


_record = cache(Record)


@cache
def _field_types(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _converters(hint: Any, version: int) -> tuple[Convert, Convert]:
    """Return how to pack and unpack a field of this type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [note for note in arguments[1:] if not isinstance(note, Since)]
        if not bounds:
            return _converters(arguments[0], version)
        return bounds[0] if isinstance(bounds[0], tuple) else (bounds[0], bounds[0])
    if origin is Literal:
        return one_of(*arguments), one_of(*arguments)
    if hint is bool:
        return flag, flag
    if isinstance(hint, type) and is_dataclass(hint):
        record = _record(hint, version)
        return record.pack, record.unpack
    if origin is tuple:
        pack, unpack = _converters(arguments[0], version)
        return list_of(pack), list_of(unpack)
    if NoneType in arguments:
        pack, unpack = _converters(arguments[0], version)
        return optional(pack), optional(unpack)
    raise TypeError(f"the type {hint} of a message's field has no bounds")


def _marks(hint: Any) -> list[Since]:
    return [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Since)]


def _newest(hint: Any) -> int:
    """Return the version that has changed a type, a message or a part of it, last; 0 for none."""
    if isinstance(hint, type) and is_dataclass(hint):
        return max([words.ADDED.get(hint, 0), *map(_newest, _field_types(hint).values())])
    return max([0, *(mark.version for mark in _marks(hint)), *map(_newest, get_args(hint))])


_MESSAGES: tuple[type, ...] = get_args(words.Message)

CHANGED = frozenset(cls for cls in _MESSAGES if _newest(cls) == words.PROTOCOL)
"""The messages that `words.PROTOCOL` has added or changed, also by a record within them."""

VERSIONS = range(words.OLDEST_PROTOCOL, words.PROTOCOL + 1)
"""The versions of the protocol that are understood."""

BY_CLASS = {
    version: {cls: _record(cls, version) for cls in _MESSAGES if words.ADDED.get(cls, 0) <= version}
    for version in VERSIONS
}
BY_KIND = {
    version: {record.kind: record for record in by_class.values()}
    for version, by_class in BY_CLASS.items()
}

FIGURES = _record(words.BoardFigures, words.PROTOCOL)
"""The figures of a board; agents also keep them in this form."""


def has_message(version: int, kind: type) -> bool:
    """Return whether a version of the protocol has this kind of message."""
    return kind in BY_CLASS.get(version, ())
