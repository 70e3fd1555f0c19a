"""How far a long search is, on standard error: a line that is rewritten on a terminal, else a new
line now and then; nothing for what is over at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

FIRST_S = 2.0
"""What takes less is not told of."""

EVERY_S = 10.0
"""Between lines where there is no terminal."""


class ProgressLine:
    """`tell` often; it shows seldom. `clear` before anything else is written."""

    def __init__(self, stream: TextIO, now_s: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._now_s = stream, now_s
        self._rewrites = stream.isatty()
        self._next_s = now_s() + FIRST_S
        self._width = 0

    def tell(self, text: Callable[[], str]) -> None:
        """Shows `text()` if it is time to."""
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
        """Removes the line from a terminal."""
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0
