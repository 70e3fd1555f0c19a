"""Groups the frames that are pushed into a run into batches, and takes their results apart again.

The plan of a network in batches (`cnn.rewrite.batches`) computes B frames in one firing. To the run
a batch is one frame: the graph, its proof, the capacities, the credits and the replay after a loss
hold for batches as they do for frames. This module is the only place where the two differ.

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
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from launcher.core.intake import ENDLESS
from launcher.core.recovery import Recovery
from launcher.errors import BadInputError
from launcher.run.runtime import (
    Array,
    Frame,
    OnUpdate,
    PushedFrames,
    PushedNetwork,
    RunResult,
    Update,
)
from launcher.view.frame_trace import FrameTrace

Stream = Callable[[tuple[PushedNetwork, ...], OnUpdate], RunResult]
"""Streams pushed frames through a plan, until they end."""


def stream_in_batches(
    stream: Stream,
    networks: Sequence[PushedNetwork],
    on_update: OnUpdate,
    size: int,
    wait_s: float | None,
    *,
    timed: bool = True,
) -> RunResult:
    """Stream frames in batches of `size`; progress and the result count frames.

    An incomplete batch is sent once a frame of it has waited for `wait_s`; with None, only at the
    end. `timed` is as in `launcher.run.runtime.RunOptions`.
    """
    batches = [Batches(network, size, wait_s, timed=timed) for network in networks]

    def show(update: Update) -> None:
        if update.stage == "streaming":
            frames, total = (sum(counts) for counts in zip(*map(_progress, batches), strict=True))
            update = replace(update, done=frames, total=total)
        on_update(update)

    result = stream(tuple(each.network for each in batches), show)
    (only,) = batches if len(batches) == 1 else (None,)
    if only is None:  # times are of runs of one stream
        return result
    return replace(
        result,
        sent_s=tuple(only.of_frames(result.sent_s, is_sent=True)),
        received_s=tuple(only.of_frames(result.received_s)),
        recoveries=tuple(map(only.recovery, result.recoveries)),
    )


def _progress(batches: Batches) -> tuple[int, int]:
    return batches.taken, batches.offered


class Batches:
    """The frames of one network in batches of `size` (`launcher.run.runtime.PushedFrames`).

    `clock` is the monotonic clock.
    """

    def __init__(
        self,
        network: PushedNetwork,
        size: int,
        wait_s: float | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        timed: bool = True,
    ) -> None:
        self._frames: PushedFrames = network.frames
        self._on_result = network.on_result
        self._size = size
        self._wait_s = wait_s
        self._clock = clock
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
        self.network = replace(network, frames=self, on_result=self._took)
        """The network whose frames are these batches."""
        self.taken = 0
        """The number of frames whose results were taken."""

    @property
    def offered(self) -> int:
        """The number of all frames, where that is known; else of those that came."""
        return self._seen if self._frames.count == ENDLESS else self._frames.count

    # ------------------------------------------------------------ pushed frames

    @property
    def descriptor(self) -> int | None:
        """See `PushedFrames.descriptor`."""
        return self._frames.descriptor

    @property
    def count(self) -> int:
        """The most batches that may come."""
        count = self._frames.count
        is_open = count == ENDLESS or self._wait_s is not None
        return count if is_open else math.ceil(count / self._size)

    def hold(self, frames: int) -> None:
        """See `PushedFrames.hold`; one more batch is formed than the channels hold."""
        self._frames.hold((frames + 1) * self._size)

    def seen(self) -> tuple[int, bool]:
        """See `PushedFrames.seen`."""
        pushed, self._is_ended = self._frames.seen()
        now_s = self._clock()
        self._waiting.extend((number, now_s) for number in range(self._seen, pushed))
        self._seen = pushed
        full, rest = divmod(len(self._waiting), self._size)
        due_s = self._due_s()
        is_due = rest and (self._is_ended or (due_s is not None and now_s >= due_s))
        self._available = max(self._available, self._claimed + full + bool(is_due))
        return self._available, self._is_ended

    @property
    def deadline_s(self) -> float | None:
        """See `PushedFrames.deadline_s`."""
        full = len(self._waiting) // self._size
        is_known = self._is_ended or self._available > self._claimed + full
        return None if is_known else self._due_s()

    def _due_s(self) -> float | None:
        """When the batch that is incomplete has waited long enough; None if that is never."""
        full, rest = divmod(len(self._waiting), self._size)
        if not rest or self._wait_s is None:
            return None
        return self._waiting[full * self._size][1] + self._wait_s

    def claim(self, index: int) -> bool:
        """Settle which frames are in the next batch; False if all of them were cancelled."""
        chosen: list[tuple[int, float]] = []
        while self._waiting and len(chosen) < self._size:
            number, seen_s = self._waiting.popleft()
            if self._frames.claim(number):
                chosen.append((number, seen_s))
        self._claimed += 1
        if not chosen:
            return False
        self._under_way[index] = tuple(number for number, _ in chosen)
        complete_s = chosen[-1][1]
        if len(chosen) < self._size and not self._is_ended and self._wait_s is not None:
            complete_s = max(complete_s, chosen[0][1] + self._wait_s)
        if self._is_timed:
            self._waits_s.append(tuple(complete_s - seen_s for _, seen_s in chosen))
        return True

    def __getitem__(self, index: int) -> Frame:
        """Return a batch as one frame; raises `BadInputError` if its frames do not fit together."""
        numbers = self._under_way[index]
        frames = [self._frames[number] for number in numbers]
        return {name: self._stacked(name, numbers, frames) for name in frames[0]}

    def traces(self, index: int) -> Sequence[FrameTrace]:
        """See `PushedFrames.traces`: who follows any frame of the batch."""
        numbers = self._under_way[index]
        return [trace for number in numbers for trace in self._frames.traces(number)]

    def _stacked(self, name: str, numbers: Sequence[int], frames: Sequence[Frame]) -> Array:
        first = frames[0][name]
        for number, frame in zip(numbers, frames, strict=True):
            array = frame.get(name)
            if array is None:
                raise BadInputError(f"frame {number} has no input {name!r}")
            if array.shape[:1] != (1,) or (array.dtype, array.shape) != (first.dtype, first.shape):
                raise BadInputError(
                    f"frame {number}: input {name!r} is {array.dtype.name}{list(array.shape)}, "
                    f"which cannot be in a batch of {first.dtype.name}{[1, *first.shape[1:]]}"
                )
        arrays = [frame[name] for frame in frames]
        return np.concatenate([*arrays, *[arrays[-1]] * (self._size - len(arrays))])

    def _took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """Hand over the result of each frame of a batch; those that filled it up have none."""
        for place, number in enumerate(self._under_way.pop(index)):
            own = {name: array[place : place + 1] for name, array in outputs.items()}
            self._on_result(number, own)
            self.taken += 1

    # ------------------------------------------------------------ results of the run

    def of_frames(self, batch_s: Sequence[float], *, is_sent: bool = False) -> Iterator[float]:
        """Yield for each frame the time of its batch; of those sent, less what it waited for it."""
        for time_s, waits_s in zip(batch_s, self._waits_s, strict=False):
            for wait_s in waits_s:
                yield time_s - wait_s if is_sent else time_s

    def recovery(self, past: Recovery) -> Recovery:
        """Return a change of epochs whose frames, not batches, are counted.

        Unless the run is timed, every batch counts as complete.
        """
        if not self._is_timed:
            size = self._size
            return replace(past, frame=past.frame * size, replayed=past.replayed * size)
        before = list(itertools.accumulate(map(len, self._waits_s), initial=0))
        first, end = (
            before[min(batch, len(before) - 1)]
            for batch in (past.frame, past.frame + past.replayed)
        )
        return replace(past, frame=first, replayed=end - first)
