"""Messages to bytes and back: one msgpack map per message (its schema: `nodes.protocol.schema`).

A message travels as `{"v": PROTOCOL, "t": "Credit", "epoch": 7, …}`: the version, the word and
exactly its fields. Reading is strict (every field checked for type and range, none missing, none
more) and bounded (lengths are limited before anything is allocated), and nothing is ever executed:
no pickle, no class looked up by a name from the wire. Whatever the bytes are, `decode` returns a
message or raises `RemoteProtocolError`.

`Hello` and `Refused` keep the fields they have for all versions to come, so that two ends of
different versions can tell each other so: when the versions differ, only these two are read, and
fields that a later version has added are ignored.

Two words are said for every frame of every channel, and differ from frame to frame in nothing (a
`Credit`) or in the frame's number (a `TensorHeader`, which therefore ends with it, at full width).
What has been checked of them once is remembered by its bytes: that is two thirds of their cost,
which counts where a tensor takes 100 µs to arrive.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgpack

from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.fields import MAX_COUNT, MAX_ITEMS, MAX_TEXT, Record, shown
from nodes.protocol.messages import CHUNK_BYTES, PROTOCOL, Credit, Message, TensorHeader
from nodes.protocol.schema import BY_CLASS, BY_KIND

MAX_MESSAGE_BYTES = 4 * CHUNK_BYTES
"""Longest encoded message; the raw bytes of a tensor are not part of its header."""

MAX_REMEMBERED = 2048
"""Credits, and channels' headers, that are remembered each way."""

MAX_REPEATED_BYTES = 512
"""Messages longer than this are never looked up among those remembered."""

_FRAME = Struct(">Q")
_FRAME_KEY: bytes = msgpack.packb("frame") + b"\xcf"
"""A map's key `frame` and the sign that a whole number of eight bytes follows."""

_header_starts: dict[tuple[object, ...], bytes] = {}
_headers: dict[bytes, TensorHeader] = {}
_credit_bytes: dict[Credit, bytes] = {}
_credits: dict[bytes, Credit] = {}


def encode(message: Message) -> bytes:
    """The message as bytes; raises `LocalProtocolError` for what `decode` would refuse."""
    if type(message) is TensorHeader:
        return _encode_header(message)
    if type(message) is Credit:
        known = _credit_bytes.get(message)
        if known is None:
            known = _encode_anew(message)
            _remember(_credit_bytes, message, known)
        return known
    return _encode_anew(message)


def decode(data: bytes | memoryview) -> Message:
    """The message in `data`; raises `RemoteProtocolError` for everything that is not one."""
    if len(data) > MAX_REPEATED_BYTES:
        return _decode_anew(data)
    whole = bytes(data)
    credit = _credits.get(whole)
    if credit is not None:
        return credit
    header = _headers.get(whole[:-8])
    if header is not None:
        (frame,) = _FRAME.unpack(whole[-8:])
        if frame <= MAX_COUNT:
            return TensorHeader(header.epoch, header.channel, frame, header.dtype, header.shape)
    message = _decode_anew(whole)
    if type(message) is Credit:
        _remember(_credits, whole, message)
    elif type(message) is TensorHeader and whole == _encode_header(message):
        # Written in our own way, where nothing but the last eight bytes is the frame.
        _remember(_headers, whole[:-8], message)
    return message


def _encode_header(header: TensorHeader) -> bytes:
    frame = header.frame
    try:
        start = _header_starts.get((header.epoch, header.channel, header.dtype, header.shape))
        if start is None or type(frame) is not int or not 0 <= frame <= MAX_COUNT:
            start = _header_start(header)
    except TypeError:
        start = _header_start(header)
    return start + _FRAME.pack(frame)


def _header_start(header: TensorHeader) -> bytes:
    """All of a header's bytes before the number of its frame."""
    _encode_anew(header)
    fields = {"v": PROTOCOL, "t": "TensorHeader", "epoch": header.epoch}
    fields |= {"channel": header.channel, "dtype": header.dtype, "shape": header.shape}
    packer = msgpack.Packer()
    start = bytes(packer.pack_map_header(len(fields) + 1))
    start += b"".join(packer.pack(part) for item in fields.items() for part in item)
    start += _FRAME_KEY
    _remember(_header_starts, (header.epoch, header.channel, header.dtype, header.shape), start)
    return start


def _remember(memory: dict[Any, Any], key: object, value: object) -> None:
    if len(memory) >= MAX_REMEMBERED:
        memory.clear()
    memory[key] = value


def _encode_anew(message: Message) -> bytes:
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


def _decode_anew(data: bytes | memoryview) -> Message:
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
    later = dict.fromkeys(("owner", "process", "succeeds", "holder"), "")
    known = {name: value for name, value in (later | plain).items() if name in record.names}
    known["protocol"] = version
    try:
        message: Message = record.unpack(known)
    except ValueError as error:
        raise RemoteProtocolError(f"{record.kind} of version {version}: {error}") from error
    return message
