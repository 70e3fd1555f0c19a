"""Stores the outcomes of the zoo's trials, one JSON line each; a series can be continued."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks.zoo.registry import Entry

REFUSED, AGREES = "refused as expected", "agrees"

Way: TypeAlias = Literal["read", "in-process", "launched"]
"""Only read and simplified; planned, cut and run in one process; launched over several nodes."""


@dataclass(frozen=True)
class Trial:
    """A network, and what is tried with it."""

    name: str
    way: Way
    strategy: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.strategy or self.way}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial, in words.

    `error` is relative and was measured by `rule`, which allows `allowed`. `memory_bytes` is the
    largest peak of a process that computed. `log` is the file with more about a failure.
    """

    trial: Trial
    what: str
    layers: int = 0
    phases: int = 0
    nodes: int = 0
    seconds: float = 0.0
    error: float | None = 0.0
    allowed: float | None = 0.0
    rule: str = ""
    memory_bytes: int = 0
    log: str = ""

    @property
    def is_good(self) -> bool:
        """Whether that is as it should be."""
        return self.what in (REFUSED, AGREES)

    def __str__(self) -> str:
        error = "    none" if self.error is None else f"{self.error:8.1e}"
        return (
            f"{self.trial.name:38} {self.trial.way:10} {self.trial.strategy:10} "
            f"{self.layers:4} layers {self.phases:3} phases {self.nodes} nodes "
            f"{self.seconds:6.1f} s {self.memory_bytes / 1e6:6.0f} MB "
            f"{error} {self.rule:9} {self.what}"
        )


def as_line(outcome: Outcome, **more: str) -> str:
    """One line of JSON."""
    return json.dumps({**asdict(outcome), **more})


def from_line(line: str) -> tuple[Outcome, dict[str, Any]]:
    """The outcome, and what else the line holds."""
    data = json.loads(line)
    names = {field.name for field in fields(Outcome)}
    own = {key: value for key, value in data.items() if key in names}
    rest = {key: value for key, value in data.items() if key not in names}
    return Outcome(**own | {"trial": Trial(**data["trial"])}), rest


class Ledger:
    """A file of outcomes, to which each is added as soon as it is known."""

    def __init__(self, path: Path) -> None:
        self.logs = path.parent / "logs"
        self._path = path
        self._commit = _commit()
        self._known: dict[Trial, Outcome] = {}
        for outcome, rest in _lines(path):
            if rest.get("commit") == self._commit:
                self._known[outcome.trial] = outcome

    def find(self, trial: Trial) -> Outcome | None:
        """What became of it earlier; the last time, if several count."""
        return self._known.get(trial)

    def add(self, outcome: Outcome) -> None:
        """Write it down."""
        self._known[outcome.trial] = outcome
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(as_line(outcome, commit=self._commit) + "\n")

    def log_of(self, trial: Trial) -> Path:
        """The file for the log of a trial that failed."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{trial.name} {trial.way} {trial.strategy}.log"


def refusal(entry: Entry, reason: str) -> str:
    """What to say of a network that is refused for this reason."""
    return REFUSED if entry.refused and entry.refused in reason else f"refused: {reason}"


def _lines(path: Path) -> Iterator[tuple[Outcome, dict[str, Any]]]:
    """The whole lines; the last one may be torn, if writing it was interrupted."""
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            yield from_line(line)


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent
    )
    return ran.stdout.strip()
