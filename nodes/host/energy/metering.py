"""Decides when a meter is read: while a deployment runs, and never otherwise.

A counter is read at the beginning and the end, and from time to time in between so that it does not
wrap around unseen. A power must be sampled. While messages and results come, the agent is awake
anyway, and samples follow each other by the meter's `period_s`. While nothing comes, each pause is
twice as long as the one before, up to `LONGEST_IDLE_S`. The first event after a pause brings a
sample, so the power of waiting is not taken for that of the work that begins then.
"""

from __future__ import annotations

import logging
import math

from nodes.core.events import Purpose
from nodes.host.energy.base import Meter, MeterError

LONGEST_IDLE_S = 3.2

CLOSEST_S = 0.1
"""Statistics that are asked for more often repeat the joules of before. Readings in quick
succession would betray what other programs on this machine compute (PLATYPUS, CVE-2020-8694)."""

log = logging.getLogger("node-agent")


class Metering:
    """Reads `meter` (None: nothing is measured) when its methods are called; `now_s` is the
    monotonic clock."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._period_s = math.inf if meter is None else meter.period_s
        self._is_on = False
        self._last_j = 0.0
        self._read_s = 0.0
        self._pause_s = 0.0
        self._was_busy = True

    @property
    def deadline_s(self) -> float | None:
        """When `turned` is due even if no event comes; None while nothing has to be read."""
        return self._read_s + self._pause_s if self._is_on else None

    def measured(self, purpose: Purpose, now_s: float) -> float | None:
        """Return the joules of the machine since some moment, which stays the same until "stop".

        "start" begins to count, and "stop" ends it. Returns None if the meter has not counted all
        the time since "start".
        """
        if purpose == "start":
            self._is_on = self._meter is not None
            self._last_j = 0.0
            self._was_busy = True
        if purpose == "stats" and self._is_on and now_s < self._read_s + CLOSEST_S:
            return self._last_j
        found = self._read(now_s)
        if purpose == "stop":
            self._is_on = False
        return found

    def turned(self, now_s: float, *, had_events: bool) -> None:
        """Read the meter if that is due; the agent's loop calls this whenever it has turned."""
        if not self._is_on:
            return
        self._was_busy |= had_events
        if now_s >= self._read_s + (self._period_s if had_events else self._pause_s):
            self._read(now_s)

    def close(self) -> None:
        """Release the sensor."""
        self._is_on = False
        if self._meter is not None:
            self._meter.close()

    def _read(self, now_s: float) -> float | None:
        if self._meter is None or not self._is_on:
            return None
        try:
            found = float(self._meter.read_j(now_s))
            if not self._last_j <= found < math.inf:
                raise MeterError(f"it reports {found} J after {self._last_j} J")
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises, the agent lives on
            log.warning("energy is no longer measured: %s: %s", self._meter.description, error)
            self._is_on = False
            return None
        self._last_j = found
        longer_s = max(self._period_s, min(2 * self._pause_s, LONGEST_IDLE_S))
        self._pause_s = self._period_s if self._was_busy else longer_s
        self._read_s = now_s
        self._was_busy = False
        return found
