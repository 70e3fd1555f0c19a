"""The clock of a stream; tests have one of their own, on which waiting takes no time."""

from __future__ import annotations

import threading
import time


class StreamClock:
    """The monotonic clock of the system."""

    def now_s(self) -> float:
        """Return seconds since any fixed moment."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait that long, or until `event` is set; return whether it is."""
        return event.wait(seconds)
