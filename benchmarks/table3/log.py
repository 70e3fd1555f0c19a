"""The log of a table: a line of JSON per turn, written when it is done, so that hours may be
interrupted at any moment and go on from there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.table3.turn import Boards, Cell, Refused, Turn, from_json
from launcher.errors import BadInputError


class Log:
    """A file of turns."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Begin it anew, or go on with what it holds.

        Raises `BadInputError` if it holds something else, or would be overwritten.
        """
        self._path = path
        self.turns: list[Turn | Refused] = []
        if path.exists():
            if not resume:
                raise BadInputError(
                    f"{path} is there already: go on with it (--resume), or name another (--log)"
                )
            self.turns = list(_read(path))

    def add(self, turn: Turn | Refused) -> None:
        """Write a turn that is done."""
        self.turns.append(turn)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turn.as_json()) + "\n")

    def of(self, boards: Boards) -> list[Turn]:
        """What was measured on such boards."""
        return [turn for turn in self.turns if isinstance(turn, Turn) and turn.boards == boards]

    def refusals(self, boards: Boards) -> list[Refused]:
        """What could not be measured on such boards."""
        return [one for one in self.turns if isinstance(one, Refused) and one.boards == boards]

    def missing(self, cells: Sequence[Cell], boards: Boards, repetitions: int) -> list[Cell]:
        """Cells that lack turns, once for each; what was refused lacks none."""
        done = Counter(turn.cell for turn in self.of(boards))
        refused = {one.cell for one in self.refusals(boards)}
        return [
            cell for cell in cells if cell not in refused for _ in range(repetitions - done[cell])
        ]


def _read(path: Path) -> list[Turn | Refused]:
    """The turns of a log; a last line that was not finished is cut off."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines), "utf-8")
    return [_turn(f"{path}, line {number}", line) for number, line in enumerate(lines, 1)]


def _turn(where: str, line: str) -> Turn | Refused:
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{where}: this is no turn of a table") from error
