"""What is done with results as they come in: written, kept for comparison, counted as right."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from launcher.classes import top_class
from launcher.inputs import Inputs
from launcher.report import Accuracy
from launcher.runtime import Array
from launcher.verify import FirstResults


class Writer(Protocol):
    """Where results are written to."""

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Write one frame's results."""
        ...


class Results:
    """Takes the results of `inputs`, frame by frame.

    `outputs` names the network's outputs; `writer` and `first` are None where nothing is to be
    written or compared; `truth` is the class of each input, empty where it is not known.
    """

    def __init__(
        self,
        inputs: Inputs,
        outputs: tuple[str, ...],
        writer: Writer | None,
        first: FirstResults | None,
        truth: tuple[int, ...],
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.first = first
        self.first_result_s: float | None = None
        self._writer = writer
        self._truth = truth
        self._right = 0
        self._whole_right = 0
        self._compared = False

    def on_result(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Take one frame's results, in frame order."""
        if self.first_result_s is None:
            self.first_result_s = time.monotonic()
        number = self.inputs.source(frame)
        if self._writer is not None:
            self._writer.write(frame, outputs)
        if self.first is not None:
            self.first.add(number, {name: outputs[name] for name in self.outputs})
        if self._truth:
            self._right += top_class(outputs) == self._truth[number]

    def on_reference(self, number: int, outputs: Mapping[str, Array]) -> None:
        """Take what the whole model says of one distinct input."""
        self._compared = True
        if self._truth and top_class(outputs) == self._truth[number]:
            self._whole_right += len(range(number, len(self.inputs), len(self.inputs.items)))

    def accuracy(self) -> Accuracy | None:
        """Of the frames streamed, if the truth is known."""
        if not self._truth:
            return None
        frames = len(self.inputs)
        return Accuracy(
            self._right / frames, self._whole_right / frames if self._compared else None
        )
