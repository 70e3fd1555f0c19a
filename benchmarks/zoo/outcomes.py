"""Stores the outcomes of the zoo's trials, one JSON line each; a series can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.turn_log import TurnLog, origin
from benchmarks.zoo.registry import Entry
from launcher.errors import BadInputError

REFUSED, AGREES = "refused as expected", "agrees"


@dataclass(frozen=True)
class Trial:
    """A network that is launched with a strategy, or only read and simplified without one."""

    name: str
    strategy: str = ""


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

    def as_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return asdict(self)

    def __str__(self) -> str:
        error = "    none" if self.error is None else f"{self.error:8.1e}"
        return (
            f"{self.trial.name:38} {self.trial.strategy or 'read':10} "
            f"{self.layers:4} layers {self.phases:3} phases {self.nodes} nodes "
            f"{self.seconds:6.1f} s {self.memory_bytes / 1e6:6.0f} MB "
            f"{error} {self.rule:9} {self.what}"
        )


def from_json(data: Mapping[str, Any]) -> Outcome:
    """The inverse of `as_json`; raises `KeyError` or `TypeError` for other data."""
    return Outcome(**{**data, "trial": Trial(**data["trial"])})


def known(path: Path) -> TurnLog[Outcome]:
    """Continue the outcomes in a file; those of other code are put aside."""
    made_by = origin()
    try:
        return TurnLog(path, made_by, from_json, resume=True)
    except BadInputError:
        path.replace(path.with_suffix(".old"))
        return TurnLog(path, made_by, from_json, resume=True)


def refusal(entry: Entry, reason: str) -> str:
    """What to say of a network that is refused for this reason."""
    return REFUSED if entry.refused and entry.refused in reason else f"refused: {reason}"
