"""Measures what a log lacks, group by group, until it is complete or time is up."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.table3.clock import Clock
from benchmarks.table3.group import measure
from benchmarks.table3.log import Log
from benchmarks.table3.order import groups_of, guess_s
from benchmarks.table3.turn import Boards, Cell
from benchmarks.table3.words import duration, line, name
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
