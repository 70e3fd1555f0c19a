"""Writes one line of JSON per result to standard output.

The report of the run goes to standard error then, so that standard output has nothing but results.
A reader that has exited ends the run as it ends every command: `BrokenPipeError` passes through. A
reader that stops reading loses nothing; the sink ends an attempt after `PATIENCE_S`, and the next
one continues within the line. Every other error, such as a full disk behind standard output, ends
the run too and may leave half a line there; the kind `json-lines` never does.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from launcher.config.ends.sink import FrameResult, SinkConfig, SinkLostError
from launcher.sinks.result_json import result_text

PATIENCE_S = 1.0
"""How long an attempt waits for a reader."""


class StdoutConfig(SinkConfig):
    """Standard output, which gets a line of JSON per result."""

    kind: ClassVar[str] = "stdout"

    def open(self, folder: Path) -> StdoutSink:  # noqa: ARG002 - it has no path
        """Return the sink."""
        return StdoutSink(sys.stdout.fileno(), PATIENCE_S)


class StdoutSink:
    """An open descriptor that lines are written to; it is not closed."""

    description = "standard output"
    needs_image = False

    def __init__(self, descriptor: int, patience_s: float = PATIENCE_S) -> None:
        self._descriptor = descriptor
        self._patience_s = patience_s
        self._left = memoryview(b"")
        """The unwritten rest of the line of the frame `_begun`."""
        self._begun: int | None = None

    def write(self, result: FrameResult) -> None:
        """Write the result's line; raises `OSError` if standard output cannot be written."""
        if self._begun is not None and self._begun != result.index:
            self._write_left()  # its result was dropped after the line was begun
        if self._begun is None:
            self._left = memoryview(result_text(result) + b"\n")
            self._begun = result.index
        self._write_left()

    def _write_left(self) -> None:
        while self._left:
            self._left = self._left[self._write_some() :]
        self._begun = None

    def _write_some(self) -> int:
        """Write a part that a pipe with room takes without waiting, and return its length."""
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        if writable.poll(self._patience_s * 1000):
            with suppress(BlockingIOError):
                return os.write(self._descriptor, self._left[: select.PIPE_BUF])
        raise SinkLostError("standard output: nobody reads it")

    def close(self) -> None:
        """Do nothing: standard output is open as long as the command runs."""
