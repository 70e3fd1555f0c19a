"""Messages to bytes and back: one msgpack map per message, its schema written out as a table.

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

import math
import re
from collections.abc import Callable
from typing import Any

import msgpack

from nodes.core import messages as words
from nodes.core.errors import LocalProtocolError, RemoteProtocolError
from nodes.core.messages import CHUNK_BYTES, PROTOCOL, Message

MAX_MESSAGE_BYTES = 4 * CHUNK_BYTES
"""Longest encoded message; the raw bytes of a tensor are not part of its header."""

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


def encode(message: Message) -> bytes:
    """The message as bytes; raises `LocalProtocolError` for what `decode` would refuse."""
    record = _BY_CLASS.get(type(message))
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
    record = _BY_KIND.get(kind) if type(kind) is str else None
    if version != PROTOCOL or type(version) is not int:
        return _decode_foreign(version, record, plain)
    if record is None:
        raise RemoteProtocolError(f"unknown word {_shown(kind)}")
    try:
        message: Message = record.unpack(plain)
    except ValueError as error:
        raise RemoteProtocolError(f"{kind}: {error}") from error
    return message


def _decode_foreign(version: object, record: _Record | None, plain: dict[str, Any]) -> Message:
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


# ---------------------------------------------------------------- what a field may hold


def _shown(value: object) -> str:
    """A value from the wire, short enough for a sentence (deep nesting has no `repr`)."""
    if isinstance(value, (str, int, float)) or value is None:
        return f"{value!r:.80}"
    return f"a {type(value).__name__}"


def _integer(low: int, high: int) -> Convert:
    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{_shown(value)} is not a whole number in {low}…{high}")
        return value

    return check


def _real(low: float, high: float) -> Convert:
    def check(value: Any) -> float:
        if type(value) is int:
            value = float(value) if -MAX_COUNT < value < MAX_COUNT else math.inf
        if type(value) is not float or not low <= value <= high:
            raise ValueError(f"{_shown(value)} is not a number in {low:g}…{high:g}")
        return value

    return check


def _string(most: int) -> Convert:
    def check(value: Any) -> str:
        if type(value) is not str or len(value) > most:
            raise ValueError(f"{_shown(value)} is not a string of at most {most} characters")
        return value

    return check


def _one_of(*allowed: str) -> Convert:
    choices = frozenset(allowed)

    def check(value: Any) -> str:
        if type(value) is not str or value not in choices:
            raise ValueError(f"{_shown(value)} is none of {', '.join(allowed)}")
        return value

    return check


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{_shown(value)} is neither true nor false")
    return value


def _chunk(value: Any) -> bytes:
    if type(value) is not bytes or len(value) > CHUNK_BYTES:
        raise ValueError(f"not a chunk of at most {CHUNK_BYTES} bytes")
    return value


_is_digest = re.compile(r"[0-9a-f]{64}").fullmatch


def _digest(value: Any) -> str:
    if type(value) is not str or not _is_digest(value):
        raise ValueError(f"{_shown(value)} is not a SHA-256 in lower-case hex")
    return value


def _dtype(value: Any) -> str:
    if type(value) is not str or value not in DTYPE_BYTES:
        raise ValueError(f"{_shown(value)} is not a dtype that can be sent")
    return value


def _shape(value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or len(value) > MAX_RANK:
        raise ValueError(f"{_shown(value)} is not a shape of at most {MAX_RANK} axes")
    for axis in value:
        if type(axis) is not int or not 0 <= axis <= MAX_DIMENSION:
            raise ValueError(f"{_shown(axis)} is not the length of an axis")
    return value


def _several(item: Convert) -> Convert:
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


def _optional(item: Convert) -> Convert:
    return lambda value: None if value is None else item(value)


class _Record:
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


def _record(record: _Record) -> tuple[Convert, Convert]:
    return record.pack, record.unpack


def _records(record: _Record) -> tuple[Convert, Convert]:
    return _several(record.pack), _several(record.unpack)


# ---------------------------------------------------------------- the schema

_count = _integer(0, MAX_COUNT)
_index = _integer(0, (1 << 31) - 1)
_positive = _integer(1, (1 << 31) - 1)
_seconds = _real(0.0, 1e12)
_lease = _real(1e-3, 1e6)
_name = _string(MAX_NAME)
_text = _string(MAX_TEXT // 4)

_BLOB = _Record(words.BlobInfo, {"digest": _digest, "size_bytes": _count})

_PHASE = _Record(
    words.PhaseSpec,
    {
        "name": _name,
        "graph": _record(_BLOB),
        "weights": (_optional(_BLOB.pack), _optional(_BLOB.unpack)),
        "inputs": _several(_name),
        "outputs": _several(_name),
    },
)

_CHANNEL = _Record(
    words.ChannelSpec,
    {
        "number": _index,
        "tensor": _name,
        "dtype": _dtype,
        "shape": _shape,
        "source_node": _name,
        "source_phase": _optional(_index),
        "target_node": _name,
        "target_phases": _several(_index),
        "capacity_frames": _positive,
    },
)

_PEER = _Record(words.PeerSpec, {"name": _name, "data_address": _name})

_DEPLOYMENT = _Record(
    words.Deployment,
    {
        "epoch": _count,
        "node": _name,
        "order": _one_of("pipelined", "strict"),
        "phases": _records(_PHASE),
        "channels": _records(_CHANNEL),
        "dial": _records(_PEER),
        "threads": _integer(1, 1024),
    },
)

_STATS = _Record(
    words.Stats,
    {
        "epoch": _count,
        "firings": _several(_count),
        "busy_s": _several(_seconds),
        "elapsed_s": _seconds,
        "cpu_s": _seconds,
        "sent_bytes": _count,
        "received_bytes": _count,
        "rss_bytes": _count,
        "rss_peak_bytes": _count,
        "anonymous_bytes": _count,
        "stale_messages": _count,
        "bad_messages": _count,
    },
)

_WORDS = (
    _Record(words.Hello, {"protocol": _count, "session": _name, "lease_s": _lease}),
    _Record(words.Query, {"digests": _several(_digest)}),
    _Record(words.Put, {"blob": _record(_BLOB), "offset_bytes": _count, "data": _chunk}),
    _Record(words.Deploy, {"deployment": _record(_DEPLOYMENT)}),
    _Record(words.Start, {"epoch": _count}),
    _Record(words.Stop, {"epoch": _count}),
    _Record(words.GetStats, {}),
    _Record(words.Ping, {}),
    _Record(words.Bye, {}),
    _Record(words.Shutdown, {}),
    _Record(
        words.Welcome,
        {
            "protocol": _count,
            "name": _name,
            "version": _name,
            "data_address": _name,
            "engine": _name,
            "machine": _name,
            "cores": _index,
            "rss_bytes": _count,
        },
    ),
    _Record(words.Refused, {"reason": _text, "protocol": _count}),
    _Record(words.Missing, {"digests": _several(_digest)}),
    _Record(words.Stored, {"digest": _digest, "offset_bytes": _count, "complete": _flag}),
    _Record(words.Progress, {"epoch": _count, "done": _count, "total": _count, "what": _text}),
    _Record(words.Deployed, {"epoch": _count, "phase_s": _several(_seconds), "rss_bytes": _count}),
    _Record(words.Failed, {"epoch": _count, "reason": _text}),
    _Record(words.Stopped, {"epoch": _count, "stats": _record(_STATS)}),
    _STATS,
    _Record(words.Pong, {}),
    _Record(words.Attach, {"epoch": _count, "node": _name}),
    _Record(words.Credit, {"epoch": _count, "channel": _index, "frames": _positive}),
    _Record(
        words.TensorHeader,
        {"epoch": _count, "channel": _index, "frame": _count, "dtype": _dtype, "shape": _shape},
    ),
)

_BY_KIND = {record.kind: record for record in _WORDS}
_BY_CLASS = {record.cls: record for record in _WORDS}
