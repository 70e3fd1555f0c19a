"""Frames that are all available when a run begins, pushed into it as a program pushes them."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.errors import BadInputError
from launcher.run.runtime import Frame, Frames, OnResult
from launcher.view.frame_trace import FrameTrace
from nodes.protocol.payload import Array


class FrameList:
    """A sequence of frames as `launcher.run.runtime.PushedFrames`; one is read when it is sent.

    `on_result` is called with their results.
    """

    inputs = ()
    descriptor = None
    deadline_s = None

    def __init__(self, frames: Frames, on_result: OnResult) -> None:
        self._frames = frames
        self._on_result = on_result
        self.count = len(frames)

    def hold(self, frames: int) -> None:
        """Do nothing: frames are not kept."""

    def seen(self) -> tuple[int, bool]:
        """See `PushedFrames.seen`: all are pushed, and no more come."""
        return self.count, True

    def claim(self, _index: int) -> bool:
        """See `PushedFrames.claim`: every frame is to be computed."""
        return True

    def __getitem__(self, index: int) -> Frame:
        return self._frames[index]

    def traces(self, _index: int) -> tuple[FrameTrace, ...]:
        """Return nothing: no frame is traced."""
        return ()

    def took(self, index: int, outputs: Mapping[str, Array]) -> None:
        """See `PushedFrames.took`."""
        self._on_result(index, outputs)


def listed(frames: Frames, on_result: OnResult) -> tuple[FrameList, ...]:
    """Return `frames` for a run of one stream; raises `BadInputError` if there are none."""
    if not len(frames):
        raise BadInputError("there is no frame to run")
    return (FrameList(frames, on_result),)
