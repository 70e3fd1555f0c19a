"""A launcher that was itself away: stopped by a signal, or on a laptop whose lid was closed.

Whoever measures patience by a clock that went on meanwhile finds every deadline past when it wakes,
and blames all others for its own absence. So the time for which this launcher was away does not
count: the supervisor's clock stands still from the last event before to the first one after.
It was away if it is handed an event more than `LATE_S` after its deadline.

What passed for the agents is another matter: their leases may be over, their connections closed.
That is for the supervisor to ask them.
"""

from __future__ import annotations

from math import inf, nextafter

LATE_S = 2.0
"""A busy launcher (a slow consumer of results, a full processor) may be so late by itself."""


class PatientClock:
    """The clock by which patience is measured; reads another one that never goes back."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        """When the next event is due at the latest, by this clock."""
        self._now_s: float | None = None
        self._away_s = 0.0

    def read(self, at_s: float) -> tuple[float, float]:
        """The time by this clock when the other one shows `at_s`, and for how long the launcher was
        away just before; 0 if it was not."""
        now_s, away_s = at_s - self._away_s, 0.0
        if self._now_s is not None and self.due_s is not None:
            late_s = now_s - max(self._now_s, self.due_s)
            if late_s > LATE_S:
                away_s = now_s - self._now_s
                now_s = self._now_s
                self._away_s += away_s
        self._now_s = now_s
        return now_s, away_s

    def at_s(self, now_s: float) -> float:
        """What the other clock shows when this one shows `now_s`, or as soon after as it can."""
        at_s = now_s + self._away_s
        while at_s - self._away_s < now_s:  # rounded down
            at_s = nextafter(at_s, inf)
        return at_s
