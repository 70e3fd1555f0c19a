"""Keeps every n-th frame of a source, so that its result can be compared with the whole model's.

The end of a source is not known before, and its frames cannot be read again. At most `MOST_FRAMES`
are kept, of `MOST_BYTES` in all. Beyond that, n is doubled and every second one is removed, so the
frames that are kept are spread evenly over the stream, however long it is.
"""

from __future__ import annotations

from pathlib import Path

from launcher.results.comparison.agreement import FirstResults
from launcher.run.runtime import Frame

MOST_FRAMES = 256
MOST_BYTES = 512 << 20


class FrameSample:
    """The inputs of the frames whose results are in `results`, in `folder`; numbers rise."""

    def __init__(
        self,
        folder: Path,
        every: int,
        results: FirstResults,
        *,
        most_frames: int = MOST_FRAMES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.numbers: list[int] = []
        """The frames that are kept, in order."""
        self._inputs = FirstResults(folder)
        self._results = results
        self._every = every
        self._most_frames, self._most_bytes = most_frames, most_bytes

    def wants(self, number: int) -> bool:
        """Whether a frame belongs to the sample; in any thread."""
        return number % self._every == 0

    def __contains__(self, number: int) -> bool:
        return bool(self.numbers) and self.numbers[-1] == number

    def add(self, number: int, inputs: Frame) -> None:
        """Keep a frame, whose result comes next, unless there are too many by now."""
        each_bytes = 1 + sum(array.nbytes for array in inputs.values())
        most = min(self._most_frames, max(1, self._most_bytes // each_bytes))
        while len(self.numbers) >= most and self.wants(number):
            self._every *= 2
            for gone in [kept for kept in self.numbers if not self.wants(kept)]:
                self.numbers.remove(gone)
                self._inputs.remove(gone)
                self._results.remove(gone)
        if self.wants(number):
            self.numbers.append(number)
            self._inputs.add(number, inputs)

    def frame(self, number: int) -> Frame:
        """Return the inputs of a frame that is kept."""
        return self._inputs.get(number, self._inputs.names)
