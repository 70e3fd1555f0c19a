"""Measures what a log lacks, group by group, until it is complete or time is up."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.table3.group import measure
from benchmarks.table3.log import Log
from benchmarks.table3.order import groups_of, guess_s
from benchmarks.table3.turn import Boards, Cell, Refused, Turn
from launcher.errors import LauncherError
from launcher.progress import ProgressDisplay


def fill(
    log: Log,
    cells: Sequence[Cell],
    boards: Boards,
    progress: ProgressDisplay,
    *,
    repetitions: int,
    seconds: float,
    seed: int,
    minutes: float | None = None,
) -> bool:
    """Measure what is missing; False if `minutes` ended before all was measured.

    A group whose laboratory fails as a whole is reported and skipped. Raises `LauncherError` if
    every group failed.
    """
    groups = groups_of(log.missing(cells, boards, repetitions), seed)
    guess = guess_s(groups, boards, seconds)
    turns = sum(map(len, groups))
    clock = Clock(guess, turns)
    progress.say(
        f"{turns} turns in {len(groups)} laboratories are missing: about {duration(guess)}"
    )
    failed: list[LauncherError] = []
    for group in groups:
        if _is_over(clock, minutes):
            return False
        measured = measure(group, boards, seconds, progress)
        try:
            for turn in measured:
                log.add(turn)
                clock.done()
                progress.say(f"{line(turn)}; about {duration(clock.left_s)} left")
                if _is_over(clock, minutes):
                    measured.close()
                    return False
        except LauncherError as error:
            failed.append(error)
            progress.say(f"{name(group[0])} and what else is to run there: {error}")
    if failed and len(failed) == len(groups):
        raise failed[0]
    return not failed


def _is_over(clock: Clock, minutes: float | None) -> bool:
    """Whether one more turn would end too late."""
    return minutes is not None and clock.spent_s + clock.turn_s > minutes * 60


def name(cell: Cell) -> str:
    """A cell in a line."""
    return f"{cell.network} on {cell.devices}, {cell.how}"


def line(turn: Turn | Refused) -> str:
    """A turn as soon as it is done."""
    if isinstance(turn, Refused):
        return f"{name(turn.cell)}: {turn.refused}"
    before, after = turn.replicas
    return (
        f"{name(turn.cell)}: {turn.rate:.2f} frames/s; replicas before and after {before:.2f}, "
        f"{after:.2f}: {turn.efficiency:.3f}"
    )


def duration(seconds: float) -> str:
    """About, in minutes or hours."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


class Clock:
    """How long a table still takes: first by a guess, then by the turns that were done."""

    def __init__(self, guess_s: float, turns: int) -> None:
        self._began_s = time.monotonic()
        self._guess_s, self._turns, self._done = guess_s, turns, 0

    def done(self) -> None:
        """One more turn."""
        self._done += 1

    @property
    def spent_s(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began_s

    @property
    def turn_s(self) -> float:
        """One turn, its share of what a group takes included."""
        return self.spent_s / self._done if self._done else self._guess_s / max(1, self._turns)

    @property
    def left_s(self) -> float:
        """Until all is done."""
        return (self._turns - self._done) * self.turn_s
