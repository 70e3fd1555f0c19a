"""Streams the files, or the random numbers, that `input` names where results go to sinks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from launcher.clock import now_s
from launcher.config.ends.source import SourceFrame
from launcher.inputs.frames import Inputs


class InputFiles:
    """Gives each of the inputs once, or as many frames as were asked for, in order."""

    is_live = False

    def __init__(self, inputs: Inputs) -> None:
        self.description = inputs.description
        self._inputs = inputs
        self._next = 0
        self._closed = threading.Event()

    def frames(self) -> Iterator[SourceFrame]:
        """Yield the frames that are left; raises `BadInputError` for a file that is broken."""
        while self._next < len(self._inputs) and not self._closed.is_set():
            item = self._inputs.items[self._inputs.source(self._next)]
            data = item.load() if item.picture is None else item.picture()
            self._next += 1
            yield SourceFrame(data, now_s(), item.name)

    def close(self) -> None:
        """End `frames` before its next frame."""
        self._closed.set()
