"""Collects results as they arrive: writes, journals and counts them, keeps them to compare.

If the network keeps state from frame to frame, the output that is fed back is among its results.
The results of all earlier frames therefore determine the state with which a frame is computed. A
resumed run begins with it, and the whole model computes the frame from the same state when results
are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from launcher.core.stream import ENDLESS
from launcher.inputs.frames import Inputs
from launcher.results.comparison.agreement import FirstResults
from launcher.results.journal.journal import Journal
from launcher.results.journal.ranges import FrameRanges, FrameSequence
from launcher.results.outputs import OutputFolders
from launcher.results.report import Accuracy, NonFiniteResults
from launcher.results.sample import FrameSample
from launcher.run.runtime import Frame
from launcher.tasks.classes import top_class
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.network import Network


class NetworkState:
    """The state of `network` after the results so far, in frame order; at first it is zero.

    It is false for a network without state.
    """

    def __init__(self, network: Network) -> None:
        self._made = dict(network.state)
        described = (network.tensors[name] for name in network.state)
        self.now: dict[str, Array] = {t.name: np.zeros(t.shape, t.dtype) for t in described}
        """The state with which the next frame is computed, by tensor name."""

    def __bool__(self) -> bool:
        return bool(self._made)

    def advance(self, outputs: Mapping[str, Array]) -> None:
        """Take the state from the next frame's outputs."""
        self.now = {name: outputs[made] for name, made in self._made.items()}


class Results:
    """Collects the results of `inputs`, or of a source's frames, frame by frame.

    `outputs` names the network's outputs; `constants` are outputs that no input reaches, which are
    written with every frame. `writer`, `first` and `journal` are None if results are not to be
    written, compared or journalled. `truth` is the class of each input, empty if it is not known.
    `open` has the numbers of the frames that are still to be streamed, of `frames` that a source
    is to give at most: all, until `restore` has found some in the journal.

    All results of one input are equal unless the network keeps `state`. In that case each frame
    counts as distinct, and the state with which it was computed is kept with its result.
    """

    def __init__(
        self,
        inputs: Inputs | None,
        outputs: tuple[str, ...],
        writer: OutputFolders | None,
        first: FirstResults | None,
        truth: tuple[int, ...],
        journal: Journal | None = None,
        state: NetworkState | None = None,
        *,
        checked: bool = True,
        constants: Mapping[str, Array] | None = None,
        frames: int = ENDLESS,
        sample: FrameSample | None = None,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.first = first
        self.journal = journal
        self.frames = frames if inputs is None else len(inputs)
        """How many frames there are, or `ENDLESS`."""
        self.open: Sequence[int] = range(self.frames)
        self.settled = FrameRanges()
        """The frames that earlier launches have settled."""
        self.state = state
        self.sample = sample
        """The frames of a source whose results are compared."""
        self.first_result_s: float | None = None
        self.restored = 0
        """How many results were restored from the journal."""
        self.dropped = FrameRanges()
        """The frames of `inputs` that were dropped in this run."""
        self.infinite = NonFiniteResults() if checked else None
        self._writer = writer
        self._constants = dict(constants or {})
        self._truth = truth
        self._taken = [0] * self.distinct
        self._right = 0
        self._whole_right = 0
        self._compared = False

    @property
    def distinct(self) -> int:
        """The number of distinct inputs, whose results may differ."""
        if self.inputs is None:
            return 0
        return len(self.inputs) if self.state else self.inputs.distinct

    @property
    def compared(self) -> Sequence[int]:
        """The distinct inputs, or frames of a source, whose results are compared, in order."""
        first = self.first
        if self.sample is not None:
            return self.sample.numbers
        return () if first is None else [n for n in range(self.distinct) if first.has(n)]

    def whole_frame(self, number: int) -> Frame:
        """Return the whole model's inputs for a number of those `compared`, its state included.

        Raises `IndexError` for one that is not known.
        """
        if self.inputs is not None:
            frame = self.inputs[number]
        elif self.sample is not None:
            frame = self.sample.frame(number)
        else:
            raise IndexError(number)
        if not self.state or self.first is None:
            return frame
        names = tuple(self.state.now)
        began = self.first.get(number, names) if self.first.has(number) else self.state.now
        return {**frame, **began}

    def restore(self, on_done: Callable[[int], None]) -> None:
        """Restore the results in the journal; `on_done` is called with the frames done."""
        if self.journal is None:
            return
        if self._writer is not None:  # a result is removed only once the output has it permanently
            self.journal.before_removal = self._writer.sync
        if self.state and (last := self.journal.last_removed()) is not None:
            self.state.advance(last)
        for frame, outputs in self.journal.results(in_a_row=bool(self.state)):
            self._take(frame, outputs)
            self.restored += 1
            on_done(self.restored)
        self.settled = self.journal.settled
        self.open = FrameSequence(self.settled.gaps(0, self.frames - 1))

    def on_result(self, frame: int, outputs: Mapping[str, Array], name: str = "") -> None:
        """Handle the result of a frame that was streamed; `name` is that of its file."""
        if self.first_result_s is None:
            self.first_result_s = time.monotonic()
        if self.journal is not None:
            self.journal.write(frame, outputs)
        self._take(frame, outputs, name)

    def on_drop(self, frame: int) -> None:
        """Note that a frame was dropped, or could not be used."""
        if self.journal is not None:
            self.journal.drop(frame)
        if self.inputs is not None:
            self.dropped.add(frame)

    def _take(self, frame: int, outputs: Mapping[str, Array], name: str = "") -> None:
        number = frame if self.state or self.inputs is None else self.inputs.source(frame)
        if self.inputs is not None:
            self._taken[number] += 1
        if self.infinite is not None:
            computed = {name: outputs[name] for name in self.outputs}
            self.infinite = self.infinite.seen(frame, computed)
        if self._writer is not None:
            self._writer.write(frame, {**outputs, **self._constants}, name)
        if self.first is not None and (self.sample is None or frame in self.sample):
            began = self.state.now if self.state else {}
            self.first.add(number, {**{name: outputs[name] for name in self.outputs}, **began})
        if self.state:
            self.state.advance(outputs)
        if self._truth:
            self._right += top_class(outputs) == self._truth[frame % len(self._truth)]

    def on_reference(self, number: int, outputs: Mapping[str, Array]) -> None:
        """Count the whole model's result for a distinct input."""
        self._compared = True
        if self._truth and top_class(outputs) == self._truth[number % len(self._truth)]:
            self._whole_right += self._taken[number]

    def accuracy(self) -> Accuracy | None:
        """The accuracy over the frames with a result; None if the true classes are not known."""
        taken = sum(self._taken)
        if not self._truth or not taken:
            return None
        whole = self._whole_right / taken if self._compared else None
        return Accuracy(self._right / taken, whole)
