"""Samples runs periodically, in a separate thread, and keeps the samples.

A sample makes the run's agents send their statistics, which costs a message to each and back.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from launcher.errors import reason
from launcher.logs import log_line
from launcher.threads import Repeated
from launcher.view.history import History, Sample, sample_of
from launcher.view.model import RunView

RECENT_S = 600.0
"""The age of the oldest samples."""

CLOSEST_S = 2.0
"""The shortest time between two samples, while somebody watches."""

UNSEEN_EVERY_S = 20.0
"""How often a server samples by itself, so that the page shows a history when it is opened."""

MOST_RECENT = round(RECENT_S / CLOSEST_S)

MOST_RUNS = 16
"""How many runs are remembered; a server opens a new one for each version of its models."""

SHORTEST_S, LONGEST_S = 0.25, 4.0
"""How often a whole run is sampled: often at first, since it may be a short one."""


def sampling(
    take: Callable[[], Sequence[RunView]],
    keep: Callable[[RunView], None],
    every_s: Callable[[], float],
) -> Repeated:
    """Take views and keep them while the context lasts, every `every_s()` seconds.

    A sample that fails is logged, once if the next ones fail the same way, and does not end the
    others.
    """
    last = ""

    def sample() -> None:
        nonlocal last
        try:
            for view in take():
                keep(view)
        except BaseException as error:  # noqa: BLE001 - the next sample may find what this could not
            failed = f"sampling the run failed: {type(error).__name__}: {reason(error)}"
            if failed != last:
                log_line(failed, "warning")
            last = failed

    return Repeated(sample, every_s, "sampler")


class RecentSamples:
    """The samples of the last minutes of several runs, by the runs' names; for several threads.

    They come from all viewers of a run: people who have the page open, and `sampling`, which is
    seldom.
    """

    def __init__(self) -> None:
        self._samples: dict[str, deque[Sample]] = {}
        self._lock = threading.Lock()

    def keep(self, view: RunView) -> None:
        """Add a view, unless the last one is hardly older; forget what is too old."""
        with self._lock:
            kept = self._samples.setdefault(view.run, deque(maxlen=MOST_RECENT))
            if kept and view.taken_s < kept[-1].at_s + CLOSEST_S:
                return
            kept.append(sample_of(view))
            while kept[0].at_s < view.taken_s - RECENT_S:
                kept.popleft()
            if len(self._samples) > MOST_RUNS:
                del self._samples[next(iter(self._samples))]

    def of(self, run: str) -> tuple[Sample, ...]:
        """Return a run's samples, the oldest first."""
        with self._lock:
            return tuple(self._samples.get(run, ()))


class WholeRun:
    """A run from its beginning to its end: its last view, and a history of bounded size.

    Views of a later run take the place of those of an earlier one.
    """

    def __init__(self) -> None:
        self.view: RunView | None = None
        self.history = History()

    def keep(self, view: RunView) -> None:
        """Add a view."""
        if self.view is not None and view.run != self.view.run:
            self.history = History()
        self.view = view
        self.history.add(sample_of(view))

    def every_s(self) -> float:
        """Return how long to wait until the next sample."""
        return min(LONGEST_S, SHORTEST_S * self.history.step)
