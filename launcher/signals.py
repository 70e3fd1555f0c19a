"""SIGTERM and SIGHUP end a command as Ctrl-C does: with what it has to clear up, and a sentence."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `SystemExit`, so that every `finally` on the way runs.

    The first one does. Those that follow, as `timeout` and many service managers send them, would
    cut off what has to be cleared up, and are ignored; nothing there waits without a bound.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unwind(number: int, _: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    ours: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            ours[number] = signal.signal(number, unwind)
    try:
        yield
    finally:
        for number, former in ours.items():
            signal.signal(number, former)
