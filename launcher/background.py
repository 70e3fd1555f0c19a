"""Planning while a run goes on: in a thread, so that heartbeats are heard meanwhile.

A plan that is asked for while another is searched makes that one pointless: the search is told so
whenever it asks, and its result, if one ever comes, is dropped.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from launcher.errors import LauncherError, RunFailedError

Made = TypeVar("Made")

IsWanted = Callable[[], bool]
"""Whether what is being done is still of use."""


class Background(Generic[Made]):
    """Does one piece of work after another; `descriptor` can be read when one is done."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_open = True
        self._done: deque[tuple[int, Made | LauncherError]] = deque()
        self._wanted: int | None = None

    def start(self, number: int, work: Callable[[IsWanted], Made]) -> None:
        """Begin a piece of work; `number` tells it from the others, which nobody wants any more.

        `work` is given what tells it, in its thread and at any time, whether it is still wanted.
        """
        self._wanted = number

        def is_wanted() -> bool:
            return self._is_open and self._wanted == number

        def do() -> None:
            made: Made | LauncherError
            try:
                made = work(is_wanted)
            except LauncherError as error:
                made = error
            except Exception as error:  # noqa: BLE001 - it must be told, whatever it is
                made = RunFailedError(f"{type(error).__name__}: {error}")
            with self._lock:
                if is_wanted():
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
