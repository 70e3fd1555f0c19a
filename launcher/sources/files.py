"""Streams the files, or the random numbers, that `input` names."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial

from launcher.clock import now_s
from launcher.config.ends.source import SourceFrame
from launcher.inputs.frames import Inputs


class InputFiles:
    """Gives the frames with these `numbers`, by default all, in order.

    With `pictures`, frames from image files are images that are not fitted to the network yet. With
    `late`, a frame is decoded only once it cannot be dropped any more.
    """

    is_live = False

    def __init__(
        self,
        inputs: Inputs,
        numbers: Sequence[int] | None = None,
        *,
        pictures: bool = False,
        late: bool = False,
    ) -> None:
        self.description = inputs.description
        self._inputs = inputs
        self._numbers = range(len(inputs)) if numbers is None else numbers
        self._pictures = pictures
        self._late = late
        self._next = 0
        self._closed = threading.Event()

    def frames(self) -> Iterator[SourceFrame]:
        """Yield the frames that are left; raises `BadInputError` for a file that is broken."""
        while self._next < len(self._numbers) and not self._closed.is_set():
            number = self._numbers[self._next]
            item = self._inputs.items[self._inputs.source(number)]
            picture = item.picture if self._pictures else None
            load = partial(self._inputs.__getitem__, number) if picture is None else picture
            data, late = ({}, load) if self._late else (load(), None)
            self._next += 1
            yield SourceFrame(data, now_s(), item.name, index=number, load=late)

    def close(self) -> None:
        """End `frames` before its next frame."""
        self._closed.set()
