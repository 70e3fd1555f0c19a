"""Declares the options of the service's commands, which Typer makes from these classes.

The module imports little, so that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from launcher.commands.options import AsJson
from launcher.commands.serve import AnsweringOptions

GAP = typer.Option(
    "--allow-gap",
    help="If two versions do not fit at the same time: close the present one first, while "
    "requests wait",
)
NO_WAIT = typer.Option("--no-wait", help="Return once it is applied, before it serves")


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Which service a command is for."""

    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            envvar="CSDF_EDGE_STATE",
            help="Folder of the service's state; by default one that is named after it",
        ),
    ] = None
    name: Annotated[
        str,
        typer.Option(help="Name of the service, where a machine has several; usually 'default'"),
    ] = "default"
    as_json: AsJson = False


@dataclass(frozen=True)
class UpOptions(ServiceOptions, AnsweringOptions):
    """Serve the models of a cluster.yaml, and keep them served.

    Answers requests as launch serve does, and takes changes while it runs:
    launch apply, rollback, restart and down are its commands, and launch
    status shows its state. Every model runs by itself, and each of its
    versions is compared with its whole model before it serves.

    With CLUSTER, applies that file; without it, continues with what was
    applied last. Each option of launch serve overrides a key of the section
    serve until the service ends; a unit of --install reads only
    cluster.yaml. SIGHUP applies the file again. SIGTERM and Ctrl-C answer
    the requests under way, and end.

    Exit code 0: launch down or SIGTERM ended it. 1: it failed.
    2: something given cannot be used, and nothing was run. 130: Ctrl-C.
    """

    cluster: Annotated[
        Path | None, typer.Argument(metavar="[CLUSTER]", help="cluster.yaml to apply")
    ] = None
    install: Annotated[
        Literal["user", "system"] | None,
        typer.Option(
            help="Install it as a service of systemd, of the user or of the system, and start it"
        ),
    ] = None
    print_unit: Annotated[
        bool, typer.Option("--print-unit", help="Print the unit for systemd, and run nothing")
    ] = False


@dataclass(frozen=True)
class StatusOptions(ServiceOptions):
    """Show the state of the service: its models, versions and nodes.

    Exit code 0: everything that is wanted serves. 1: no service runs.
    3: it is starting or ending, or something that is wanted does not serve.
    """


@dataclass(frozen=True)
class ApplyOptions(ServiceOptions):
    """Change the running service to what a cluster.yaml says.

    Models are added and removed, and new versions take the place of former
    ones; models that stay the same are not disturbed. A new version is
    loaded in addition to the present one, compared with its whole model, and
    then takes over; until then, and if that fails, the present one serves.

    Exit code 0: everything serves. 1: a version failed. 2: the file cannot
    be used, and nothing was changed.
    """

    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="cluster.yaml to change to")]
    allow_gap: Annotated[bool, GAP] = False
    no_wait: Annotated[bool, NO_WAIT] = False


@dataclass(frozen=True)
class RollbackOptions(ServiceOptions):
    """Go back to a generation that has served, with its models' files.

    A rollback that failed is tried again.

    Exit code 0: everything serves. 1: a version failed. 2: there is nothing
    to go back to.
    """

    to: Annotated[
        int | None,
        typer.Option(
            metavar="GENERATION",
            help="Number of the generation; by default the last one that served and differs from "
            "the present one",
        ),
    ] = None
    allow_gap: Annotated[bool, GAP] = False
    no_wait: Annotated[bool, NO_WAIT] = False


@dataclass(frozen=True)
class DownOptions(ServiceOptions):
    """End the service: requests under way are answered, and its agents end.

    Exit code 0: it has ended. 1: no service runs, or it does not end.
    """


@dataclass(frozen=True)
class LogsOptions(ServiceOptions):
    """Print the history of the service: changes, failures, recoveries.

    Exit code 0: it was printed. 1: with -f, the service has ended.
    2: there is no history.
    """

    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new events as they happen")
    ] = False
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", min=1, help="Number of events to print, counted from the last one"
        ),
    ] = 100


@dataclass(frozen=True)
class RestartOptions(ServiceOptions):
    """Restart the agents of a node without a pause.

    New agents load the models of the node, which are checked and then take
    over. The agent of a node with an address belongs to that machine's
    systemd; this says what to type to restart it there.

    Exit code 0: everything serves. 1: a model failed; its former agents
    continue.
    2: there is no such node, or it has an address.
    """

    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node of this machine")]
    no_wait: Annotated[bool, NO_WAIT] = False
