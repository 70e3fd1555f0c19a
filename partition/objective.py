"""The objectives of a search; light to import, because commands name them in their help."""

from typing import Literal, TypeAlias

Objective: TypeAlias = Literal["both", "period", "memory", "latency", "energy"]
"""Seconds per frame and the fullest device's bytes together, seconds per frame, the fullest
device's bytes, seconds from a frame to its result, or joules per frame.

`both` takes, of all plans whose period is within a tolerance of the shortest found, the one whose
fullest device holds least (`Problem.within`). For `both`, strategies that minimise one cost alone
minimise the period."""

DEFAULT_OBJECTIVE: Objective = "both"

PERIOD_FIRST: frozenset[Objective] = frozenset({"both", "period"})
"""The objectives for which a strategy that minimises one cost alone minimises the period."""

WITHIN = 0.1
"""By how much the period of a plan for the objective `both` may exceed the shortest (relative)."""
