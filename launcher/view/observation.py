"""Lets other threads view a run while it streams.

A request wakes the run's thread, which alone knows the states of nodes and channels. That thread
asks the agents for their statistics, at most once per second, and publishes what it knows
(`RunSnapshot`) once they have answered or `ANSWER_S` have passed; the viewing thread waits for it.
Counts of frames are read at once, from the feeds. Nothing is asked or made while nobody views the
run.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from launcher.clock import now_s
from launcher.view.frames import FrameFigures, total
from launcher.view.model import EventView, RunSnapshot, RunView

ANSWER_S = 0.2
"""How long agents may take to send their statistics before the view is made without them."""

LOOK_S = 2 * ANSWER_S
"""How long a viewer waits for the run's thread, which may be in a call of the user's code."""

MOST_EVENTS = 100


@dataclass
class Observation:
    """Joins the threads that view a run and the run's thread, which keeps `descriptor` watched.

    `models` are the names of the networks, `versions` their versions; `figures` reads the counts of
    each one's frames, and `run` names the run.
    """

    run: str
    models: Sequence[str]
    figures: Sequence[Callable[[], FrameFigures]]
    versions: Sequence[str] = ()
    started_s: float = field(default_factory=now_s)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._parts = RunSnapshot()
        self._published = 0
        self._descriptor: int | None = None
        self._is_asked = False
        self._events: deque[EventView] = deque(maxlen=MOST_EVENTS)
        self._drops: list[Callable[[], int]] = []

    # ------------------------------------------------------------ any thread

    def view(self) -> RunView:
        """Return the present view of the run; waits for the run's thread, `LOOK_S` at most."""
        with self._changed:
            before = self._published
            if self._descriptor is not None:
                if not self._is_asked:
                    self._is_asked = True
                    os.eventfd_write(self._descriptor, 1)
                self._changed.wait_for(
                    lambda: self._published > before or self._descriptor is None, LOOK_S
                )
            parts, events = self._parts, tuple(self._events)
        frames = total(read() for read in self.figures)
        return RunView(
            **{each.name: getattr(parts, each.name) for each in fields(parts)},
            taken_s=now_s(),
            started_s=self.started_s,
            run=self.run,
            models=tuple(self.models),
            versions=tuple(self.versions),
            rate=frames.rate,
            frames_total=frames.results,
            dropped_total=sum(count() for count in self._drops),
            in_flight=frames.in_flight,
            latency=frames.latency,
            events=events,
        )

    def note(self, text: str, level: str = "info") -> None:
        """Keep an event; `level` is as in `EventView`."""
        event = EventView(now_s(), level, text)
        with self._changed:
            self._events.append(event)

    def count_drops(self, count: Callable[[], int]) -> None:
        """Add a function that counts frames that a source dropped before they were pushed."""
        self._drops.append(count)

    # ------------------------------------------------------------ the run's thread

    def begin(self, parts: RunSnapshot) -> int:
        """Begin to answer viewers; return a descriptor that is readable when one asks."""
        with self._changed:
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._parts = parts
            return self._descriptor

    def asked(self) -> None:
        """Accept requests for a view once `descriptor` is readable; `publish` follows."""
        with self._changed:
            if self._descriptor is not None:
                os.eventfd_read(self._descriptor)

    def publish(self, parts: RunSnapshot) -> None:
        """Answer all requests so far."""
        with self._changed:
            self._is_asked = False
            self._parts = parts
            self._published += 1
            self._changed.notify_all()

    def end(self, parts: RunSnapshot) -> None:
        """Answer all later requests with these last `parts`."""
        with self._changed:
            self._parts = parts
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
            self._changed.notify_all()
