"""The journal of a run as bytes: one record of fixed size for each settled frame.

Records are only ever appended. Each carries a checksum of the frame's result, and one of itself
that begins with the run's own number; so every record stands for itself. What a crash leaves behind
(a record cut short, blocks that reached the disk in another order, a result whose bytes never did)
is recognised, and only the frames concerned count as open.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

RUN_BYTES = 8
"""A run's own number: random, so that no other run's records are taken for its own."""

_BODY = struct.Struct("<QII")
_CHECK = struct.Struct("<I")
RECORD_BYTES = _BODY.size + _CHECK.size

DONE, DROPPED = 1, 2
"""What became of a frame: its result is saved; or it was dropped because the user wanted that."""


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """A settled frame; `checksum` is the CRC-32 of its result, 0 for a frame that was dropped."""

    frame: int
    kind: int
    checksum: int


def encode(record: FrameRecord, run: bytes) -> bytes:
    """A record of `run` as `RECORD_BYTES` bytes."""
    body = _BODY.pack(record.frame, record.kind, record.checksum)
    return body + _CHECK.pack(zlib.crc32(body, zlib.crc32(run)))


def decode(data: bytes, run: bytes) -> tuple[list[FrameRecord], int]:
    """The valid records, in order, and where the last of them ends.

    Bytes that are no record of this run are passed over.
    """
    seed, end = zlib.crc32(run), 0
    found = []
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        body = data[at : at + _BODY.size]
        (check,) = _CHECK.unpack_from(data, at + _BODY.size)
        frame, kind, checksum = _BODY.unpack(body)
        if check == zlib.crc32(body, seed) and kind in (DONE, DROPPED):
            found.append(FrameRecord(frame, kind, checksum))
            end = at + RECORD_BYTES
    return found, end


def checksum(parts: Iterable[bytes | memoryview]) -> int:
    """The CRC-32 of a result: of its outputs' bytes in C order, one after the other."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
