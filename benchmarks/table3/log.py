"""Says what the log of the table has, and which turns it lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.table3.turn import Boards, Cell, Refused, Turn, from_json
from benchmarks.turn_log import TurnLog


class Log(TurnLog[Turn | Refused]):
    """The turns of the table."""

    def __init__(self, path: Path, made_by: Mapping[str, Any], *, resume: bool) -> None:
        """See `TurnLog`."""
        super().__init__(path, made_by, from_json, resume=resume)

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
