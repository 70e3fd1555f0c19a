"""Writes and reads the log of a table, with a line of JSON per turn.

A line is written when its turn is done, so that hours of measuring may be interrupted at any moment
and continued. The first line names the code and the machine, because turns of others do not belong
in one table."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import PACKAGES, facts
from benchmarks.table3.turn import Boards, Cell, Refused, Turn, from_json
from launcher.errors import BadInputError

ROOT = Path(__file__).parents[2]
MEASURED = ("cnn", "csdf", "ga", "launcher", "nodes", "partition", "benchmarks/lab")
"""The code that is measured, and that which measures."""

LASTING = ("processor", "cpus", "kernel", "python", *PACKAGES)
"""What of a machine's facts stays as it is."""


def origin() -> dict[str, Any]:
    """What makes turns comparable: the code, by a digest of its files, and the machine."""
    digest = hashlib.sha256()
    for folder in MEASURED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    machine = facts()
    return {"code": digest.hexdigest()[:12], **{key: machine[key] for key in LASTING}}


class Log:
    """A file of turns."""

    def __init__(self, path: Path, made_by: Mapping[str, Any], *, resume: bool) -> None:
        """Begin it anew, or go on with what it holds. `made_by` is `origin()`.

        Raises `BadInputError` if it holds something else, would be overwritten, or was made by
        other code or on another machine.
        """
        self._path, self._made_by = path, dict(made_by)
        self.turns: list[Turn | Refused] = []
        if path.exists():
            if not resume:
                raise BadInputError(
                    f"{path} is there already: go on with it (--resume), or name another (--log)"
                )
            self.turns = list(_read(path, self._made_by))

    def add(self, turn: Turn | Refused) -> None:
        """Write a turn that is done."""
        self.turns.append(turn)
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({"made_by": self._made_by}) + "\n", "utf-8")
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


def _read(path: Path, made_by: Mapping[str, Any]) -> list[Turn | Refused]:
    """The turns of a log; a last line that was not finished is cut off."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        path.write_text("".join(lines), "utf-8")
    first, *turns = lines or ["{}"]
    known = _made_by(path, first)
    other = [key for key, value in made_by.items() if known.get(key) != value]
    if other:
        raise BadInputError(
            f"{path} was measured with another {', another '.join(other)}, which does not belong "
            "in one table with what is here: name another log (--log)"
        )
    return [_turn(f"{path}, line {number}", line) for number, line in enumerate(turns, 2)]


def _made_by(path: Path, line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line)["made_by"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{path} does not begin as the log of a table, or is one of earlier code: remove it, "
            "or name another (--log)"
        ) from error


def _turn(where: str, line: str) -> Turn | Refused:
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(f"{where}: this is no turn of a table") from error
