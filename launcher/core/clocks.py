"""How another machine's steady clock stands to ours, from round trips on the control connection.

We ask at `sent_s`, it reads its clock at `there_s`, we have the answer at `back_s`. However long
either way took, it read its clock in between: that is ahead of ours by no less than there − back
and no more than there − sent. The middle is wrong by at most half the round trip, and one that is
hardly longer than the wire needs has little room for an error; so of each stretch of time only the
quickest is used, as NTP's clock filter does (RFC 5905, §10). Over a longer time a line through
those shows how fast the two drift apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
