"""`launch --log-format json`: standard error has one JSON object per line, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serve.server import DIGITS, WAIT_S

CLUSTER = DIGITS / "cluster.yaml"


def launch(*arguments: str | Path) -> tuple[int, str, list[dict[str, object]]]:
    done = subprocess.run(
        [sys.executable, "-m", "launcher.commands.launch", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, done.stdout, [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.slow
def test_each_line_of_a_run_names_the_run_once_it_has_begun() -> None:
    code, out, lines = launch(
        CLUSTER, "--strategy", "sequential", "--frames", "20", "--log-format", "json", "--json"
    )
    assert (code, json.loads(out)["frames"]) == (0, 20)
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    stages = [line for line in lines if line.get("stage") == "streaming"]
    assert stages[-1]["done"] == stages[-1]["total"] == 20
    (run,) = {line["run"] for line in stages}
    first = next(number for number, line in enumerate(lines) if "run" in line)
    assert {line["run"] for line in lines[first:]} == {run}
    again = launch(CLUSTER, "--strategy", "sequential", "--frames", "1", "--log-format=json")[2]
    assert run not in {line.get("run") for line in again}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere.yaml",), "there is no such file"),
        (("--nonsense",), "No such option"),
        (("serve", "nowhere.yaml"), "there is no such file"),
    ],
)
def test_a_mistake_is_a_line_too(arguments: tuple[str, ...], sentence: str) -> None:
    code, _, (line,) = launch(*arguments, "--log-format", "json")
    assert code == 2
    assert line["level"] == "error"
    assert sentence in str(line["message"])
