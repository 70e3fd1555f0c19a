"""Defines the record that a journal keeps for each settled frame, and its bytes.

A record has a checksum of the frame's result, and one of itself that is seeded with the run's
random number. Every record can therefore be checked independently: the remains of a crash are not a
record of this run.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

RUN_BYTES = 8
"""The length of a run's random number, by which its records differ from those of other runs."""

_BODY = struct.Struct("<QII")
_CHECK = struct.Struct("<I")
RECORD_BYTES = _BODY.size + _CHECK.size

DONE, DROPPED = 1, 2
"""The kinds of records: the frame's result is saved; the source dropped the frame."""


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """A settled frame; `checksum` is the CRC-32 of its result, 0 for a frame that was dropped."""

    frame: int
    kind: int
    checksum: int


def encode(record: FrameRecord, run: bytes) -> bytes:
    """Return a record of the run with number `run` as `RECORD_BYTES` bytes."""
    body = _BODY.pack(record.frame, record.kind, record.checksum)
    return body + _CHECK.pack(zlib.crc32(body, zlib.crc32(run)))


def decode(data: bytes, run: bytes) -> Iterator[tuple[int, FrameRecord]]:
    """Yield the run's valid records in order, each with its index in `data`.

    Anything else in `data` is skipped.
    """
    seed = zlib.crc32(run)
    for index in range(len(data) // RECORD_BYTES):
        at = index * RECORD_BYTES
        body = data[at : at + _BODY.size]
        (check,) = _CHECK.unpack_from(data, at + _BODY.size)
        frame, kind, checksum = _BODY.unpack(body)
        if check == zlib.crc32(body, seed) and kind in (DONE, DROPPED):
            yield index, FrameRecord(frame, kind, checksum)


def checksum(parts: Iterable[bytes | memoryview]) -> int:
    """Return the CRC-32 of a result: of its outputs' bytes in C order, one after the other."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
