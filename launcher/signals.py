"""Lets signals end a command: at once, with its cleanup, or in good order after the work in
progress.

Only the first SIGTERM or SIGHUP counts: `timeout` and many service managers send several, and later
ones would interrupt the cleanup, all of whose waits are bounded.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which users, service managers and terminals end a command."""


@dataclass
class StoppedBy:
    """The number of the signal that has stopped something; None if there was none."""

    number: int | None = None


@contextlib.contextmanager
def stopping_on_signals(
    stop: Callable[[], object],
    numbers: Sequence[signal.Signals] = ENDING,
    *,
    again: Callable[[], object] | None = None,
) -> Iterator[StoppedBy]:
    """Let the first signal call `stop`, which must be safe in a signal handler.

    After it Ctrl-C calls `again`, or does what it did before, and all others are ignored. Does
    nothing outside the main thread, and for signals that are ignored.
    """
    stopped = StoppedBy()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    former: dict[signal.Signals, Any] = {}

    def first(number: int, _: FrameType | None) -> None:
        for each in former:
            signal.signal(each, signal.SIG_IGN)
        if signal.SIGINT in former:
            interrupt = former[signal.SIGINT] if again is None else lambda *_: again()
            signal.signal(signal.SIGINT, interrupt)
        stopped.number = number
        stop()

    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, first)
    try:
        yield stopped
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP raise `SystemExit`, so that every `finally` block runs.

    Does nothing outside the main thread; if the context ends in another one, or if the program has
    set a handler since, handlers stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    present: Any = None

    def unwind(number: int, _: FrameType | None) -> None:
        nonlocal present
        present = signal.SIG_IGN
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    present = unwind
    ours: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            ours[number] = signal.signal(number, unwind)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, former in ours.items():
                if signal.getsignal(number) is present:
                    signal.signal(number, former)
