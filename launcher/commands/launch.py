"""The console command `launch`, which runs a network over the nodes of a cluster.

`launcher.run.request` declares its options. Slow imports wait until there is something to launch,
so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from launcher.commands import discover, doctor, serve, top, upgrade
from launcher.commands.overview import mistaken_command, overview
from launcher.commands.service.commands import COMMANDS as SERVICE_COMMANDS
from launcher.console import print_error, print_json, print_text, run_command
from launcher.errors import EXIT_FINE, BadInputError
from launcher.logs import check_log_format
from launcher.run.consent import ignore_consent
from launcher.run.request import Request

if TYPE_CHECKING:
    from launcher.streaming.job import Outcome

_STARTED_S = time.monotonic()

STOPPED = "interrupted; everything that was started has been stopped"

SUBCOMMANDS: Mapping[str, tuple[type, Callable[[Any, bool], int]]] = {
    "serve": (serve.ServeOptions, serve.perform),
    "doctor": (doctor.DoctorOptions, doctor.perform),
    "discover": (discover.DiscoverOptions, discover.perform),
    "top": (top.TopOptions, top.perform),
    **SERVICE_COMMANDS,
    "upgrade": (upgrade.UpgradeOptions, upgrade.perform),
}
"""The subcommands, which stand where a cluster may: their options, and what performs them."""


HELP_OPTIONS = ("--help", "-h")

COMPLETING = "_LAUNCH_COMPLETE"
"""The environment variable by which a shell asks what can be typed."""


def app_of(name: str = "launch") -> typer.Typer:
    """Return the parser of `launch`, or of one of `SUBCOMMANDS`."""
    app = typer.Typer(pretty_exceptions_enable=False)
    settings = {"help_option_names": list(HELP_OPTIONS)}
    app.command(name, context_settings=settings)(
        SUBCOMMANDS[name][0] if name in SUBCOMMANDS else Request
    )
    return app


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `launch`; never returns."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in SUBCOMMANDS:
        name, *rest = given
        stopped = STOPPED if name == "serve" else "interrupted"
        run_command(app_of(name), f"launch {name}", SUBCOMMANDS[name][1], rest, stopped)
    if COMPLETING not in os.environ and (not given or given[0] in HELP_OPTIONS):
        print_text(overview({name: options for name, (options, _) in SUBCOMMANDS.items()}))
        if not given:
            sys.exit(EXIT_FINE)
    ignore_consent()
    run_command(app_of(), "launch", _launch, given, STOPPED, check=_check_first)


def _check_first(given: Sequence[str]) -> None:
    """Raise `BadInputError` if the first word is a mistaken command."""
    if given and (sentence := mistaken_command(given[0], SUBCOMMANDS)) is not None:
        raise BadInputError(sentence)


def _launch(request: Request, as_json: bool) -> int:
    if request.make_keys:
        return _make_keys(request.target, as_json)
    from launcher.progress import open_progress  # noqa: PLC0415
    from launcher.sinks.opening import takes_standard_output  # noqa: PLC0415
    from launcher.streaming import job  # noqa: PLC0415
    from launcher.streaming.target import load_target  # noqa: PLC0415
    from nodes.host.heap import keep_one_heap  # noqa: PLC0415

    check_log_format(request.log_format)
    with open_progress() as progress:
        loaded = load_target(request)
        in_use = takes_standard_output(loaded.cluster) and not request.plan_only
        if in_use and as_json:
            raise BadInputError("--json: a sink of cluster.yaml writes to standard output already")
        if loaded.cluster.config.has_source:
            keep_one_heap()  # in months, threads free in one what another allocates
        outcome = job.launch(request, progress, started_s=_STARTED_S, loaded=loaded)
    return _finish(outcome, as_json, in_use=in_use, verbose=request.verbose)


def _make_keys(target: Path, as_json: bool) -> int:
    from launcher.commands.make_keys import make_keys  # noqa: PLC0415
    from launcher.config.load import load_cluster  # noqa: PLC0415 - slow to import

    cluster = load_cluster(target)
    nodes = {node.name: node.address for node in cluster.config.nodes}
    without = [name for name, address in nodes.items() if not cluster.access.guards(address or "")]
    made = make_keys(cluster.access.keys, nodes, without)
    if as_json:
        print_json(made.as_json())
    else:
        print_text(made.text())
    return EXIT_FINE


def _finish(outcome: Outcome, as_json: bool, *, in_use: bool, verbose: bool) -> int:
    """Print the outcome, to standard error if standard output is `in_use`."""
    from launcher.results import report_text  # noqa: PLC0415
    from launcher.results.report import plan_as_json  # noqa: PLC0415

    plan, report, complete = outcome.plan, outcome.report, outcome.complete
    ran = report or complete
    code, problem = (EXIT_FINE, None) if ran is None else (ran.exit_code, ran.problem)
    if as_json:
        data = {}
        if ran is not None:
            data = ran.as_json()
        elif plan is not None:
            data = plan_as_json(plan, outcome.engines, outcome.reasons, outcome.batch)
        if problem is not None:
            data |= {"error": problem, "exit_code": code}
        print_json(data)
    elif report is not None:
        console = report_text.open_console(stderr=in_use)
        report_text.print_report(report, console, verbose=verbose)
    elif complete is not None:
        report_text.open_console(stderr=in_use).print(complete.text())
    elif plan is not None:
        text = report_text.plan_text(plan, outcome.batch, verbose=verbose)
        report_text.open_console().print(text)
    if problem is not None:
        print_error("launch", problem)
    return code


if __name__ == "__main__":
    main()
