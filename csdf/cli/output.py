"""Write output safely: text without control characters, and a progress line for long searches.

On a terminal the progress line is rewritten; elsewhere a new line is written from time to time. A
search that ends soon shows none.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

FIRST_S = 2.0
"""Time before the first progress line."""

EVERY_S = 10.0
"""Time between lines that do not go to a terminal."""


class ProgressLine:
    """A progress line on `stream`; call `clear` before anything else is written."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now_s = stream, now_s
        self._rewrites = stream.isatty()
        self._next_s = now_s() + FIRST_S
        self._width = 0

    def update(self, text: Callable[[], str]) -> None:
        """Write `text()` if enough time has passed since the last line; may be called often."""
        if self._now_s() < self._next_s:
            return
        self._next_s = self._now_s() + (0.2 if self._rewrites else EVERY_S)
        line = text()
        if self._rewrites:
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def printable(text: str) -> str:
    """Return `text` with escapes for all that is neither printable nor a newline."""
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
