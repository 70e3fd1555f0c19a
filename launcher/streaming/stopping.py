"""Lets the first Ctrl-C, SIGTERM or SIGHUP stop a stream in good order, and the second end it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class StoppedBy:
    """The number of the signal that has stopped a stream; None if there was none."""

    number: int | None = None


@contextlib.contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[StoppedBy]:
    """Let the first signal call `stop`, which must be safe in a signal handler.

    After it the signals do what they did before. Does nothing outside the main thread, and for
    signals that are ignored.
    """
    stopped = StoppedBy()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    former: dict[signal.Signals, Any] = {}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    def first(number: int, _: FrameType | None) -> None:
        restore()
        stopped.number = number
        stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, first)
    try:
        yield stopped
    finally:
        restore()
