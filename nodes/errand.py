"""Calls that one thread asks for and another makes.

What a thread starts, threads and processes alike, begins where that thread is: in its control
group, on its CPUs. The executor thread may be the only one of its agent that a quota holds for, and
what prepares subnets is not what computes them. So the process that prepares is started from a
thread that the I/O thread has made, and the executor thread only says when.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import TypeAlias

from nodes.time_slice import ask_for_usual_slices

Call: TypeAlias = Callable[[], None]


class Errand:
    """`calls`, made once in order, in a thread that this one starts, when another says `run`."""

    def __init__(self, *calls: Call) -> None:
        self._calls = calls
        self._asked = Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._wait_and_call, name="errand", daemon=True)
        self._thread.start()

    def run(self) -> None:
        """Have it done and wait until it is; raises what a call raises."""
        self._asked.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _wait_and_call(self) -> None:
        ask_for_usual_slices()
        self._asked.wait()
        try:
            for call in self._calls:
                call()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self._error = error
