"""Groups the frames of a feed into batches, and takes their results apart again.

The plan of a network in batches (`cnn.rewrite.batches`) computes B frames in one firing. To the run
a batch is one frame: the graph, its proof, the capacities, the credits and the replay after a loss
hold for batches as they do for frames. The feed is the only place where the two differ.

A batch consists of the next B frames in the order in which they were pushed. It is sent with fewer
if no more frames come, or if its oldest frame has waited for `wait_s`. Its last frame is then
repeated to fill it up, and the results of these copies are dropped.

Which frames are in a batch is settled when it is sent for the first time: frames that arrived while
no channel had room are in it, and after a loss it is sent again as it was. A frame that was
cancelled before that is in no batch.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from launcher.core.recovery import Recovery
from launcher.core.stream import ENDLESS
from launcher.run.runtime import Frame, RunResult
from nodes.protocol.payload import Array


class Batches:
    """Knows which frames are in which batch of `size`; times are on the monotonic clock.

    An incomplete batch is due once a frame of it has waited for `wait_s`; with None, only at the
    end. How long frames waited for the others of their batch is kept if the run is `timed`.
    """

    def __init__(self, size: int, wait_s: float | None, *, timed: bool = True) -> None:
        self.size = size
        self._wait_s = wait_s
        self._waiting: deque[tuple[int, float]] = deque()
        """The frames that are in no batch yet: their numbers, and when each was seen."""
        self._seen = 0
        self._claimed = 0
        self._available = 0
        self._is_ended = False
        self._under_way: dict[int, tuple[int, ...]] = {}
        """By batch, the numbers of its frames, until their results are taken."""
        self._is_timed = timed
        self._waits_s: list[tuple[float, ...]] = []
        """By batch that was sent, how long each of its frames waited for the others, if `timed`."""

    # ------------------------------------------------------------ frames into batches

    def most(self, frames: int) -> int:
        """Return the most batches that `frames` frames may be in."""
        is_open = frames == ENDLESS or self._wait_s is not None
        return frames if is_open else math.ceil(frames / self.size)

    def seen(self, pushed: int, now_s: float, *, is_ended: bool) -> int:
        """Return how many batches there are to send once `pushed` frames have been pushed."""
        self._is_ended = is_ended
        self._waiting.extend((number, now_s) for number in range(self._seen, pushed))
        self._seen = pushed
        full, rest = divmod(len(self._waiting), self.size)
        due_s = self._due_s()
        is_due = rest and (is_ended or (due_s is not None and now_s >= due_s))
        self._available = max(self._available, self._claimed + full + bool(is_due))
        return self._available

    @property
    def deadline_s(self) -> float | None:
        """When `seen` will return more although nothing was pushed; None if that is never."""
        full = len(self._waiting) // self.size
        is_known = self._is_ended or self._available > self._claimed + full
        return None if is_known else self._due_s()

    def _due_s(self) -> float | None:
        """When the batch that is incomplete has waited long enough; None if that is never."""
        full, rest = divmod(len(self._waiting), self.size)
        if not rest or self._wait_s is None:
            return None
        return self._waiting[full * self.size][1] + self._wait_s

    def claim(self, batch: int, is_wanted: Callable[[int], bool]) -> bool:
        """Settle which frames are in the next batch: those that are wanted; False if none is."""
        chosen: list[tuple[int, float]] = []
        while self._waiting and len(chosen) < self.size:
            number, seen_s = self._waiting.popleft()
            if is_wanted(number):
                chosen.append((number, seen_s))
        self._claimed += 1
        if not chosen:
            return False
        self._under_way[batch] = tuple(number for number, _ in chosen)
        complete_s = chosen[-1][1]
        if len(chosen) < self.size and not self._is_ended and self._wait_s is not None:
            complete_s = max(complete_s, chosen[0][1] + self._wait_s)
        if self._is_timed:
            self._waits_s.append(tuple(complete_s - seen_s for _, seen_s in chosen))
        return True

    def frames(self, batch: int) -> tuple[int, ...]:
        """Return the numbers of the frames in a batch whose result is not taken yet."""
        return self._under_way[batch]

    def stacked(self, frames: Sequence[Frame]) -> Frame:
        """Return frames, each of one sample, as a batch."""
        copies = self.size - len(frames)
        return {
            name: np.concatenate([*(each[name] for each in frames), *[frames[-1][name]] * copies])
            for name in frames[0]
        }

    def apart(
        self, batch: int, outputs: Mapping[str, Array]
    ) -> Iterator[tuple[int, dict[str, Array]]]:
        """Take the result of a batch; yield that of each frame, and none for those that fill up."""
        for place, number in enumerate(self._under_way.pop(batch)):
            yield number, {name: array[place : place + 1] for name, array in outputs.items()}

    # ------------------------------------------------------------ results of the run

    def in_frames(self, result: RunResult) -> RunResult:
        """Return the measurements of a run of batches with the times and recoveries of frames."""
        return replace(
            result,
            sent_s=tuple(self.of_frames(result.sent_s, is_sent=True)),
            received_s=tuple(self.of_frames(result.received_s)),
            recoveries=tuple(map(self._recovery, result.recoveries)),
        )

    def of_frames(self, batch_s: Sequence[float], *, is_sent: bool = False) -> Iterator[float]:
        """Yield for each frame the time of its batch; of those sent, less what it waited for it."""
        for time_s, waits_s in zip(batch_s, self._waits_s, strict=False):
            for wait_s in waits_s:
                yield time_s - wait_s if is_sent else time_s

    def _recovery(self, past: Recovery) -> Recovery:
        """Return a change of epochs whose frames, not batches, are counted.

        Unless the run is timed, every batch counts as complete.
        """
        if not self._is_timed:
            size = self.size
            return replace(past, frame=past.frame * size, replayed=past.replayed * size)
        before = list(itertools.accumulate(map(len, self._waits_s), initial=0))
        first, end = (
            before[min(batch, len(before) - 1)]
            for batch in (past.frame, past.frame + past.replayed)
        )
        return replace(past, frame=first, replayed=end - first)
