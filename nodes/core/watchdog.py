"""Patience with the engine: how long a firing may run, and how long unloading may take.

A call into an engine that never returns must cost that firing and that engine, never the agent. So
a firing that takes far longer than its rehearsal has failed, and what is deployed is unloaded, by
which the run under way is interrupted. An engine that is not back some seconds later cannot be
ended by anything but the end of its process: the agent starts anew.

A false alarm is worse than a late one: boards are throttled, stopped, suspended, and share their
CPUs. So the limits are generous, and time counts only as the agent itself has seen it pass, in
looks about a second apart: a jump of the clock between two of them counts as one late look.

Preparing, loading and rehearsing have no limit here. They may take minutes or hours, and whoever
asked for them waits: the launcher until its `deploy_timeout_s`, the agent for as long as the lease.
Either then ends in unloading, which has one.
"""

from __future__ import annotations

from collections.abc import Iterable

LOOK_EVERY_S = 1.0
"""From one look to the next, while there is something to look at."""

LONGEST_STEP_S = 2.0
"""What a look adds at most."""

FIRING_AT_LEAST_S, FIRING_TIMES = 20.0, 50.0
"""A firing may take so many times as long as it did in the rehearsal, and `FIRING_AT_LEAST_S`."""

UNLOADING_AT_LEAST_S, UNLOADING_TIMES = 10.0, 10.0
"""So may unloading, beside the longest phase: engines interrupt a run between two layers only."""


UNLOADING_UNLOADED_S = 120.0
"""For unloading where no subnet was loaded yet: the agent may be reading a large file of its cache,
which is no affair of the engine's and is not interrupted."""


def firing_limit_s(rehearsed_s: float) -> float:
    """How long a firing may take whose rehearsal took `rehearsed_s`."""
    return max(FIRING_AT_LEAST_S, FIRING_TIMES * rehearsed_s)


def unloading_limit_s(rehearsed_s: Iterable[float], *, is_loaded: bool) -> float:
    """How long unloading may take if phases took `rehearsed_s`, where any subnet `is_loaded`."""
    if not is_loaded:
        return UNLOADING_UNLOADED_S
    return max(UNLOADING_AT_LEAST_S, UNLOADING_TIMES * max(rehearsed_s, default=0.0))


class Watchdog:
    """Counts for how long the same thing has been under way; None stands for nothing."""

    def __init__(self) -> None:
        self._watched: object = None
        self._spent_s = 0.0
        self._looked_s = 0.0

    def deadline_s(self, under_way: object) -> float | None:
        """When to look again."""
        return None if under_way is None else self._looked_s + LOOK_EVERY_S

    def look(self, under_way: object, now_s: float) -> float:
        """For how many seconds this has been under way, as far as earlier looks have seen it."""
        if under_way == self._watched:
            self._spent_s += min(now_s - self._looked_s, LONGEST_STEP_S)
        else:
            self._watched, self._spent_s = under_way, 0.0
        self._looked_s = now_s
        return self._spent_s
