"""Runs planning in a thread, so that the launcher can answer heartbeats meanwhile.

A new request makes an earlier one obsolete: its search can find that out at any time, and its
result is dropped.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from launcher.errors import LauncherError, RunFailedError
from launcher.threads import in_thread

Made = TypeVar("Made")

IsWanted = Callable[[], bool]
"""Whether the result of the work in progress is still needed."""


class Background(Generic[Made]):
    """Runs pieces of work in threads; `descriptor` becomes readable when one is done."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_open = True
        self._done: deque[tuple[int, Made | LauncherError]] = deque()
        self._wanted: int | None = None

    def start(self, number: int, work: Callable[[IsWanted], Made]) -> None:
        """Start a piece of work, whose result is returned with `number`; earlier ones are obsolete.

        `work` gets a function that says, in its thread, whether its result is still needed.
        """
        self._wanted = number

        def is_wanted() -> bool:
            return self._is_open and self._wanted == number

        def keep(done: Future[Made]) -> None:
            error = done.exception()
            if error is not None and not isinstance(error, LauncherError):
                error = RunFailedError(f"{type(error).__name__}: {error}")
            with self._lock:
                if is_wanted():
                    self._done.append((number, done.result() if error is None else error))
                    os.eventfd_write(self.descriptor, 1)

        in_thread(lambda: work(is_wanted), f"planning {number}").add_done_callback(keep)

    def done(self) -> list[tuple[int, Made | LauncherError]]:
        """Return the numbers, and the results or errors, of work done since the last call."""
        os.eventfd_read(self.descriptor)
        with self._lock:
            found = list(self._done)
            self._done.clear()
        return found

    def close(self) -> None:
        """Drop work that is still in progress."""
        with self._lock:
            self._is_open = False
            os.close(self.descriptor)
