"""Declares the options of the service's commands, which Typer makes from these classes.

The module imports little, so that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

STATE = typer.Option(
    "--state",
    metavar="FOLDER",
    envvar="CSDF_EDGE_STATE",
    help="Folder of the service's state; by default one for its name",
)
NAME = typer.Option(
    "--name", help="Name of the service, where a machine has several; usually 'default'"
)
JSON = typer.Option("--json", help="Print one JSON object and nothing else")
GAP = typer.Option(
    "--allow-gap",
    help="Where two versions do not fit beside each other: close the present one first, while "
    "requests wait",
)
NO_WAIT = typer.Option("--no-wait", help="Return once it is applied, before it serves")


@dataclass(frozen=True)
class UpOptions:
    """Serve the models of a cluster.yaml, and keep them served.

    Answers requests as launch serve does, and takes changes while it runs:
    launch apply, rollback, restart and down are its commands, and launch
    status says how it is. Every model runs by itself, and each of its
    versions is compared with its whole model before it serves.

    With CLUSTER, that file is applied; without, what was applied last goes
    on. SIGHUP applies the file again. SIGTERM and Ctrl-C answer the requests
    under way, and end.

    Exit code 0: launch down or SIGTERM ended it. 1: it could not go on.
    2: something given cannot be used, and nothing was run. 130: Ctrl-C.
    """

    cluster: Annotated[
        Path | None, typer.Argument(metavar="[CLUSTER]", help="cluster.yaml to apply")
    ] = None
    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    install: Annotated[
        Literal["user", "system"] | None,
        typer.Option(
            help="Make it a service of systemd, and start it: the user's, or the system's"
        ),
    ] = None
    print_unit: Annotated[
        bool, typer.Option("--print-unit", help="Print the unit for systemd, and run nothing")
    ] = False
    log_format: Annotated[
        str, typer.Option(metavar="text|json", help="json: one JSON object per line of the log")
    ] = "text"
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class StatusOptions:
    """Say how the service is: its models, versions and nodes.

    Exit code 0: everything that is wanted serves. 1: no service runs.
    3: it starts or ends, or something that is wanted does not serve.
    """

    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class ApplyOptions:
    """Change the running service to what a cluster.yaml says.

    Models are added and removed, and new versions take the place of former
    ones; what is the same goes on undisturbed. A new version is loaded
    beside the present one, compared with its whole model, and then takes
    over; until then, and if that fails, the present one serves.

    Exit code 0: everything serves. 1: a version failed. 2: the file cannot
    be used, and nothing was changed.
    """

    cluster: Annotated[Path, typer.Argument(metavar="CLUSTER", help="cluster.yaml to change to")]
    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    allow_gap: Annotated[bool, GAP] = False
    no_wait: Annotated[bool, NO_WAIT] = False
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class RollbackOptions:
    """Go back to what has served before, with the models' files of that time.

    A rollback that failed is tried again.

    Exit code 0: everything serves. 1: a version failed. 2: there is nothing
    to go back to.
    """

    to: Annotated[
        int | None,
        typer.Option(
            metavar="GENERATION",
            help="Which one; by default the last that served and differs from now",
        ),
    ] = None
    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    allow_gap: Annotated[bool, GAP] = False
    no_wait: Annotated[bool, NO_WAIT] = False
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class DownOptions:
    """End the service: requests under way are answered, and its agents end.

    Exit code 0: it has ended. 1: no service runs, or it does not end.
    """

    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class LogsOptions:
    """Print the history of the service: changes, failures, recoveries.

    Exit code 0: it was printed. 1: with -f, the service has ended.
    2: there is no history.
    """

    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens")] = False
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="Number of events to print, the last ones")
    ] = 100
    as_json: Annotated[bool, JSON] = False


@dataclass(frozen=True)
class RestartOptions:
    """Restart the agents of a node without a pause.

    The models that use the node are loaded beside themselves by new agents,
    checked, and take over. The agent of a node with an address belongs to
    that machine's systemd; this says what to type to restart it there.

    Exit code 0: everything serves. 1: a model failed, and goes on as before.
    2: there is no such node, or it has an address.
    """

    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node of this machine")]
    state: Annotated[Path | None, STATE] = None
    name: Annotated[str, NAME] = "default"
    no_wait: Annotated[bool, NO_WAIT] = False
    as_json: Annotated[bool, JSON] = False
