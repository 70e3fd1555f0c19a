"""Keeps the results of consecutive frames in a folder: a file per output, and a file of records.

Record k of the file `journal` is that of frame `first` + k, and row k of each .npy file is its
result. A result is written first and its record immediately after it. A frame counts only if its
record is valid and its result has the record's checksum, so the order in which the disk takes them
does not matter. The file of records grows as frames are settled; it may have holes.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from launcher.results.journal.records import (
    DONE,
    DROPPED,
    RECORD_BYTES,
    FrameRecord,
    checksum,
    decode,
    encode,
)
from launcher.results.journal.result_files import (
    OutputSpec,
    ResultFile,
    ResultFolder,
    write_all,
)
from nodes.protocol.payload import Array

RECORDS = "journal"
"""The name of the file of records."""

BLOCK_BYTES = 4096
"""The unit in which common file systems give room to files."""

_HEADER_BYTES = 128
_READ_RECORDS = 4096


def segment_bytes(outputs: Sequence[OutputSpec], frames: int) -> int:
    """Return the bytes on disk of a full segment of `frames` frames, rounded up to blocks.

    The results of an output whose shape varies count with its expected shape.
    """
    fixed = [spec for spec in outputs if not spec.varies]
    varying = [spec for spec in outputs if spec.varies]
    files = [_HEADER_BYTES + frames * spec.row_bytes for spec in fixed] + [frames * RECORD_BYTES]
    each = sum(_blocks(_HEADER_BYTES + spec.row_bytes) for spec in varying)
    folders = 1 + len(varying)
    return sum(map(_blocks, files)) + frames * each + folders * BLOCK_BYTES


def _blocks(size_bytes: int) -> int:
    return math.ceil(size_bytes / BLOCK_BYTES) * BLOCK_BYTES


class Segment:
    """The open files of a segment; its methods raise `OSError` as the disk does."""

    def __init__(
        self, folder: Path, outputs: Sequence[OutputSpec], run: bytes, first: int, frames: int
    ) -> None:
        """Open the segment of `frames` frames from `first` on in `folder`; create what is missing.

        The new files are on the disk after `sync`.
        """
        self.first, self.last = first, first + frames - 1
        self._run = run
        self._folder = folder
        self._is_new = True
        self._results: list[ResultFile | ResultFolder] = []
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.ExitStack() as opened:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(folder / RECORDS, flags, 0o600)
            opened.callback(os.close, self._file)
            for spec in outputs:
                self._results.append(
                    ResultFolder(folder, spec)
                    if spec.varies
                    else ResultFile(folder, spec, frames, first)
                )
                opened.callback(self._results[-1].close)
            self._opened = opened.pop_all()

    def records(self) -> Iterator[FrameRecord]:
        """Yield the valid records in the order of their frames."""
        at = 0
        while data := os.pread(self._file, _READ_RECORDS * RECORD_BYTES, at * RECORD_BYTES):
            for index, record in decode(data, self._run):
                if record.frame == self.first + at + index <= self.last:
                    yield record
            at += _READ_RECORDS

    def rows(self, record: FrameRecord) -> list[bytes] | None:
        """Return the bytes of a frame's result by output; None if they are damaged."""
        rows = [file.read(record.frame) for file in self._results]
        return rows if checksum(rows) == record.checksum else None

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Save one frame's result."""
        rows = [file.row(outputs[file.spec.name]) for file in self._results]
        for file, row in zip(self._results, rows, strict=True):
            file.write(frame, row)
        self._record(FrameRecord(frame, DONE, checksum(rows)))

    def drop(self, frame: int) -> None:
        """Record that a frame was dropped."""
        self._record(FrameRecord(frame, DROPPED, 0))

    def _record(self, record: FrameRecord) -> None:
        at = (record.frame - self.first) * RECORD_BYTES
        write_all(self._file, encode(record, self._run), at)

    def sync(self) -> None:
        """Write everything through to the disk."""
        for file in self._results:
            file.sync()
        os.fdatasync(self._file)
        if self._is_new:
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
            self._is_new = False

    def close(self) -> None:
        """Close the files."""
        self._opened.close()


def sync_folder(folder: Path) -> None:
    """Write a folder's entries through to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_segment(folder: Path, outputs: Sequence[OutputSpec]) -> None:
    """Delete a segment's files, and its folder unless it holds others."""
    for spec in outputs:
        path = folder / spec.file
        if not spec.varies:
            path.unlink(missing_ok=True)
        elif path.is_dir():
            for result in path.glob("[0-9]*.npy"):
                result.unlink()
            path.rmdir()
    (folder / RECORDS).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def used_bytes(path: Path) -> int:
    """Return the bytes that a file, or a folder and everything in it, takes on disk.

    Files that another thread deletes meanwhile may or may not count.
    """
    places = [str(path)]
    for place, folders, files in os.walk(path):
        places += (os.path.join(place, name) for name in (*folders, *files))
    total = 0
    for found in places:
        with contextlib.suppress(FileNotFoundError):
            total += os.lstat(found).st_blocks * 512
    return total
