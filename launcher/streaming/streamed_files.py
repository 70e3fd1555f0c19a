"""Streams the inputs of `launch` through a run, and hands results to their collector.

Inputs are read in a separate thread; with a pace, another one offers them at fixed times. The
thread that collects results is the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from launcher.config.pace import Pace
from launcher.errors import BadInputError, RunFailedError
from launcher.run.live import LiveNetwork
from launcher.run.runtime import Array, Frame, Frames, Update
from launcher.streaming.pacing import PacedNumbers


class Collector(Protocol):
    """Takes the results of `frames`, as `launcher.results.collecting.Results` does; numbers count
    within these."""

    frames: Frames

    def on_result(self, number: int, outputs: Mapping[str, Array]) -> None:
        """Receive the result of a frame, in order."""
        ...

    def on_drop(self, number: int) -> None:
        """Note that the source dropped a frame."""
        ...


class StreamedFiles:
    """Streams the frames of `results` once, at a `pace` or as fast as they are computed."""

    def __init__(self, results: Collector, pace: Pace | None) -> None:
        self._results = results
        self._pace = pace
        self._dropped = 0
        self._sent: deque[int] = deque()
        """The numbers of the frames whose results are to come, in order."""

    def through(self, network: LiveNetwork) -> None:
        """Stream all frames; return when the last result is taken.

        Raises what a collector raises; `BadInputError` if the first frame cannot be read, and
        `RunFailedError` if a later one cannot.
        """
        count = len(self._results.frames)
        if self._pace is None:
            self._stream(network, iter(range(count)))
            return
        with PacedNumbers(count, self._pace) as numbers:
            self._stream(network, iter(numbers), numbers.dropped)

    def _stream(
        self, network: LiveNetwork, numbers: Iterator[int], dropped: deque[int] | None = None
    ) -> None:
        dropped = deque() if dropped is None else dropped
        for outputs in network.stream(self._read(numbers, network)):
            self._note(dropped)
            self._results.on_result(self._sent.popleft(), outputs)
        self._note(dropped)

    def _read(self, numbers: Iterator[int], network: LiveNetwork) -> Iterator[Frame]:
        """Yield the frames, and end the feed, also after an error: a batch waits for no more."""
        try:
            for read, number in enumerate(numbers):
                try:
                    frame = self._results.frames[number]
                except BadInputError as error:
                    if read:
                        raise RunFailedError(str(error)) from error
                    raise
                self._sent.append(number)
                yield frame
        finally:
            network.feed.end()

    def _note(self, dropped: deque[int]) -> None:
        while dropped:
            self._dropped += 1
            self._results.on_drop(dropped.popleft())

    def of_all(self, update: Update) -> Update:
        """Return a run's progress as progress among all frames that were not dropped."""
        if update.stage != "streaming":
            return update
        return replace(update, total=len(self._results.frames) - self._dropped)
