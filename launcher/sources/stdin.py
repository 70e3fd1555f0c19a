"""The source `stdin`: .npy arrays or JPEG images, one after the other on standard input.

Each begins with its own magic bytes, so that both may come in one stream. An array's header states
where it ends. A JPEG image is a list of marked segments, of which only the coded picture has no
length; in it, a byte 0xFF is followed by 0x00 or by a restart marker until the next segment begins.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from launcher.clock import now_s
from launcher.config.ends.source import FrameRefusedError, Source, SourceConfig, SourceFrame
from launcher.errors import BadInputError, reason
from launcher.inputs.arrays import MOST_BYTES, read_array
from launcher.inputs.images import MOST_FILE_BYTES, decoded_from
from launcher.sources.interrupt import Interrupt
from nodes.protocol.payload import Array

_NPY, _JPEG = b"\x93NUMPY", b"\xff\xd8"
_SCAN, _END = 0xDA, 0xD9
_WITHOUT_LENGTH = {0x01, *range(0xD0, 0xD8)}
"""Markers without a length: TEM and the restart markers."""

_NEXT_SEGMENT = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")

_BLOCK_BYTES = 1 << 20


class StdinConfig(SourceConfig):
    """Standard input: a stream of .npy arrays, or of JPEG images."""

    kind: ClassVar[str] = "stdin"

    def open(self, folder: Path) -> Source:  # noqa: ARG002
        """See `SourceConfig`."""
        try:
            os.fstat(0)
        except OSError:
            raise BadInputError("standard input is closed; pipe frames into the command") from None
        if os.isatty(0):
            raise BadInputError("standard input is a terminal; pipe frames into the command")
        return PipeSource(0, "standard input")


class PipeSource:
    """Frames from a descriptor, which stays open: a `launcher.config.ends.source.Source`."""

    is_live = False

    def __init__(self, descriptor: int, description: str) -> None:
        self.description = description
        self._interrupt = Interrupt()
        self._bytes = _Bytes(descriptor, self._interrupt)
        self._frames = 0
        self._error: BadInputError | None = None

    def frames(self) -> Iterator[SourceFrame]:
        """See `Source`."""
        while (data := self._next()) is not None:
            yield SourceFrame(data, now_s())

    def close(self) -> None:
        """See `Source`."""
        self._interrupt.set()

    def _next(self) -> Array | Mapping[str, Array] | None:
        """Return the next frame; None at the end, and once the source is closed."""
        if self._error is not None:  # the beginning of the next frame is no longer known
            raise self._error
        where = f"{self.description}, frame {self._frames}"
        try:
            head = self._bytes.peek(len(_NPY))
            if not head:
                return None
            self._frames += 1
            if _NPY.startswith(head):
                return {"": read_array(self._bytes, MOST_BYTES)}
            if not _JPEG.startswith(head[:2]):
                raise ValueError("it begins neither as an .npy array nor as a JPEG image")
            image = io.BytesIO(self._image())
        except _ClosedError:
            return None
        except Exception as error:  # noqa: BLE001 - NumPy raises errors of any type
            self._error = BadInputError(f"{where}: {reason(error)}")
            raise self._error from None
        try:
            return np.asarray(decoded_from(image, "RGB"))
        except Exception as error:  # noqa: BLE001 - Pillow's parsers raise errors of any type
            raise FrameRefusedError(
                f"{where}: cannot be read as an image: {reason(error)}"
            ) from None

    def _image(self) -> bytes:
        """Return the bytes of a JPEG image."""
        image = bytearray(self._bytes.read(2))
        while True:
            marker = self._bytes.read(2)
            image += marker
            if marker[0] != 0xFF:
                raise ValueError("it is not a valid JPEG image")
            while marker[1] == 0xFF:  # any number of them may stand before a marker
                marker = b"\xff" + self._bytes.read(1)
                image += marker[1:]
            if marker[1] == _END:
                return bytes(image)
            if marker[1] not in _WITHOUT_LENGTH:
                length = self._bytes.read(2)
                image += length + self._bytes.read(max(0, int.from_bytes(length, "big") - 2))
            if marker[1] == _SCAN:
                image += self._bytes.read_until(_NEXT_SEGMENT, MOST_FILE_BYTES - len(image))
            if len(image) > MOST_FILE_BYTES:
                raise ValueError(f"it is larger than {MOST_FILE_BYTES >> 20} MiB")


class _ClosedError(Exception):
    """The source was closed while it waited."""


class _Bytes:
    """Reads a descriptor; raises `_ClosedError` once `interrupt` is set."""

    def __init__(self, descriptor: int, interrupt: Interrupt) -> None:
        self._descriptor, self._interrupt = descriptor, interrupt
        self._read = bytearray()

    def peek(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end, and leave them to be read."""
        while len(self._read) < count and self._more():
            pass
        return bytes(self._read[:count])

    def read(self, count: int = 0, /) -> bytes:
        """Return `count` bytes; raises `EOFError` if there are fewer."""
        while len(self._read) < count:
            if not self._more():
                raise EOFError("the input ends in the middle of it")
        data = bytes(self._read[:count])
        del self._read[:count]
        return data

    def read_until(self, pattern: re.Pattern[bytes], most: int) -> bytes:
        """Return the bytes before the next ones that match, which are two.

        Raises `ValueError` if there are more than `most`, and `EOFError`.
        """
        begin = 0
        while (found := pattern.search(self._read, begin)) is None:
            begin = max(0, len(self._read) - 1)
            if begin > most:
                raise ValueError(f"it is larger than {MOST_FILE_BYTES >> 20} MiB")
            if not self._more():
                raise EOFError("the input ends in the middle of it")
        end = found.start()
        del found  # it holds the buffer
        return self.read(end)

    def _more(self) -> bool:
        if not self._interrupt.wait_for(self._descriptor):
            raise _ClosedError
        data = os.read(self._descriptor, _BLOCK_BYTES)
        self._read += data
        return bool(data)
