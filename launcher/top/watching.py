"""Decides what `launch top` shows, without I/O: views and keys go in, a screen comes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from launcher.top.screen import Screen, Style, screen
from launcher.view.model import LatencyView, RunView
from launcher.view.shown import shown

RECENT = 60
"""The number of views over which latencies are shown."""


@dataclass(frozen=True, slots=True)
class Viewed:
    """The server has answered."""

    views: tuple[RunView, ...]


@dataclass(frozen=True, slots=True)
class NotAnswered:
    """The server has not answered, for the reason in this sentence."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key: its letter, or its name: `up`, `page down`, `home`, `left`, …"""

    name: str


Event: TypeAlias = Viewed | NotAnswered | Key

STEPS: Mapping[str, int] = {"j": 1, "down": 1, "k": -1, "up": -1}
"""By how many lines a key scrolls."""

PAGES: Mapping[str, int] = {"page down": 1, " ": 1, "page up": -1, "b": -1}

RUNS: Mapping[str, int] = {"right": 1, "\t": 1, "n": 1, "left": -1, "p": -1}
"""Which run a key goes to from the present one."""

FAR = 1_000_000


@dataclass(frozen=True)
class Watching:
    """The state of the display: the last views, the latencies before them, and the selection."""

    url: str
    views: tuple[RunView, ...] | None = None
    problem: str = ""
    earlier: Mapping[str, tuple[LatencyView, ...]] = field(default_factory=dict)
    """By the run's name, the latencies of its last `RECENT` views, oldest first."""
    number: int = 0
    """Which of the runs is shown."""
    first_line: int = 0
    """The first line of those that scroll."""
    has_ended: bool = False

    def handle(self, event: Event, page_lines: int) -> Watching:
        """Return what is watched after an event; `page_lines` lines can be seen at a time."""
        match event:
            case Viewed(views):
                number = min(self.number, max(0, len(views) - 1))
                earlier = {
                    view.run: (*self.earlier.get(view.run, ()), view.latency)[-RECENT:]
                    for view in views
                }
                return replace(self, views=views, problem="", earlier=earlier, number=number)
            case NotAnswered(sentence):
                return replace(self, problem=sentence)
            case Key("q"):
                return replace(self, has_ended=True)
            case Key(name) if name in RUNS and self.views:
                number = (self.number + RUNS[name]) % len(self.views)
                return replace(self, number=number, first_line=0)
            case Key(name):
                return self._scrolled(name, page_lines)

    def _scrolled(self, name: str, page_lines: int) -> Watching:
        places = {"home": 0, "g": 0, "end": FAR, "G": FAR}
        by = STEPS.get(name, 0) + PAGES.get(name, 0) * max(1, page_lines - 1)
        return replace(self, first_line=max(0, places.get(name, self.first_line + by)))

    def shows(self, width: int, height: int, style: Style) -> Screen:
        """Return the screen of this size."""
        run = None
        if self.views:
            view = self.views[self.number]
            earlier = self.earlier.get(view.run, ())
            run = shown(view, earlier[0] if len(earlier) > 1 else None)
        place = (self.number + 1, len(self.views or ()))
        waits = self.views is None
        return screen(
            run, place, self.url, self.problem, width, height, self.first_line, style, waits=waits
        )

    def settled(self, first_line: int) -> Watching:
        """Return this with the line to which the screen could scroll."""
        return replace(self, first_line=first_line)
