"""Holds back signals while an exception would leave a study in disorder."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGHUP


class HeldSignals:
    """Calls the handlers of `SIGNALS` only within `free`, and at the end of the context.

    Handlers in Python raise `KeyboardInterrupt` or `SystemExit` wherever the program is. Optuna
    does not survive that while it writes: it hides the exception behind an `UnboundLocalError`,
    leaves a trial running of which the sampler does not know yet, or never stops its heartbeat's
    thread, for which the process then waits at its end. Only the main thread gets
    signals; in others this does nothing.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._waiting: list[int] = []
        self._is_free = False

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        while self._waiting:
            signal.raise_signal(self._waiting.pop())

    @contextmanager
    def free(self) -> Iterator[None]:
        """Call handlers at once while the context lasts, those of signals that wait first."""
        self._is_free = True
        try:
            while self._waiting:
                self._receive(self._waiting.pop(), None)
            yield
        finally:
            self._is_free = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._is_free:
            self._handlers[number](number, frame)
        else:
            self._waiting.append(number)
