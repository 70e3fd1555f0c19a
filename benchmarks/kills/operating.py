"""Changes a service again and again, and remembers what was acknowledged."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.service.server import write_version
from launcher.errors import LauncherError
from launcher.service.control import ServiceClient
from launcher.service.store import DATABASE, KEPT_GENERATIONS

Versions = dict[str, str]
"""The version of each model."""


@dataclass
class Operator:
    """Applies files to the service of `folder` and rolls them back; its methods block."""

    folder: Path
    write: Callable[[Versions], Path]
    """Writes a cluster.yaml with these versions."""
    learn: Callable[[int], None]
    """Called with each version before it is applied."""
    chance: random.Random
    acknowledged: dict[int, Versions] = field(default_factory=dict)
    """What each generation is that the service has said to be applied."""
    unanswered: int = 0
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What was acknowledged and is not there, in sentences."""
    _newest: int = 1

    @property
    def state(self) -> Path:
        """The service's state folder."""
        return self.folder / "state"

    def change(self) -> str:
        """Make one change; return what it was."""
        if self.chance.random() < 0.3:
            return self._send("rollback")
        last = self.generations()
        versions = dict(last[max(last)]) if last else {}
        if self.chance.random() < 0.3:
            if versions.pop("other", None) is None:
                versions["other"] = str(self._newest)
        else:
            self._newest += 1
            write_version(self.folder, self._newest)
            self.learn(self._newest)
            versions["digits"] = str(self._newest)
        return self._send("apply", path=str(self.write(versions)))

    def _send(self, what: str, **data: object) -> str:
        try:
            answer = ServiceClient(self.state).post(
                what, **data, allow_gap=self.chance.random() < 0.2
            )
        except LauncherError as error:
            if error.exit_code == 2:
                self.refused.append(str(error))
                return f"{what} refused: {error}"
            self.unanswered += 1
            return f"{what} unanswered: {error}"
        number = int(answer["generation"])
        found = self.generations().get(number)
        if found is None:
            self.lost.append(f"generation {number} was acknowledged and is not in the database")
            return f"{what} lost"
        self.acknowledged[number] = found
        return f"{what}: generation {number}, {found}"

    def check(self) -> None:
        """Note each acknowledged generation that is not there, or is another one."""
        found = self.generations()
        last = max(found)
        for number, versions in self.acknowledged.items():
            if number > last:
                self.lost.append(f"generation {number} is gone; the last one is {last}")
            elif number > last - KEPT_GENERATIONS and found.get(number) != versions:
                self.lost.append(f"generation {number} is {found.get(number)}, not {versions}")

    def generations(self) -> dict[int, Versions]:
        """Return all that the database has."""
        with closing(sqlite3.connect(self.state / DATABASE)) as database:
            rows = database.execute("SELECT number, models FROM generations").fetchall()
        return {
            number: {model["name"]: model["version"] for model in json.loads(models)}
            for number, models in rows
        }
