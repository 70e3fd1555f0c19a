"""How another machine's steady clock stands to ours, from round trips on the control connection.

We ask at `sent_s`, it reads its clock at `there_s`, we have the answer at `back_s`. However long
either way took, it read its clock in between: that is ahead of ours by no less than there − back
and no more than there − sent. The middle is wrong by at most half the round trip, and one that is
hardly longer than the wire needs has little room for an error; so of each stretch of time only the
quickest is used, as NTP's clock filter does (RFC 5905, §10). Over a longer time a line through
those shows how fast the two drift apart.

A launcher that was itself away: stopped by a signal, or on a laptop whose lid was closed.

Whoever measures patience by a clock that went on meanwhile finds every deadline past when it wakes,
and blames all others for its own absence. So the time for which this launcher was away does not
count: the supervisor's clock stands still from the last event before to the first one after.
It was away if it is handed an event more than `LATE_S` after its deadline.

What passed for the agents is another matter: their leases may be over, their connections closed.
That is for the supervisor to ask them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


STRETCHES = 16
"""Of a run; of each the quickest round trip counts."""

QUICK = 4.0
"""Times the quickest of all: of a stretch that was busy throughout, even its quickest is not."""

LEAST_DRIFT_SPAN_S = 10.0
"""Before that, drift is less than what a round trip leaves open."""

MOST_DRIFT = 500e-6
"""Of a quartz that is in order; more is not believed."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Seconds: of our clock when we asked and heard, of the other when it answered."""

    sent_s: float
    there_s: float
    back_s: float

    @property
    def took_s(self) -> float:
        """All of it."""
        return self.back_s - self.sent_s

    @property
    def ahead_s(self) -> float:
        """How far the other clock is ahead, give or take half of what it took."""
        return self.there_s - (self.sent_s + self.back_s) / 2


@dataclass(frozen=True, slots=True)
class Clock:
    """Another clock: `ahead_s` of ours at `at_s` of its own, drifting by `drift` seconds a second.

    `error_s` bounds how wrong that is where drift was left out or estimated rightly.
    """

    ahead_s: float = 0.0
    at_s: float = 0.0
    drift: float = 0.0
    error_s: float = 0.0

    def ours(self, there_s: float) -> float:
        """A time of the other clock on ours."""
        return there_s - self.ahead_s - self.drift * (there_s - self.at_s)


def estimate(trips: Sequence[RoundTrip]) -> Clock:
    """Estimate the other clock from round trips, at least one."""
    first_s = min(trip.sent_s for trip in trips)
    span_s = max(trip.sent_s for trip in trips) - first_s
    quickest: dict[int, RoundTrip] = {}
    for trip in trips:
        stretch = int(STRETCHES * (trip.sent_s - first_s) / span_s) if span_s else 0
        known = quickest.get(stretch)
        if known is None or trip.took_s < known.took_s:
            quickest[stretch] = trip
    best = min(quickest.values(), key=lambda trip: trip.took_s)
    quick = [trip for trip in quickest.values() if trip.took_s <= QUICK * best.took_s]
    stands = len({trip.there_s for trip in quick}) == 1  # no clock: nothing drifts
    if span_s < LEAST_DRIFT_SPAN_S or len(quick) < STRETCHES // 2 or stands:
        return Clock(best.ahead_s, best.there_s, 0.0, best.took_s / 2)
    return _line(quick, best)


def _line(trips: Sequence[RoundTrip], best: RoundTrip) -> Clock:
    """Through all, by least squares, each with the weight of what its round trip leaves open."""
    least_s = max(best.took_s, 1e-6)
    weights = [(least_s / max(trip.took_s, least_s)) ** 2 for trip in trips]
    whole = sum(weights)
    at_s = sum(w * trip.there_s for w, trip in zip(weights, trips, strict=True)) / whole
    ahead_s = sum(w * trip.ahead_s for w, trip in zip(weights, trips, strict=True)) / whole
    pairs = [(trip.there_s - at_s, trip.ahead_s - ahead_s) for trip in trips]
    spread = sum(w * x * x for w, (x, _) in zip(weights, pairs, strict=True))
    drift = sum(w * x * y for w, (x, y) in zip(weights, pairs, strict=True)) / spread
    drift = max(-MOST_DRIFT, min(MOST_DRIFT, drift))
    return Clock(ahead_s, at_s, drift, max(trip.took_s for trip in trips) / 2)
