"""Messages to bytes and back: one msgpack map per message (its schema: `nodes.core.schema`).

A message travels as `{"v": PROTOCOL, "t": "Credit", "epoch": 7, …}`: the version, the word and
exactly its fields. Reading is strict (every field checked for type and range, none missing, none
more) and bounded (lengths are limited before anything is allocated), and nothing is ever executed:
no pickle, no class looked up by a name from the wire. Whatever the bytes are, `decode` returns a
message or raises `RemoteProtocolError`.

`Hello` and `Refused` keep the fields they have for all versions to come, so that two ends of
different versions can tell each other so: when the versions differ, only these two are read, and
fields that a later version has added are ignored.
"""

from __future__ import annotations

from typing import Any

import msgpack

from nodes.core.errors import LocalProtocolError, RemoteProtocolError
from nodes.core.fields import MAX_COUNT, MAX_ITEMS, MAX_TEXT, Record, shown
from nodes.core.messages import CHUNK_BYTES, PROTOCOL, Message
from nodes.core.schema import BY_CLASS, BY_KIND

MAX_MESSAGE_BYTES = 4 * CHUNK_BYTES
"""Longest encoded message; the raw bytes of a tensor are not part of its header."""


def encode(message: Message) -> bytes:
    """The message as bytes; raises `LocalProtocolError` for what `decode` would refuse."""
    record = BY_CLASS.get(type(message))
    if record is None:
        raise LocalProtocolError(f"{type(message).__name__} is no word of the protocol")
    try:
        plain = record.pack(message)
        plain["v"] = PROTOCOL
        plain["t"] = record.kind
        data: bytes = msgpack.packb(plain)
    except (ValueError, OverflowError, TypeError) as error:
        raise LocalProtocolError(f"cannot send {record.kind}: {error}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise LocalProtocolError(
            f"cannot send {record.kind}: {len(data)} bytes, at most {MAX_MESSAGE_BYTES} are allowed"
        )
    return data


def decode(data: bytes | memoryview) -> Message:
    """The message in `data`; raises `RemoteProtocolError` for everything that is not one."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise RemoteProtocolError(f"a message of {len(data)} bytes is too long")
    try:
        plain = msgpack.unpackb(
            data,
            use_list=False,
            max_str_len=MAX_TEXT,
            max_bin_len=CHUNK_BYTES,
            max_array_len=MAX_ITEMS,
            max_map_len=64,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
        raise RemoteProtocolError(f"not msgpack within its limits: {error}") from error
    if type(plain) is not dict:
        raise RemoteProtocolError("a message must be a map")
    version = plain.pop("v", None)
    kind = plain.pop("t", None)
    record = BY_KIND.get(kind) if type(kind) is str else None
    if version != PROTOCOL or type(version) is not int:
        return _decode_foreign(version, record, plain)
    if record is None:
        raise RemoteProtocolError(f"unknown word {shown(kind)}")
    try:
        message: Message = record.unpack(plain)
    except ValueError as error:
        raise RemoteProtocolError(f"{kind}: {error}") from error
    return message


def _decode_foreign(version: object, record: Record | None, plain: dict[str, Any]) -> Message:
    """Reads the two words that all versions share; a `Hello` tells its sender's version."""
    if type(version) is not int or not 0 <= version <= MAX_COUNT:
        raise RemoteProtocolError("a message without a version")
    if record is None or record.kind not in ("Hello", "Refused"):
        raise RemoteProtocolError(f"a message of protocol version {version}, ours is {PROTOCOL}")
    known = {name: value for name, value in plain.items() if name in record.names}
    known["protocol"] = version
    try:
        message: Message = record.unpack(known)
    except ValueError as error:
        raise RemoteProtocolError(f"{record.kind} of version {version}: {error}") from error
    return message
