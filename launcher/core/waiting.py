"""Patience with a cluster on which the run cannot go on for now, because too few nodes are there.

A switch reboots, somebody trips over a power strip: all nodes are gone and come back within seconds
or minutes. So the run waits, but not for ever: `patience_s` in all without a new result. Each new
result restores the whole of it.

Who comes back is seldom alone. A plan is asked for once nobody else is expected, or `REGROUP_S`
after the last one that came.
"""

from __future__ import annotations

from math import ceil

from launcher.core.events import StageProgress
from launcher.core.watch import is_past

REGROUP_S = 2.0
"""From the return of one node until a plan is asked for without those that are still missing."""

TELL_EVERY_S = 1.0


class Waiting:
    """The patience of a run that waits for nodes."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.waited_s = 0.0
        """In all, since the patience was restored."""
        self._since_s: float | None = None
        self._until_s = 0.0
        self._regroup_s: float | None = None
        self._tell_s = 0.0
        self._for = ""

    @property
    def is_on(self) -> bool:
        """Whether the run waits now."""
        return self._since_s is not None

    @property
    def is_possible(self) -> bool:
        """Whether any patience is left."""
        return self.waited_s < self.patience_s

    def restore(self) -> None:
        """There is a new result."""
        self.waited_s = 0.0

    def begin(self, whom: str, most_s: float, now_s: float) -> None:
        """Wait for `whom`, for `most_s` at most."""
        if self._since_s is None:
            self._since_s = self._tell_s = now_s
        self._until_s = self._since_s + min(most_s, self.patience_s - self.waited_s)
        self._for, self._regroup_s = whom, None

    def end(self, now_s: float) -> None:
        """The run goes on, or ends."""
        if self._since_s is not None:
            self.waited_s += now_s - self._since_s
        self._since_s = self._regroup_s = None

    def left_s(self, now_s: float) -> float:
        """How much longer it waits at most."""
        return max(0.0, self._until_s - now_s)

    def came_back(self, now_s: float, *, is_last: bool) -> None:
        """A node is there again; `is_last` says that nobody else is expected."""
        if self.is_on:
            self._regroup_s = now_s if is_last else now_s + REGROUP_S

    def has_regrouped(self, now_s: float) -> bool:
        """Whether it is time to plan with those who came back."""
        return self.is_on and is_past(self._regroup_s, now_s)

    def is_over(self, now_s: float) -> bool:
        """Whether the patience is at its end."""
        return self.is_on and now_s >= self._until_s

    def reports(self, now_s: float) -> list[StageProgress]:
        """Progress for people, once a second."""
        if self._since_s is None or now_s < self._tell_s:
            return []
        self._tell_s = now_s + TELL_EVERY_S
        total_s = ceil(self._until_s - self._since_s)
        passed_s = min(total_s, int(now_s - self._since_s))
        note = f"{duration(self.left_s(now_s))} left"
        return [StageProgress(f"waiting for {self._for} to come back (s)", passed_s, total_s, note)]

    @property
    def deadline_s(self) -> float | None:
        """When there is something to do next."""
        if not self.is_on:
            return None
        due_s = min(self._until_s, self._tell_s)
        return due_s if self._regroup_s is None else min(due_s, self._regroup_s)


def duration(seconds: float) -> str:
    """For people: `2 min 40 s`."""
    minutes, rest = divmod(ceil(seconds - 0.001), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
