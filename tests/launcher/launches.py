"""Launches as tests make them: in this process or on agents, and commands with what they print."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.progress import LineDisplay
from launcher.results.report import Report
from launcher.run.request import Request
from launcher.run.runner import real_runtime
from launcher.streaming.job import Outcome, launch
from tests.launcher.in_process import InProcess

Command = Callable[[list[str]], None]


AGENTS = SimpleNamespace(runtime=real_runtime)
"""Real agents, which the launch starts."""


def launched(request: Request, nodes: Any = None, said: io.StringIO | None = None) -> Outcome:
    """Launch on what has a `runtime`, by default in this process; `said` takes the progress."""
    runtime = (nodes or InProcess()).runtime
    with LineDisplay(said or io.StringIO()) as progress:
        return launch(request, progress, started_s=time.monotonic(), runtime=runtime)


def reported(request: Request, nodes: Any = None) -> Report:
    """Likewise; return the report, which there must be."""
    report = launched(request, nodes).report
    assert report is not None
    return report


def ended(
    command: Command, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """Run a command; return its exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as end:
        command([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return int(end.value.code or 0), out, err


def in_json(
    command: Command, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, Any]:
    """Return a command's exit code, and the one JSON value that is all of its standard output."""
    code, out, _ = ended(command, capsys, *arguments, "--json")
    return code, json.loads(out)


def done(command: Command, capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    """Return the JSON value of a command that ends well."""
    code, out, err = ended(command, capsys, *arguments, "--json")
    assert code == 0, out + err
    return json.loads(out)


def wait_for_a_trial(database: Path, sweep: subprocess.Popen[str]) -> None:
    """Wait until the first trial in a sweep's database is complete."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"it ended with {sweep.wait(0.02)} before a trial was finished")
        if not database.exists():
            continue
        with suppress(sqlite3.Error), closing(sqlite3.connect(database)) as opened:  # it is written
            if opened.execute("SELECT 1 FROM trials WHERE state = 'COMPLETE'").fetchone():
                return
