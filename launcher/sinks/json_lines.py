"""Appends one line of JSON per result to a file, begins a new file in time, and deletes old ones.

The file has whole lines at all times: the part of a line that a write leaves when the disk is full
is cut off at once, and one that a crash leaves when the file is opened the next time. It is locked,
so that two runs cannot mix their lines.

A full file `results.jsonl` is renamed to `results.000001.jsonl`, the next one to
`results.000002.jsonl`, and the ones with the lowest numbers are deleted first.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from launcher.config.ends.sink import FrameResult, ResultRefusedError, SinkConfig
from launcher.config.kinds import FileName
from launcher.config.units import Bytes
from launcher.errors import RunFailedError
from launcher.sinks.files import UNBOUNDED, NumberedFiles, write_all, writing
from launcher.sinks.result_json import result_text

LONGEST_LINE = 64 << 20
"""Bytes of a result's line; as many are searched for a half line that a crash left."""

_BEGIN = b'{"index":'


class JsonLinesConfig(SinkConfig):
    """A file that gets a line of JSON per result."""

    kind: ClassVar[str] = "json-lines"

    path: Annotated[FileName, Field(description="File that the lines are appended to")]
    rotate_bytes: Annotated[
        Bytes, Field(description="Maximum size of a file, beyond which a new one begins: 10MB")
    ] = None
    rotate_s: Annotated[
        float | None,
        Field(gt=0, description="Seconds from a file's first frame until a new file begins"),
    ] = None
    keep_files: Annotated[
        int | None, Field(ge=0, le=100_000, description="Number of full files that are kept")
    ] = None
    keep_bytes: Annotated[
        Bytes, Field(description="Maximum size of all files together; at least 2·rotate_bytes")
    ] = None

    @model_validator(mode="after")
    def _check(self) -> JsonLinesConfig:
        if self.keep_files is not None and self.rotate_bytes is None and self.rotate_s is None:
            raise ValueError("keep_files has no effect without rotate_bytes or rotate_s; add one")
        if self.keep_bytes is not None and self.keep_bytes < 2 * (self.rotate_bytes or 1 << 62):
            raise ValueError(
                "keep_bytes needs rotate_bytes, and must be at least twice as large: a full file "
                "is deleted as a whole"
            )
        return self

    def open(self, folder: Path) -> JsonLinesSink:
        """Return the sink; the file is opened by the first result."""
        return JsonLinesSink(
            folder / os.path.expanduser(self.path),
            rotate_bytes=self.rotate_bytes,
            rotate_s=self.rotate_s,
            keep_files=self.keep_files,
            keep_bytes=self.keep_bytes,
        )


class JsonLinesSink:
    """The file that is written, and the full ones next to it."""

    needs_image = False

    def __init__(
        self,
        path: Path,
        *,
        rotate_bytes: int | None = None,
        rotate_s: float | None = None,
        keep_files: int | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        self._path = path
        self._rotate_bytes, self._rotate_s = rotate_bytes, rotate_s
        self._longest = LONGEST_LINE if keep_bytes is None else min(LONGEST_LINE, keep_bytes)
        self._file: _LineFile | None = None
        self._full = NumberedFiles(
            path.parent,
            f"{path.stem}.",
            path.suffix,
            UNBOUNDED if keep_files is None else keep_files,
            UNBOUNDED if keep_bytes is None else keep_bytes,
        )

    @property
    def description(self) -> str:
        """The file."""
        return f"json-lines {self._path}"

    def write(self, result: FrameResult) -> None:
        """Append the result's line, all of it or nothing."""
        line = result_text(result) + b"\n"
        if len(line) > self._longest:
            raise ResultRefusedError(
                f"frame {result.index}: its line has {len(line)} bytes, more than {self._longest}"
            )
        with writing(self._path):
            try:
                file = self._opened()
                if self._is_full(file, len(line), result.taken_s):
                    file = self._begin_next(file)
                self._full.make_room(file.size_bytes + len(line))
                file.append(line, result.taken_s)
            except OSError:
                self.close()  # the next attempt opens the file again, and repairs it
                raise

    def _opened(self) -> _LineFile:
        if self._file is not None and not self._file.is_at(self._path):
            self.close()  # moved or deleted meanwhile
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._full.find()
            self._file = _LineFile(self._path)
        return self._file

    def _is_full(self, file: _LineFile, more_bytes: int, taken_s: float) -> bool:
        if not file.size_bytes:
            return False
        if self._rotate_bytes is not None and file.size_bytes + more_bytes > self._rotate_bytes:
            return True
        began_s = file.began_s
        return (
            self._rotate_s is not None
            and began_s is not None
            and abs(taken_s - began_s) >= self._rotate_s  # clocks may be set back
        )

    def _begin_next(self, file: _LineFile) -> _LineFile:
        number = self._full.next_number()
        os.rename(self._path, self._full.path(number))
        self._full.add(number, file.size_bytes)
        self.close()
        self._file = _LineFile(self._path)
        return self._file

    def close(self) -> None:
        """Close the file, which is complete after every line."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _LineFile:
    """A locked file of whole lines; its methods raise `OSError` as the disk does."""

    def __init__(self, path: Path) -> None:
        """Open or create the file; raises `RunFailedError` if its content is not a sink's."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        self._descriptor = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise RunFailedError(f"{path}: is not a regular file; name another, or use stdout")
            self._lock(path)
            self.size_bytes = self._end_of_lines(path)
            os.ftruncate(self._descriptor, self.size_bytes)
            self.began_s = self._first_taken_s()
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunFailedError(f"{path}: another run writes to it; name another file") from None

    def _end_of_lines(self, path: Path) -> int:
        """Where the last whole line ends."""
        size = os.fstat(self._descriptor).st_size
        tail = b""
        while len(tail) < min(size, LONGEST_LINE):
            more = min(1 << 16, size - len(tail))
            begin = size - len(tail) - more
            tail = os.pread(self._descriptor, more, begin) + tail
            if b"\n" in tail[:more]:
                break
        half = tail.rpartition(b"\n")[2]
        if half and not (half.startswith(_BEGIN) or _BEGIN.startswith(half.rstrip(b"\0"))):
            raise RunFailedError(
                f"{path}: ends in a line that no sink has written; name another file"
            )
        return size - len(half)

    def _first_taken_s(self) -> float | None:
        """When the first frame of the file was taken; None if the file does not say so."""
        line = os.pread(self._descriptor, 1 << 16, 0).partition(b"\n")[0]
        try:
            taken_s = json.loads(line)["taken_s"]
            return float(taken_s)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def is_at(self, path: Path) -> bool:
        """Whether `path` is still this file."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), path.stat())
        except FileNotFoundError:
            return False

    def append(self, line: bytes, taken_s: float) -> None:
        """Append a line, all of it or nothing."""
        try:
            write_all(self._descriptor, line)
        except BaseException:
            os.ftruncate(self._descriptor, self.size_bytes)
            raise
        self.size_bytes += len(line)
        if self.began_s is None:
            self.began_s = taken_s

    def close(self) -> None:
        """Close the file, and unlock it."""
        os.close(self._descriptor)
