"""The log of a measurement of hours: what it keeps, and with what it is not mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.turn_log import TurnLog, origin
from launcher.errors import BadInputError

MADE_BY = {"code": "12ab", "processor": "this one"}


@dataclass(frozen=True)
class Turn:
    number: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def read(data: Mapping[str, Any]) -> Turn:
    return Turn(**data)


def log(path: Path, *, resume: bool = True, made_by: Mapping[str, Any] = MADE_BY) -> TurnLog[Turn]:
    return TurnLog(path, made_by, read, resume=resume)


def test_what_was_interrupted_continues_after_the_last_whole_turn(tmp_path: Path) -> None:
    path = tmp_path / "new" / "log.jsonl"
    begun = log(path, resume=False)
    begun.add(Turn(1))
    begun.add(Turn(2))
    with path.open("a") as file:
        file.write('{"numb')
    again = log(path)
    assert again.turns == [Turn(1), Turn(2)]
    again.add(Turn(3))
    assert log(path).turns == [Turn(1), Turn(2), Turn(3)]


def test_a_log_is_not_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log(path).add(Turn(1))
    with pytest.raises(BadInputError, match="--resume"):
        log(path, resume=False)


@pytest.mark.parametrize("line", ["{}", "7", "no JSON", json.dumps({"other": 1})])
def test_a_log_of_something_else_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "log.jsonl"
    log(path).add(Turn(1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(BadInputError, match="line 3: this is not a turn"):
        log(path)


@pytest.mark.parametrize("text", ["", "7\n", json.dumps(Turn(1).as_json()) + "\n"])
def test_a_log_that_does_not_say_who_made_it_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(BadInputError, match="does not begin as the log of a table"):
        log(path)


def test_turns_of_other_code_or_another_machine_are_not_mixed_with_those_of_this(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log.jsonl"
    log(path).add(Turn(1))
    with pytest.raises(BadInputError, match="measured with another code"):
        log(path, made_by={**MADE_BY, "code": "34cd"})
    assert set(origin()) >= {"code", "processor", "onnxruntime"}
    assert origin() == origin()
