"""The command `launch top`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from launcher.console import print_json
from launcher.errors import EXIT_FINE


@dataclass(frozen=True)
class TopOptions:
    """Watch the runs of a server in a terminal.

    Shows nodes, phases, FIFOs, the bottleneck, rates, latencies and recent events, each second. If
    the server does not answer, waits until it does. Keys: q quits, j and k or the arrows scroll, n
    goes to the next run.

    If standard output is not a terminal, prints everything once, as --once does.

    Exit code 0: the user quit, or everything was printed. 1: with --once or --json, the server does
    not answer. 2: something given cannot be used, such as the token. 130: Ctrl-C.
    """

    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[URL_OR_STATE]",
            help="URL of the server's HTTP port, or the state folder of a service; usually the "
            "service that runs on this machine, or http://127.0.0.1:8000",
        ),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CSDF_EDGE_TOKEN",
            help="The server's token; preferably given in the environment, as CSDF_EDGE_TOKEN",
        ),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Print everything once, and end")] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False


def perform(options: TopOptions, as_json: bool) -> int:
    """Perform `launch top`; return its exit code."""
    from rich.console import Console  # noqa: PLC0415 - slow to import

    from launcher.top.client import client_for  # noqa: PLC0415
    from launcher.top.screen import PLAIN_WIDTH, whole  # noqa: PLC0415
    from launcher.top.terminal import style_of, watch  # noqa: PLC0415
    from launcher.view.json_form import views_as_json  # noqa: PLC0415
    from launcher.view.shown import shown  # noqa: PLC0415

    client = client_for(options.target, options.token)
    if as_json:
        print_json(json.loads(views_as_json(client.views())))
        return EXIT_FINE
    width = None if sys.stdout.isatty() else PLAIN_WIDTH
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    if options.once or not (console.is_terminal and sys.stdin.isatty()) or console.is_dumb_terminal:
        views = client.views()
        for view in views:
            for line in whole(shown(view), console.width, style_of(console)):
                console.print(line, no_wrap=True)
        if not views:
            console.print("no run streams now")
    else:
        watch(client, console)
    return EXIT_FINE
