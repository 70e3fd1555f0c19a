"""The command `csdf`, on graphs and on the files of the reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from csdf.cli.command import main
from csdf.formats import json_format
from csdf.model.graph import Graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


@dataclass(frozen=True)
class Said:
    """What a command has printed."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of its output."""
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)


Csdf = Callable[..., Said]


@pytest.fixture
def csdf(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Csdf:
    """Runs the command, which must end with `code`; a graph or its name stands for its file."""

    def run(*given: str | Path | Graph, code: int = 0) -> Said:
        words = []
        for number, word in enumerate(given):
            if isinstance(word, Graph):
                path = tmp_path / f"{number}.json"
                path.write_text(json_format.write(word))
                words.append(str(path))
            else:
                named = isinstance(word, str) and word.endswith(".xml") and "/" not in word
                words.append(str(REFERENCE / word if named else word))
        try:
            ended = main(words)
        except SystemExit as error:
            ended = int(error.code or 0)
        printed = capsys.readouterr()
        assert ended == code, printed.err
        return Said(printed.out, printed.err)

    return run
