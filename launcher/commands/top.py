"""The command `launch top`."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Annotated, Any

import typer

from launcher.console import print_json, run_command
from launcher.errors import EXIT_FINE


@dataclass(frozen=True)
class TopOptions:
    """Watch the runs of a server in a terminal.

    Shows nodes, phases, FIFOs, the bottleneck, rates, latencies and recent events, and follows them
    each second. If the server is away, it waits until the server is back. Keys: q quits, j and k or
    the arrows scroll, n goes to the next run.

    Where standard output is no terminal it prints once, as --once does.

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
            help="The server's token; better given in the environment, as CSDF_EDGE_TOKEN",
        ),
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Print everything once, and end")] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False


app = typer.Typer(pretty_exceptions_enable=False)
app.command("top")(TopOptions)


def main(arguments: list[str]) -> None:
    """Run `launch top` with these arguments; never returns."""
    run_command(app, "launch top", _top, arguments)


def _top(options: TopOptions, as_json: bool) -> int:
    from rich.console import Console  # noqa: PLC0415 - slow to import

    from launcher.top.client import client_for  # noqa: PLC0415
    from launcher.top.screen import PLAIN_WIDTH, whole  # noqa: PLC0415
    from launcher.top.terminal import style_of, watch  # noqa: PLC0415
    from launcher.view.shown import shown  # noqa: PLC0415

    client = client_for(options.target, options.token)
    if as_json:
        print_json({"runs": [asdict(view, dict_factory=_plain) for view in client.views()]})
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


def _plain(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value.value if isinstance(value, Enum) else value for key, value in items}
