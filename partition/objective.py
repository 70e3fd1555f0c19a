"""The objectives of a search; light to import, because commands name them in their help."""

from typing import Literal, TypeAlias

Objective: TypeAlias = Literal["both", "paper", "period", "memory", "latency", "energy"]
"""Seconds per frame and the fullest device's bytes together, the same with bytes by Eq. 2 of Tang
and Stefanov (2021), seconds per frame, the fullest device's bytes, seconds from a frame to its
result, or joules per frame.

`both` and `paper` take, of all plans whose period is within a tolerance of the shortest found, the
one whose fullest device holds least (`Problem.within`). For them, strategies that minimise one cost
alone minimise the period."""

DEFAULT_OBJECTIVE: Objective = "both"

WITHIN_PERIOD: frozenset[Objective] = frozenset({"both", "paper"})
"""The objectives that take the least memory within a tolerance of the shortest period."""

PERIOD_FIRST: frozenset[Objective] = WITHIN_PERIOD | {"period"}
"""The objectives for which a strategy that minimises one cost alone minimises the period."""

WITHIN = 0.1
"""By how much the period of a plan for such an objective may exceed the shortest (relative)."""
