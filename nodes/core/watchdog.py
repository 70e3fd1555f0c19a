"""Time limits for the engine: how long a firing and how long unloading may take.

A call into an engine that never returns must cost that firing and that engine, but not the agent. A
firing that takes far longer than its rehearsal has therefore failed, and the deployment is
unloaded, which interrupts the engine. If the engine does not return within some seconds, only the
end of its process can end it: the agent restarts.

A false alarm is worse than a late one, because boards are throttled, stopped, suspended, and share
their CPUs. The limits are therefore generous, and only time that the agent itself has been running
counts: it checks about once a second, and a jump of the clock between two checks adds at most
`MAX_STEP_S`.

Preparing, loading and rehearsing have no limit here, because they may take hours. The launcher
waits for them until its `deploy_timeout_s`, the agent as long as the lease lasts. When either is
over, unloading begins, which has a limit.
"""

from __future__ import annotations

from collections.abc import Iterable

CHECK_PERIOD_S = 1.0
"""The time between two checks while the engine is busy."""

MAX_STEP_S = 2.0
"""The most time that one check adds."""

FIRING_AT_LEAST_S, FIRING_TIMES = 20.0, 50.0
"""The limit of a firing: `FIRING_TIMES` times its rehearsal, and at least `FIRING_AT_LEAST_S`."""

UNLOADING_AT_LEAST_S, UNLOADING_TIMES = 10.0, 10.0
"""The limit of unloading: `UNLOADING_TIMES` times the rehearsal of the longest phase, because
engines can be interrupted only between two layers, and at least `UNLOADING_AT_LEAST_S`.
"""

UNLOADING_UNLOADED_S = 120.0
"""The limit of unloading if no subnet was loaded yet: the agent may be reading a large file of its
cache, which does not involve the engine and is not interrupted."""


def firing_limit_s(rehearsed_s: float) -> float:
    """Return how long a firing may take whose rehearsal took `rehearsed_s`."""
    return max(FIRING_AT_LEAST_S, FIRING_TIMES * rehearsed_s)


def unloading_limit_s(rehearsed_s: Iterable[float], *, is_loaded: bool) -> float:
    """Return how long unloading may take whose phases took `rehearsed_s` in the rehearsal.

    `is_loaded` says whether any subnet is loaded.
    """
    if not is_loaded:
        return UNLOADING_UNLOADED_S
    return max(UNLOADING_AT_LEAST_S, UNLOADING_TIMES * max(rehearsed_s, default=0.0))


class Watchdog:
    """Measures how long the engine has been at the same operation; None stands for no operation."""

    def __init__(self) -> None:
        self._watched: object = None
        self._spent_s = 0.0
        self._checked_s = 0.0

    def deadline_s(self, under_way: object) -> float | None:
        """Return when to check again; None if no operation is in progress."""
        return None if under_way is None else self._checked_s + CHECK_PERIOD_S

    def check(self, under_way: object, now_s: float) -> float:
        """Return the seconds for which earlier checks have found the same operation in progress."""
        if under_way == self._watched:
            self._spent_s += min(now_s - self._checked_s, MAX_STEP_S)
        else:
            self._watched, self._spent_s = under_way, 0.0
        self._checked_s = now_s
        return self._spent_s
