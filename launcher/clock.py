"""Tells the time: Unix time for people and programs, a monotonic clock for decisions of streams."""

from __future__ import annotations

import threading
import time


def now_s() -> float:
    """Return seconds of Unix time, on which no decision may depend."""
    return time.time()


def as_local_time(unix_s: float) -> str:
    """Return Unix time as local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


class StreamClock:
    """The monotonic clock of the system; tests have another, on which waiting takes no time."""

    def now_s(self) -> float:
        """Return seconds since any fixed moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait that long, or until `event` is set; return whether it is."""
        return event.wait(seconds)
