"""What engines made from subnets, kept on disk: optimised models, TensorRT engines.

An entry is a directory named by its key, with its files and `entry.json`, which holds their sizes
and CRC-32s. It is made in a private directory and renamed into place, so a reader sees all of it or
nothing; what a crash, a full disk or a bad card has damaged nevertheless fails its check and is
made anew, so nobody waits for the disk. Several agents may share the directory; whoever renames
first wins.
"""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.owner import is_stale, private_name

_ENTRY = "entry.json"
_PARTIAL = "partial"
_CHUNK = 1 << 20
_LIGHT = "-light"


@dataclass(frozen=True, slots=True)
class Job:
    """A subnet to prepare, and the key that the result gets; `is_light`: with little memory."""

    graph: Path
    subnet: str
    key: str
    is_light: bool = False

    @property
    def lighter(self) -> Job | None:
        """The same, prepared with less memory; None if there is no such way."""
        if self.is_light or not self.key.startswith("onnxruntime-"):
            return None
        return Job(self.graph, self.subnet, self.key + _LIGHT, is_light=True)

    @staticmethod
    def is_of_light(key: str) -> bool:
        """Whether a key is that of a light job."""
        return key.endswith(_LIGHT)


class PreparedFiles:
    """The entries under one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._verified: set[str] = set()
        try:
            root.mkdir(parents=True, exist_ok=True)
            self.clear_leftovers()
        except OSError as error:
            raise ExecutorError(
                f"the cache directory {root} cannot be used: {error.strerror}"
            ) from error

    @property
    def root(self) -> Path:
        """Where the entries lie."""
        return self._root

    def clear_leftovers(self) -> None:
        """Remove what processes that are gone have left half-written; may raise OSError."""
        for leftover in self._root.glob(f"{_PARTIAL}.*"):
            if is_stale(leftover):
                shutil.rmtree(leftover, ignore_errors=True)

    def find(self, key: str) -> Path | None:
        """The directory of an entry whose files are as they were made, marked as just used.

        A damaged entry is removed and not found. Content is read once per instance, sizes always.
        """
        entry = self._root / key
        try:
            content = json.loads((entry / _ENTRY).read_text("utf-8"))
            intact = all(
                (entry / name).stat().st_size == size
                and (key in self._verified or _crc32(entry / name) == crc)
                for name, (size, crc) in content["files"].items()
            )
        except FileNotFoundError:
            if not entry.is_dir():
                return None
            intact = False
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            intact = False
        if not intact:
            self.discard(key)
            return None
        self._verified.add(key)
        os.utime(entry)
        return entry

    def discard(self, key: str) -> None:
        """Remove an entry."""
        self._verified.discard(key)
        shutil.rmtree(self._root / key, ignore_errors=True)

    @contextmanager
    def making(self, key: str) -> Iterator[Path]:
        """A private directory that becomes the entry `key` when the block ends well.

        Raises ExecutorError if the disk is full or refuses.
        """
        folder = self._root / private_name(_PARTIAL)
        try:
            folder.mkdir()
            yield folder
            self._publish(folder, key)
        except OSError as error:
            raise ExecutorError(
                f"a prepared subnet cannot be written under {self._root}: {error.strerror}; "
                "make room or choose another cache directory"
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _publish(self, folder: Path, key: str) -> None:
        files = {
            path.name: (path.stat().st_size, _crc32(path))
            for path in sorted(folder.iterdir())
            if path.is_file()
        }
        (folder / _ENTRY).write_text(json.dumps({"files": files}), "utf-8")
        try:
            folder.rename(self._root / key)
        except OSError:
            if self.find(key) is None:  # else another process was faster
                folder.rename(self._root / key)


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc
