"""Runs the doctors as a user does, and the remedies that they print."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodes.cli import _parser, agent_setup
from nodes.doctor.examination import CHECKS
from nodes.doctor.findings import Finding
from nodes.doctor.performing import perform

SCRIPTS = Path(sys.executable).parent
LIMIT_S = 120

COMMANDS = {
    "node-agent": [sys.executable, "-m", "nodes.cli", "--doctor"],
    "launch": [sys.executable, "-m", "launcher.commands.launch", "doctor"],
}


@dataclass(frozen=True)
class Examined:
    """The report of a doctor, and its exit code."""

    code: int
    data: Mapping[str, Any]

    def of(self, check: str, *, severity: str | None = None) -> list[dict[str, str]]:
        """The findings of a check, of any severity or of one."""
        return [
            each
            for each in self.data["findings"]
            if each["check"] == check and severity in (None, each["severity"])
        ]

    def only(self, check: str) -> dict[str, str]:
        """The single finding of a check."""
        (found,) = self.of(check)
        return found


def doctor(
    command: str,
    *arguments: object,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    enter: Callable[[], None] | None = None,
) -> Examined:
    """Run `node-agent --doctor` or `launch doctor` with `--json`."""
    done = subprocess.run(
        [*prefix, *COMMANDS[command], *map(str, arguments), "--json"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])} | dict(environment or {}),
        preexec_fn=enter,
    )
    assert done.returncode in (0, 1), done.stderr
    data = json.loads(done.stdout)
    assert data["exit_code"] == done.returncode
    return Examined(done.returncode, data)


def examined(check: str, *arguments: object) -> list[Finding]:
    """What one check of `node-agent --doctor` finds with these arguments, in this process."""
    setup = agent_setup(_parser().parse_args(list(map(str, arguments))))
    (wanted,) = (each for each in CHECKS if each.name == check)
    (checked,) = perform("here", [wanted], setup)
    return list(checked.findings)


@contextmanager
def agent(
    *arguments: object, prefix: Sequence[str] = (), module: str = "nodes.cli"
) -> Iterator[str]:
    """A `node-agent` that is ready; yields its control address."""
    command = [*prefix, sys.executable, "-m", module, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        ready = process.stderr.readline()
        try:
            assert " ready: control " in ready, ready
            yield ready.partition("control ")[2].partition(",")[0]
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def apply(finding: Mapping[str, str] | Finding, folder: Path) -> None:
    """Type the remedy of a finding into a shell, as root if it says `sudo`."""
    remedy = finding.remedy if isinstance(finding, Finding) else finding["remedy"]
    remedy = remedy if os.geteuid() else remedy.replace("sudo ", "")
    paths = f"{SCRIPTS}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", remedy],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=folder,
        env=os.environ | {"PATH": paths},
    )
    assert done.returncode == 0, f"{remedy}: {done.stderr}"


def on_board(finding: Finding) -> list[str]:
    """The words of the command that a remedy runs on a board by ssh."""
    ssh, _, command = shlex.split(finding.remedy)
    assert ssh == "ssh"
    return shlex.split(command)
