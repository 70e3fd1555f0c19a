"""Writes and reads the log of a measurement that takes hours, with a line of JSON per turn.

A line is written when its turn is done, so that the measurement may be interrupted at any moment
and continued. The first line names the code and the machine, because turns of others do not belong
in one table."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.report import PACKAGES, facts
from launcher.config.units import parse_link
from launcher.errors import BadInputError

ROOT = Path(__file__).parents[1]
MEASURED = ("cnn", "csdf", "ga", "launcher", "nodes", "partition", "benchmarks/lab")
"""The code that is measured, and the code that measures."""

LASTING = ("processor", "cpus", "kernel", "python", *PACKAGES)
"""The facts of a machine that do not change from run to run."""


def add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options of a benchmark that measures launches on emulated boards turn by turn."""
    add = parser.add_argument
    add("--repetitions", type=int, default=3, help="rounds (default: 3)")
    add("--link", type=parse_link, default="1Gbit/s", help="of each board, such as 100Mbit/s")
    add("--log", type=Path, default=Path("build", f"{name}.jsonl"), help="a line for each turn")
    add("--resume", action="store_true", help="continue an existing log")
    add("--minutes", type=float, default=float("inf"), help="begin no turn after this time")
    add("--output", type=Path, help="a file for the object with all figures")


class Written(Protocol):
    """A turn that can be written."""

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        ...


T = TypeVar("T", bound=Written)


def origin() -> dict[str, Any]:
    """What makes turns comparable: the code, by a digest of its files, and the machine."""
    digest = hashlib.sha256()
    for folder in MEASURED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    machine = facts()
    return {"code": digest.hexdigest()[:12], **{key: machine[key] for key in LASTING}}


class TurnLog(Generic[T]):
    """A file of turns."""

    def __init__(
        self,
        path: Path,
        made_by: Mapping[str, Any],
        from_json: Callable[[Mapping[str, Any]], T],
        *,
        resume: bool,
    ) -> None:
        """Begin a log, or `resume` the one in the file. `made_by` is `origin()`; `from_json` raises
        `ValueError`, `KeyError` or `TypeError` for data that are not a turn.

        Raises `BadInputError` if the file holds something else, would be overwritten, or was made
        by other code or on another machine.
        """
        self.path, self._made_by, self._from_json = path, dict(made_by), from_json
        self.turns: list[T] = []
        if path.exists():
            if not resume:
                raise BadInputError(
                    f"{path} exists already: continue it (--resume), or name another (--log)"
                )
            self.turns = self._read()

    def add(self, turn: T) -> None:
        """Write a turn that is done."""
        self.turns.append(turn)
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps({"made_by": self._made_by}) + "\n", "utf-8")
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(turn.as_json()) + "\n")

    def _read(self) -> list[T]:
        """The turns of the file; a last line that was not finished is cut off."""
        path = self.path
        lines = path.read_text("utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()
            path.write_text("".join(lines), "utf-8")
        first, *turns = lines or ["{}"]
        known = _made_by(path, first)
        other = [key for key, value in self._made_by.items() if known.get(key) != value]
        if other:
            raise BadInputError(
                f"{path} was measured with another {', another '.join(other)}, which does not "
                "belong in one table with what is here: name another log (--log)"
            )
        return [self._turn(f"{path}, line {i}", line) for i, line in enumerate(turns, 2)]

    def _turn(self, where: str, line: str) -> T:
        try:
            return self._from_json(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(f"{where}: this is not a turn of a table") from error


def _made_by(path: Path, line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line)["made_by"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{path} does not begin as the log of a table, or is one of earlier code: remove it, "
            "or name another (--log)"
        ) from error
