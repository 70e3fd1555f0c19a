"""Planning while a run goes on: in a thread, so that heartbeats are heard meanwhile.

A plan that is asked for while another is searched makes that one pointless: the search can find
that out at any time, and its result, if one ever comes, is dropped.
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
    """Runs one piece of work after another; `descriptor` becomes readable when one is done."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_open = True
        self._done: deque[tuple[int, Made | LauncherError]] = deque()
        self._wanted: int | None = None

    def start(self, number: int, work: Callable[[IsWanted], Made]) -> None:
        """Begin a piece of work; any other, by its `number`, is not wanted any more.

        `work` gets a function by which it can ask, in its thread, whether it is still wanted.
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
            except Exception as error:  # noqa: BLE001 - the user must hear of it, whatever it is
                made = RunFailedError(f"{type(error).__name__}: {error}")
            with self._lock:
                if is_wanted():
                    self._done.append((number, made))
                    os.eventfd_write(self.descriptor, 1)

        threading.Thread(target=do, name=f"planning {number}", daemon=True).start()

    def done(self) -> list[tuple[int, Made | LauncherError]]:
        """Return what was done since the last call: numbers, with results or errors."""
        os.eventfd_read(self.descriptor)
        with self._lock:
            found = list(self._done)
            self._done.clear()
        return found

    def close(self) -> None:
        """Forget what is still under way."""
        with self._lock:
            self._is_open = False
            os.close(self.descriptor)
