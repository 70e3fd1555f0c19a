"""Measures time by a clock that ignores the launcher's own stops, and compares agents' clocks.

**Own stops** (`PatientClock`). A launcher may be stopped by a signal or suspended with its machine.
If timeouts were measured by a clock that runs meanwhile, every deadline would have passed
afterwards, and all agents would seem lost. The time of the stop is therefore not counted: this
clock stands still from the last event before the stop to the first one after it. The launcher was
stopped if an event comes more than `LATE_S` after the deadline. For the agents time has passed:
their leases may be over and their connections closed, which the supervisor has to find out.

**Other machines' clocks** (`estimate`). A question is sent at `sent_s` by our monotonic clock, the
agent reads its own at `there_s`, and the answer arrives at `back_s`. The agent read its clock in
between, so it is ahead of ours by at least there − back and at most there − sent. The middle is
wrong by at most half the round trip, so the quickest round trips are the best. Only the quickest
one of each interval is used, as in NTP's clock filter (RFC 5905, §10). A line through these gives
the drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nextafter

LATE_S = 2.0
"""A launcher that is merely busy (slow consumer of results, busy processor) may be this late."""


class PatientClock:
    """A monotonic clock that stands still while the launcher is stopped."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        """The latest time of the next event, on this clock."""
        self._now_s: float | None = None
        self._away_s = 0.0

    def read(self, at_s: float) -> tuple[float, float]:
        """Return this clock's time when the system's shows `at_s`, and for how many seconds the
        launcher was stopped just before (0.0 if it was not)."""
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
        """Return the least time of the system's clock at which this one shows at least `now_s`."""
        at_s = now_s + self._away_s
        while at_s - self._away_s < now_s:  # rounded down
            at_s = nextafter(at_s, inf)
        return at_s


STRETCHES = 16
"""Into how many stretches a run is divided; of each, the quickest round trip is used."""

QUICK = 4.0
"""A stretch is left out if its quickest round trip takes more than this many times the quickest of
all, because the network was busy throughout."""

LEAST_DRIFT_SPAN_S = 10.0
"""Over a shorter span, drift is less than the error of a round trip."""

MOST_DRIFT = 500e-6
"""The largest drift of a sound quartz; a larger estimate is cut to it."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One question and its answer: seconds on our clock when it was sent and came back, and on the
    other clock when it was answered."""

    sent_s: float
    there_s: float
    back_s: float

    @property
    def took_s(self) -> float:
        """How long the round trip took."""
        return self.back_s - self.sent_s

    @property
    def ahead_s(self) -> float:
        """How far the other clock is ahead, with an error of at most half of `took_s`."""
        return self.there_s - (self.sent_s + self.back_s) / 2


@dataclass(frozen=True, slots=True)
class Clock:
    """Another clock, `ahead_s` of ours at its time `at_s`, that drifts by `drift` seconds a second.

    `error_s` bounds the error, provided that the drift is as estimated or negligible.
    """

    ahead_s: float = 0.0
    at_s: float = 0.0
    drift: float = 0.0
    error_s: float = 0.0

    def ours(self, there_s: float) -> float:
        """Convert a time of the other clock to ours."""
        return there_s - self.ahead_s - self.drift * (there_s - self.at_s)


def estimate(trips: Sequence[RoundTrip]) -> Clock:
    """Estimate the other clock from at least one round trip."""
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
    stands = len({trip.there_s for trip in quick}) == 1  # a clock that stands still has no drift
    if span_s < LEAST_DRIFT_SPAN_S or len(quick) < STRETCHES // 2 or stands:
        return Clock(best.ahead_s, best.there_s, 0.0, best.took_s / 2)
    return _line(quick, best)


def _line(trips: Sequence[RoundTrip], best: RoundTrip) -> Clock:
    """Fit a line by least squares; a trip's weight falls with the square of its duration."""
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
