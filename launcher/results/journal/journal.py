"""Keeps results and progress of a run on disk, so that it can be interrupted anywhere and resumed.

A journal is a folder. `run.json` identifies the run. Each output has a .npy file in which row k is
the result of frame k (or, if its shape varies, a folder with a file per frame). The file `journal`
has a record of fixed size for every frame that is *settled*: its result is saved, or the source
dropped it.

A result is written first and its record immediately after it; neither is written again. Both
survive the end of the process, `kill -9` included. Once a second a thread writes them through to
the disk (fdatasync), so a power cut loses at most the results since then.

Records are only appended. Each has a checksum of its result, and one of itself that is seeded with
the run's random number. Every record can therefore be checked independently. Whatever a crash
leaves behind (a truncated record, blocks that reached the disk out of order, a result that did not)
is recognised, and only the frames concerned are computed again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from launcher.errors import RunFailedError
from launcher.results.journal.identity import RunIdentity
from launcher.results.journal.result_files import ResultFile, ResultFolder
from launcher.run.runtime import Array

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


def decode(data: bytes, run: bytes) -> tuple[list[FrameRecord], int]:
    """Return the run's valid records in order, and the offset at which the last one ends.

    Anything else in `data` is skipped.
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
    """Return the CRC-32 of a result: of its outputs' bytes in C order, one after the other."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


RECORDS = "journal"
"""The name of the file of records."""

SYNC_S = 1.0
"""How often written data is written through to the disk."""


class Journal:
    """The journal of one run, locked for this process; a context manager that closes it."""

    def __init__(self, folder: Path, identity: RunIdentity, run: bytes) -> None:
        """Open the folder that `launcher.results.journal.opening` found or made.

        Raises `BlockingIOError` if another process has it open, else `OSError` as the disk does.
        """
        self.folder = folder
        self.frames = identity.frames
        self.damaged = 0
        """How many frames have a record but no valid result; they are computed again."""
        self._run = run
        self._kinds = bytearray(self.frames)
        self._problem: OSError | None = None
        self._dirty = threading.Event()
        self._closing = threading.Event()
        with contextlib.ExitStack() as opened:
            self._file = os.open(folder / RECORDS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, self._file)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._records = self._read()
            self._results: list[ResultFile | ResultFolder] = []
            for spec in identity.outputs:
                made = (
                    ResultFolder(folder, spec)
                    if spec.varies
                    else ResultFile(folder, spec, self.frames)
                )
                self._results.append(made)
                opened.callback(self._results[-1].close)
            sync_folder(folder)
            self._opened = opened.pop_all()
        self._syncing = threading.Thread(target=self._sync_often, name="journal", daemon=True)
        self._syncing.start()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> dict[int, FrameRecord]:
        """Read the records and cut off what follows the last valid one."""
        with os.fdopen(os.dup(self._file), "rb") as file:
            records, end = decode(file.read(), self._run)
        os.ftruncate(self._file, end)
        os.lseek(self._file, end, os.SEEK_SET)
        return {record.frame: record for record in records if record.frame < self.frames}

    @property
    def frame_bytes(self) -> int:
        """The bytes that a frame takes on disk."""
        return sum(file.spec.row_bytes for file in self._results) + RECORD_BYTES

    # ------------------------------------------------------------ reading

    def results(self, *, in_a_row: bool = False) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield (frame, outputs by name) for every valid saved result, in frame order.

        A frame counts as settled once this has passed it, so exhaust the iterator before calling
        `open_frames`. With `in_a_row`, results after the first frame without one are not valid.
        """
        settled = 0
        for frame in sorted(self._records):
            record = self._records[frame]
            if record.kind == DROPPED:
                self._kinds[frame] = DROPPED
                settled += 1
                continue
            if in_a_row and settled < frame:
                continue
            rows = [file.read(frame) for file in self._results]
            if checksum(rows) != record.checksum:
                self.damaged += 1
                continue
            self._kinds[frame] = DONE
            settled += 1
            pairs = zip(self._results, rows, strict=True)
            yield frame, {file.spec.name: file.array(row) for file, row in pairs}

    def dropped(self) -> tuple[int, ...]:
        """The frames that were dropped, in all launches of this run, in order."""
        return tuple(frame for frame, kind in enumerate(self._kinds) if kind == DROPPED)

    @property
    def done(self) -> int:
        """How many results are saved."""
        return self._kinds.count(DONE)

    def open_frames(self) -> tuple[int, ...]:
        """The frames that are not settled, in order."""
        return tuple(frame for frame, kind in enumerate(self._kinds) if not kind)

    # ------------------------------------------------------------ writing

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Save one frame's result; raises `RunFailedError` if it cannot be written.

        The arrays must have the dtypes and shapes with which the journal was opened.
        """
        if self._kinds[frame]:
            raise RuntimeError(f"frame {frame} is settled already")
        rows = [file.row(outputs[file.spec.name]) for file in self._results]
        try:
            for file, row in zip(self._results, rows, strict=True):
                file.write(frame, row)
            self._append(FrameRecord(frame, DONE, checksum(rows)))
        except OSError as error:
            raise self._failed(f"frame {frame}: its result", error) from error

    def drop(self, frame: int) -> None:
        """Record that a frame was dropped and will have no result."""
        try:
            self._append(FrameRecord(frame, DROPPED, 0))
        except OSError as error:
            raise self._failed(f"frame {frame}: that it was dropped", error) from error

    def _append(self, record: FrameRecord) -> None:
        if self._problem is not None:
            raise self._problem
        data = encode(record, self._run)
        while data:
            data = data[os.write(self._file, data) :]
        self._kinds[record.frame] = record.kind
        self._dirty.set()

    def _failed(self, what: str, error: OSError) -> RunFailedError:
        return RunFailedError(
            f"{what} cannot be kept in the journal {str(self.folder)!r}: {error.strerror}; "
            f"{self.done} of {self.frames} are saved, and launch --resume goes on from there"
        )

    # ------------------------------------------------------------ durability

    def _sync_often(self) -> None:
        while not self._closing.wait(SYNC_S):
            if self._dirty.is_set():
                try:
                    self._sync()
                except OSError as error:  # the next write raises it
                    self._problem = error
                    return

    def _sync(self) -> None:
        self._dirty.clear()
        for file in self._results:
            file.sync()
        os.fdatasync(self._file)

    def close(self) -> None:
        """Write everything through to the disk and close; raises `RunFailedError` if it fails."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._syncing.join()
        try:
            self._sync()
            if self._problem is not None:
                raise self._problem
        except OSError as error:
            raise self._failed("what was written last", error) from error
        finally:
            self._opened.close()


def sync_folder(folder: Path) -> None:
    """Write a folder's entries through to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
