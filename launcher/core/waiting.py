"""Limits how long a run waits for lost nodes when too few are present to continue.

If a switch reboots or a power strip fails, all nodes are lost and return within seconds or minutes.
The run therefore waits, for at most `patience_s` in all without a new result; each new result
restores the whole of it. A service waits for its first nodes without a limit. Nodes seldom come
alone, so a plan is requested once no other node is expected, or `REGROUP_S` after the last one
arrived.
"""

from __future__ import annotations

from math import ceil, inf

from launcher.core.events import StageProgress
from launcher.core.watch import is_past
from launcher.quantities import duration

REGROUP_S = 2.0
"""From a node's return to the request of a plan without those that are still missing."""

REPORT_EVERY_S = 1.0
"""How often the user sees how long the run will wait."""


class Waiting:
    """The timers of a run that waits for nodes (`RunState.WAITING`) or may have to."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.waited_s = 0.0
        """How long the run has waited in all since the patience was restored."""
        self._since_s: float | None = None
        self._until_s = 0.0
        self._regroup_s: float | None = None
        self._report_s = 0.0
        self._for = ""

    @property
    def is_endless(self) -> bool:
        """Whether the patience has no limit."""
        return self.patience_s == inf

    @property
    def is_possible(self) -> bool:
        """Whether any patience is left."""
        return self.waited_s < self.patience_s

    def restore(self) -> None:
        """Restore the whole patience, because a new result has arrived."""
        self.waited_s = 0.0

    def begin(self, whom: str, most_s: float, now_s: float) -> None:
        """Begin to wait for `whom` (a clause for people), for at most `most_s`."""
        if self._since_s is None:
            self._since_s = self._report_s = now_s
        self._until_s = self._since_s + min(most_s, self.patience_s - self.waited_s)
        self._for, self._regroup_s = whom, None

    def end(self, now_s: float) -> None:
        """Stop waiting: the run continues, or ends. Has no effect if it does not wait."""
        if self._since_s is not None:
            self.waited_s += now_s - self._since_s
        self._since_s = self._regroup_s = None

    def left_s(self, now_s: float) -> float:
        """The longest time that the run still waits."""
        return max(0.0, self._until_s - now_s)

    def node_returned(self, now_s: float, *, is_last: bool) -> None:
        """Note that a node has returned; `is_last` says that no other is expected."""
        self._regroup_s = now_s if is_last else now_s + REGROUP_S

    def has_regrouped(self, now_s: float) -> bool:
        """Whether it is time to plan for the nodes that have returned."""
        return is_past(self._regroup_s, now_s)

    def has_expired(self, now_s: float) -> bool:
        """Whether the run has waited as long as it may."""
        return now_s >= self._until_s

    def reports(self, now_s: float) -> list[StageProgress]:
        """Return progress for people, once in `REPORT_EVERY_S`."""
        if self._since_s is None or now_s < self._report_s:
            return []
        self._report_s = now_s + REPORT_EVERY_S
        stage, passed_s = f"waiting for {self._for} (s)", int(now_s - self._since_s)
        if self._until_s == inf:
            return [StageProgress(stage, passed_s, None, "without a limit")]
        total_s = ceil(self._until_s - self._since_s)
        note = f"{duration(self.left_s(now_s))} left"
        return [StageProgress(stage, min(total_s, passed_s), total_s, note)]

    @property
    def deadline_s(self) -> float:
        """When to call `has_regrouped`, `has_expired` and `reports` next."""
        due_s = min(self._until_s, self._report_s)
        return due_s if self._regroup_s is None else min(due_s, self._regroup_s)
