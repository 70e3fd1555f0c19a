"""Planning while a run goes on: in a thread, so that heartbeats are heard meanwhile.

A plan that is asked for while another is searched makes that one pointless: its result, if it ever
comes, is dropped. A search cannot be broken off, but what remains of one ends with the process.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from launcher.errors import LauncherError, RunFailedError

Made = TypeVar("Made")


class Background(Generic[Made]):
    """Does one piece of work after another; `descriptor` can be read when one is done."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_open = True
        self._done: deque[tuple[int, Made | LauncherError]] = deque()

    def start(self, number: int, work: Callable[[], Made]) -> None:
        """Begin a piece of work; `number` tells it from the others."""

        def do() -> None:
            made: Made | LauncherError
            try:
                made = work()
            except LauncherError as error:
                made = error
            except Exception as error:  # noqa: BLE001 - it must be told, whatever it is
                made = RunFailedError(f"{type(error).__name__}: {error}")
            with self._lock:
                if self._is_open:
                    self._done.append((number, made))
                    os.eventfd_write(self.descriptor, 1)

        threading.Thread(target=do, name=f"planning {number}", daemon=True).start()

    def done(self) -> list[tuple[int, Made | LauncherError]]:
        """What was done since this was last asked: the numbers, and what was made or went wrong."""
        os.eventfd_read(self.descriptor)
        with self._lock:
            found = list(self._done)
            self._done.clear()
        return found

    def close(self) -> None:
        """What is still under way is forgotten."""
        with self._lock:
            self._is_open = False
            os.close(self.descriptor)
