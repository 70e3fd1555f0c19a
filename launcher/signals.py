"""Lets SIGTERM and SIGHUP end a command as Ctrl-C does: it cleans up and prints a sentence."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def unwinding_on_signals() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP raise `SystemExit`, so that every `finally` block runs.

    Later ones, which `timeout` and many service managers send, are ignored: they would interrupt
    the cleanup, none of which waits without a bound. Does nothing outside the main thread; if the
    context ends in another one, or if the program has set a handler since, handlers stay as they
    are.
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
