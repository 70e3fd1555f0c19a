"""Measures what a log lacks, cell by cell, until it is complete or time is up."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.boards.bench import Bench, LocalBench, opened
from benchmarks.boards.cells import LOCAL, SETTINGS, Cell, Kind, usual_kinds
from benchmarks.boards.figures import row
from benchmarks.boards.turn import Refused, Turn
from benchmarks.turn_log import TurnLog
from launcher.errors import LauncherError
from launcher.progress import ProgressDisplay

BOARDS = 4
"""A launch streams at least the frames for this number of boards."""


@dataclass(frozen=True)
class Extent:
    """How much is measured: rounds, frames of a launch for each board, and seconds of the replicas
    around it."""

    rounds: int
    frames_per_board: int
    seconds: float
    quick: bool

    def frames(self, cell: Cell) -> int:
        """The frames of a launch."""
        setting = SETTINGS[cell.setting]
        return self.frames_per_board * max(BOARDS, len(setting.cores) if setting else 0)


def fill(
    log: TurnLog[Turn | Refused],
    cells: Sequence[Cell],
    kinds: Sequence[Kind] | None,
    extent: Extent,
    link: float,
    shelves: Path,
    until_s: float,
    progress: ProgressDisplay,
) -> bool:
    """Measure what the log lacks of these kinds (None: the usual ones), on boards with links of
    `link` bytes per second; False if the time was over before all was measured.

    Profiles are kept in `shelves`. A cell whose laboratory fails is reported and left out.
    """
    for cell in cells:
        missing = list(lacking(log, cell, kinds, extent))
        if not missing:
            continue
        if time.monotonic() > until_s:
            return False
        shelf = shelves / f"{cell.setting}-{cell.network}"
        try:
            with (
                tempfile.TemporaryDirectory(prefix="boards-") as place,
                opened(cell, Path(place), shelf, link, extent.seconds) as bench,
            ):
                for kind in missing:
                    if time.monotonic() > until_s:
                        return False
                    log.add(_turn(bench, cell, kind, extent, progress))
        except LauncherError as error:
            progress.say(f"{cell}: {error}")
    return True


def lacking(
    log: TurnLog[Turn | Refused], cell: Cell, kinds: Sequence[Kind] | None, extent: Extent
) -> Iterator[Kind]:
    """Return the launches that a cell lacks, round by round.

    A second launch follows a first one at once. Launches that were refused are not repeated.
    """
    wanted = chosen(cell, extent.quick) if kinds is None else kinds
    own = [turn for turn in log.turns if turn.cell == cell and turn.quick == extent.quick]
    done = Counter(turn.kind for turn in own)
    refused = {turn.kind for turn in own if isinstance(turn, Refused)}
    for number in range(extent.rounds):
        due = [kind for kind in wanted if done[kind] <= number and kind not in refused]
        for kind in due:
            if kind.knowledge == "second":
                yield Kind("first", kind.strategy)
            if kind.knowledge != "first" or Kind("second", kind.strategy) not in due:
                yield kind


def chosen(cell: Cell, quick: bool) -> tuple[Kind, ...]:
    """Return the kinds of launches of a cell; quick ones take no profile."""
    usual = usual_kinds(cell.setting)
    if not quick or cell.setting == LOCAL:
        return usual
    unprofiled = tuple(kind for kind in usual if kind.knowledge != "profiled")
    return (*unprofiled, Kind("described"))


def _turn(
    bench: Bench | LocalBench, cell: Cell, kind: Kind, extent: Extent, progress: ProgressDisplay
) -> Turn | Refused:
    began_s = time.monotonic()
    progress.say(f"{cell}: {kind}")
    try:
        turn = bench.turn(kind, extent.frames(cell), extent.quick)
    except LauncherError as error:
        progress.say(f"{cell}, {kind}: {error}")
        return Refused(cell, kind, extent.quick, str(error))
    progress.say(f"{', '.join(row(turn))}; took {time.monotonic() - began_s:.0f} s")
    return turn
