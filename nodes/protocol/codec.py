"""Encode messages as msgpack maps, and decode them strictly (schema: `nodes.protocol.schema`).

A message travels as `{"v": 8, "t": "Credit", "epoch": 7, …}`: the version in whose form it is, the
name of its class and exactly its fields. Decoding is strict (each field's type and range is
checked; a missing or an additional field is an error) and bounded (lengths are limited before
anything is allocated). It never executes anything: there is no pickle, and no class is looked up by
a name that was received. For any bytes, `decode` returns a message or raises `RemoteProtocolError`.

Two versions are understood: `PROTOCOL` and the one before. A kind of message that has not changed
in between travels in the form of the older, which both understand; for the others, `encode` is
given the version of the peer. The fields of `Hello` and `Refused` never change in later versions,
so that two ends that do not understand each other can report it. Only these two messages of an
unknown version are decoded, and fields that a later version has added are ignored.

Every frame of every channel needs a `Credit` and a `TensorHeader`. The credits of a channel are all
equal, and its headers differ in the frame number only, which comes last and at full width. Both are
therefore cached by their bytes, which saves two thirds of the time that they cost. That matters
where a tensor takes 100 µs to arrive.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import msgpack

from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.fields import MAX_COUNT, MAX_ITEMS, MAX_TEXT, shown
from nodes.protocol.messages import (
    CHUNK_BYTES,
    OLDEST_PROTOCOL,
    PROTOCOL,
    Credit,
    Hello,
    Message,
    Refused,
    TensorHeader,
)
from nodes.protocol.schema import BY_CLASS, BY_KIND, CHANGED, VERSIONS

MAX_MESSAGE_BYTES = 4 * CHUNK_BYTES
"""The longest encoded message; a tensor's payload is not part of its header."""

MAX_CACHED = 2048
"""Entries of each cache: credits and channels' headers, encoded and decoded."""

MAX_CACHED_BYTES = 512
"""Longer messages are never looked up in the caches."""

_FRAME = Struct(">Q")
_FRAME_KEY: bytes = msgpack.packb("frame") + b"\xcf"
"""The map's key `frame`, and msgpack's tag for an unsigned integer of eight bytes."""

_header_starts: dict[tuple[object, ...], bytes] = {}
_headers: dict[bytes, TensorHeader] = {}
_credit_bytes: dict[Credit, bytes] = {}
_credits: dict[bytes, Credit] = {}


_OF_ONE_VERSION = frozenset({Hello, Refused, *CHANGED})


def encode(message: Message, version: int = PROTOCOL) -> bytes:
    """Return the message as bytes, for a peer that speaks `version` of the protocol.

    Raises `LocalProtocolError` for what `decode` would refuse.
    """
    if type(message) is TensorHeader:
        return _encode_header(message)
    if type(message) is Credit:
        known = _credit_bytes.get(message)
        if known is None:
            known = _encode_uncached(message, OLDEST_PROTOCOL)
            _put(_credit_bytes, message, known)
        return known
    if type(message) not in _OF_ONE_VERSION:
        version = OLDEST_PROTOCOL
    return _encode_uncached(message, version)


def decode(data: bytes | memoryview) -> Message:
    """Return the message in `data`; raises `RemoteProtocolError` if `data` is not a message."""
    if len(data) > MAX_CACHED_BYTES:
        return _decode_uncached(data)
    whole = bytes(data)
    credit = _credits.get(whole)
    if credit is not None:
        return credit
    header = _headers.get(whole[:-8])
    if header is not None:
        (frame,) = _FRAME.unpack(whole[-8:])
        if frame <= MAX_COUNT:
            return TensorHeader(header.epoch, header.channel, frame, header.dtype, header.shape)
    message = _decode_uncached(whole)
    if type(message) is Credit:
        _put(_credits, whole, message)
    elif type(message) is TensorHeader and whole == _encode_header(message):
        # Only in `encode`'s own form are the last eight bytes known to be the frame.
        _put(_headers, whole[:-8], message)
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
    """Return a header's bytes up to its frame number, and cache them."""
    _encode_uncached(header, OLDEST_PROTOCOL)
    fields = {"v": OLDEST_PROTOCOL, "t": "TensorHeader", "epoch": header.epoch}
    fields |= {"channel": header.channel, "dtype": header.dtype, "shape": header.shape}
    packer = msgpack.Packer()
    start = bytes(packer.pack_map_header(len(fields) + 1))
    start += b"".join(packer.pack(part) for item in fields.items() for part in item)
    start += _FRAME_KEY
    _put(_header_starts, (header.epoch, header.channel, header.dtype, header.shape), start)
    return start


def _put(cache: dict[Any, Any], key: object, value: object) -> None:
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = value


def _encode_uncached(message: Message, version: int) -> bytes:
    if version not in VERSIONS:
        raise LocalProtocolError(f"protocol version {version} cannot be sent")
    record = BY_CLASS[version].get(type(message))
    if record is None:
        raise LocalProtocolError(f"{type(message).__name__} is not a message of the protocol")
    try:
        plain = record.pack(message)
        plain["v"] = version
        plain["t"] = record.kind
        data: bytes = msgpack.packb(plain)
    except (ValueError, OverflowError, TypeError) as error:
        raise LocalProtocolError(f"cannot send {record.kind}: {error}") from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise LocalProtocolError(
            f"cannot send {record.kind}: {len(data)} bytes, at most {MAX_MESSAGE_BYTES} are allowed"
        )
    return data


def _decode_uncached(data: bytes | memoryview) -> Message:
    if len(data) > MAX_MESSAGE_BYTES:
        raise RemoteProtocolError(
            f"a message of {len(data)} bytes, at most {MAX_MESSAGE_BYTES} are allowed"
        )
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
        raise RemoteProtocolError(f"not msgpack within the protocol's limits: {error}") from error
    if type(plain) is not dict:
        raise RemoteProtocolError("a message must be a map")
    version = plain.pop("v", None)
    kind = plain.pop("t", None)
    if type(version) is not int or version not in VERSIONS:
        return _decode_foreign(version, kind, plain)
    record = BY_KIND[version].get(kind) if type(kind) is str else None
    if record is None:
        raise RemoteProtocolError(f"unknown message {shown(kind)}")
    try:
        message: Message = record.unpack(plain)
    except ValueError as error:
        raise RemoteProtocolError(f"{kind}: {error}") from error
    return message


def _decode_foreign(version: object, kind: object, plain: dict[str, Any]) -> Message:
    """Decode a message of another version: only `Hello` and `Refused`, with that version."""
    if type(version) is not int or not 0 <= version <= MAX_COUNT:
        raise RemoteProtocolError("a message without a version")
    record = BY_KIND[PROTOCOL].get(kind) if kind in ("Hello", "Refused") else None
    if record is None:
        raise RemoteProtocolError(f"a message of protocol version {version} instead of {PROTOCOL}")
    later = dict.fromkeys(("owner", "process", "succeeds", "holder"), "")
    known = {name: value for name, value in (later | plain).items() if name in record.names}
    known["protocol"] = version
    try:
        message: Message = record.unpack(known)
    except ValueError as error:
        raise RemoteProtocolError(f"{record.kind} of version {version}: {error}") from error
    return message
