"""The command `launch doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from launcher.commands.options import AsJson
from launcher.console import print_json, print_text
from launcher.errors import EXIT_FAILED, EXIT_FINE


@dataclass(frozen=True)
class DoctorOptions:
    """Examine a cluster: this machine, its keys, and every board and the way to it.

    Prints each finding with a command that helps. Boards are examined in parallel. The disk, heat
    and clock of a board cannot be examined from here: run node-agent --doctor there.

    A board whose agent is free is held for some seconds, in which some megabytes are sent to it.

    Exit code 0: nothing that would stop a run. 1: something would. 2: there is no such file.
    130: Ctrl-C.
    """

    target: Annotated[
        Path,
        typer.Argument(
            metavar="[CLUSTER_OR_PLAN]", help="cluster.yaml, or the folder of a saved plan"
        ),
    ] = Path("cluster.yaml")
    as_json: AsJson = False


def perform(options: DoctorOptions, as_json: bool) -> int:
    """Perform `launch doctor`; return its exit code."""
    from launcher.doctor.examination import examine  # noqa: PLC0415 - slow to import

    report = examine(options.target)
    code = EXIT_FAILED if report.has_errors else EXIT_FINE
    if as_json:
        print_json(report.as_json(code))
    else:
        print_text(report.text())
    return code
