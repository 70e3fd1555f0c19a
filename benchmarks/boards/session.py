"""Measures what a log lacks, cell by cell, until it is complete or time is up."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.boards.bench import Bench, opened
from benchmarks.boards.cells import LOCAL, Cell, Kind, usual_kinds
from benchmarks.boards.figures import row
from benchmarks.boards.turn import Refused, Turn, from_json
from benchmarks.lab import machine
from benchmarks.report import Table, show
from benchmarks.turn_log import TurnLog, origin
from benchmarks.undisturbed import undisturbed
from launcher.errors import EXIT_BAD_INPUT, LauncherError
from launcher.progress import ProgressDisplay, open_progress

BOARDS = 4
"""A launch streams at least the frames for this number of boards."""

SEARCHING = 4
"""How many times as many frames a launch streams that corrects its plan and searches for a better
one while frames stream: a change of the plan must pay on the frames that are left."""


@dataclass(frozen=True)
class Extent:
    """How much is measured: rounds, frames of a launch for each board, and seconds of the replicas
    around it. `link` is in bytes per second; `keys` are further ones of every `cluster.yaml`."""

    rounds: int
    frames_per_board: int
    seconds: float
    quick: bool
    link: float = 125e6
    keys: Mapping[str, Any] = field(default_factory=dict)

    def frames(self, cell: Cell, kind: Kind) -> int:
        """The frames of a launch."""
        boards = cell.boards
        searches = kind.knowledge in ("first", "second") and boards is not None and not self.quick
        count = max(BOARDS, len(boards.cores) if boards else 0)
        return self.frames_per_board * count * (SEARCHING if searches else 1)


Kinds = Mapping[Cell, Sequence[Kind]]
"""The launches of each cell."""


@dataclass(frozen=True)
class Measured:
    """What a log has of some launches, whether that is all, and how others were kept away."""

    turns: Sequence[Turn]
    refused: Sequence[Refused]
    is_complete: bool
    how: str

    @property
    def notes(self) -> list[str]:
        """A sentence if something is missing."""
        return [] if self.is_complete else ["Not all was measured yet: --resume continues."]

    @property
    def tables(self) -> list[Table]:
        """The launches that failed, if any."""
        rows = tuple((str(one.cell), str(one.kind), one.refused) for one in self.refused)
        return [Table("Launches that failed", ("cell", "launch", "why"), rows)] if rows else []


def measure(
    name: str,
    options: argparse.Namespace,
    wanted: Callable[[], Kinds],
    extent: Extent,
    as_report: Callable[[Measured], dict[str, Any]],
) -> int:
    """Measure what is missing of `wanted`, and print all that is known; return the exit code."""
    ort.set_default_logger_severity(4)
    until_s = time.monotonic() + 60 * options.minutes
    made_by = {**origin(), "link": extent.link, "keys": dict(extent.keys)}
    try:
        kinds = wanted()
        machine.require()
        log = TurnLog[Turn | Refused](options.log, made_by, from_json, resume=options.resume)
        shelves = options.log.absolute().with_suffix("")
        with undisturbed() as how, open_progress() as progress:
            is_complete = fill(log, kinds, extent, shelves, until_s, progress)
    except LauncherError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return error.exit_code
    own = [one for one in log.turns if one.quick == extent.quick and one.cell in kinds]
    turns = [one for one in own if isinstance(one, Turn)]
    refused = [one for one in own if isinstance(one, Refused)]
    if not turns:
        print(f"{name}: nothing was measured", file=sys.stderr)
        return EXIT_BAD_INPUT
    data = as_report(Measured(turns, refused, is_complete, how))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", "utf-8")
    show(data, as_json=options.json)
    return 0


def fill(
    log: TurnLog[Turn | Refused],
    kinds: Kinds,
    extent: Extent,
    shelves: Path,
    until_s: float,
    progress: ProgressDisplay,
) -> bool:
    """Measure what the log lacks; False if the time was over before all was measured.

    Profiles are kept in `shelves`. A cell whose laboratory fails is reported and left out.
    """
    for cell, wanted in kinds.items():
        missing = list(lacking(log, cell, wanted, extent))
        if not missing:
            continue
        if time.monotonic() > until_s:
            return False
        shelf = shelves / f"{cell.setting}-{Path(cell.network).stem}"
        try:
            with (
                tempfile.TemporaryDirectory(prefix="boards-") as place,
                opened(cell, extent.keys, Path(place), shelf, extent.link, extent.seconds) as bench,
            ):
                for kind in missing:
                    if time.monotonic() > until_s:
                        return False
                    log.add(_turn(bench, cell, kind, extent, progress))
        except LauncherError as error:
            progress.say(f"{cell}: {error}")
    return True


def lacking(
    log: TurnLog[Turn | Refused], cell: Cell, kinds: Sequence[Kind], extent: Extent
) -> Iterator[Kind]:
    """Return the launches that a cell lacks, round by round.

    A second launch follows a first one at once. Launches that were refused are not repeated.
    """
    own = [turn for turn in log.turns if turn.cell == cell and turn.quick == extent.quick]
    done = Counter(turn.kind for turn in own)
    refused = {turn.kind for turn in own if isinstance(turn, Refused)}
    for number in range(extent.rounds):
        due = [kind for kind in kinds if done[kind] <= number and kind not in refused]
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
    bench: Bench, cell: Cell, kind: Kind, extent: Extent, progress: ProgressDisplay
) -> Turn | Refused:
    began_s = time.monotonic()
    progress.say(f"{cell}: {kind}")
    try:
        turn = bench.turn(kind, extent.frames(cell, kind), extent.quick)
    except LauncherError as error:
        progress.say(f"{cell}, {kind}: {error}")
        return Refused(cell, kind, extent.quick, str(error))
    progress.say(f"{', '.join(row(turn))}; took {time.monotonic() - began_s:.0f} s")
    return turn
