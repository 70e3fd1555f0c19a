"""Keeps what a resumed run needs of results that were removed: which frames are settled.

The file is replaced as a whole, and is on the disk before a result is removed. It has a line of
JSON, then the bytes of the last removed result if the network keeps state, from which that state
is taken. Its size does not depend on the number of frames if they are settled in order: settled
frames are ranges, and of the ranges of dropped frames the oldest are only counted.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.errors import BadInputError
from launcher.files import write_whole
from launcher.results.journal.ranges import FrameRanges
from launcher.results.journal.segment import sync_folder

REMOVED = "removed"
"""The name of the file."""

MOST_DROPPED_RANGES = 4096

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Removed:
    """Settled frames whose results are no longer kept.

    `settled` has them as ranges (first, last). `done` is the number of their results, `dropped`
    that of the frames that the source dropped, of which `dropped_ranges` has the newest.
    `last_frame` is the frame of the result whose bytes by output are `last_rows`.
    """

    settled: tuple[Range, ...] = ()
    done: int = 0
    dropped: int = 0
    dropped_ranges: tuple[Range, ...] = ()
    last_frame: int | None = None
    last_rows: tuple[bytes, ...] = ()

    def and_these(self, settled: FrameRanges, dropped: FrameRanges) -> Removed:
        """Return this with further `settled` frames, of which these were `dropped`."""
        known = FrameRanges(self.settled)
        settled, dropped = settled.without(known), dropped.without(known)
        ranges = FrameRanges(self.dropped_ranges)
        for found in dropped.ranges():
            ranges.add(*found)
        for found in settled.ranges():
            known.add(*found)
        return replace(
            self,
            settled=known.ranges(),
            done=self.done + len(settled) - len(dropped),
            dropped=self.dropped + len(dropped),
            dropped_ranges=ranges.ranges()[-MOST_DROPPED_RANGES:],
        )


def write_removed(folder: Path, run: bytes, removed: Removed) -> None:
    """Replace the file in `folder`, and have the disk take it; raises `OSError`."""
    rows = b"".join(removed.last_rows)
    head = {
        "run": run.hex(),
        "settled": removed.settled,
        "done": removed.done,
        "dropped": removed.dropped,
        "dropped_ranges": removed.dropped_ranges,
        "last_frame": removed.last_frame,
        "lengths": list(map(len, removed.last_rows)),
    }
    content = json.dumps(head).encode() + b"\n" + rows
    write_whole(folder / REMOVED, f"{zlib.crc32(content):08x} ".encode() + content, durable=True)
    sync_folder(folder)


def read_removed(folder: Path, run: bytes, outputs: int) -> Removed:
    """Read the file in `folder`; if there is none, nothing was removed.

    Raises `BadInputError` if it is damaged or another run's, `OSError` as the disk does.
    """
    path = folder / REMOVED
    try:
        check, _, content = path.read_bytes().partition(b" ")
    except FileNotFoundError:
        return Removed()
    try:
        if int(check, 16) != zlib.crc32(content):
            raise ValueError("its checksum is wrong")
        line, _, rows = content.partition(b"\n")
        head = json.loads(line)
        if bytes.fromhex(head["run"]) != run:
            raise ValueError("it belongs to another run")
        return Removed(
            _ranges(head["settled"]),
            int(head["done"]),
            int(head["dropped"]),
            _ranges(head["dropped_ranges"]),
            None if head["last_frame"] is None else int(head["last_frame"]),
            _rows(rows, head["lengths"], outputs),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInputError(
            f"{path}: cannot be read ({type(error).__name__}: {error}), so which frames are done "
            "is not known; restore it, or begin a new run in another folder"
        ) from None


def _ranges(data: Sequence[Sequence[int]]) -> tuple[Range, ...]:
    return FrameRanges((int(first), int(last)) for first, last in data).ranges()


def _rows(data: bytes, lengths: Sequence[int], outputs: int) -> tuple[bytes, ...]:
    if lengths and (len(lengths) != outputs or sum(lengths) != len(data)):
        raise ValueError("its last result is incomplete")
    rows, at = [], 0
    for length in lengths:
        rows.append(data[at : at + length])
        at += length
    return tuple(rows)
