"""The console command `launch`, which runs a network over the nodes of a cluster.

`launcher.run.request` declares its options. Slow imports wait until there is something to launch,
so that `--help` answers at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from launcher.commands.discover import main as discover
from launcher.commands.doctor import main as doctor
from launcher.commands.serve import main as serve
from launcher.commands.service.commands import COMMANDS as SERVICE_COMMANDS
from launcher.commands.service.commands import main as service
from launcher.commands.top import main as top
from launcher.commands.upgrade import main as upgrade
from launcher.console import print_error, print_json, print_text, run_command
from launcher.errors import EXIT_FAILED, EXIT_FINE, BadInputError
from launcher.logs import JsonProgress, check_log_format, is_json
from launcher.run.consent import ignore_consent
from launcher.run.request import Request

if TYPE_CHECKING:
    from launcher.progress import ProgressDisplay
    from launcher.streaming.job import LoadedTarget, Outcome

_STARTED_S = time.monotonic()

SUBCOMMANDS: dict[str, Callable[[list[str]], None]] = {
    "serve": serve,
    "top": top,
    "doctor": doctor,
    "discover": discover,
    "upgrade": upgrade,
    **{name: partial(service, name) for name in SERVICE_COMMANDS},
}
"""What the first argument may be instead of a cluster; each takes the others, and never returns."""

app = typer.Typer(pretty_exceptions_enable=False)
app.command("launch")(Request)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `launch`; never returns."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and (subcommand := SUBCOMMANDS.get(given[0])) is not None:
        subcommand(given[1:])
    ignore_consent()
    stopped = "interrupted; everything that was started has been stopped"
    run_command(app, "launch", _launch, given, stopped)


def _launch(request: Request, as_json: bool) -> int:
    if request.make_keys:
        return _make_keys(request.target, as_json)
    from launcher.progress import open_progress  # noqa: PLC0415
    from launcher.streaming import job  # noqa: PLC0415

    check_log_format(request.log_format)
    with JsonProgress() if is_json() else open_progress() as progress:
        loaded = job.load_target(request)
        if loaded.cluster.config.is_stream and not request.plan_only:
            return _stream(request, progress, loaded, as_json)
        outcome = job.launch(request, progress, started_s=_STARTED_S, loaded=loaded)
    return _finish(outcome, as_json)


def _stream(
    request: Request, progress: ProgressDisplay, loaded: LoadedTarget, as_json: bool
) -> int:
    from launcher.results.report_text import open_console  # noqa: PLC0415
    from launcher.sinks.opening import takes_standard_output  # noqa: PLC0415
    from launcher.streaming.report_text import stream_text  # noqa: PLC0415
    from launcher.streaming.running import stream  # noqa: PLC0415
    from nodes.host.heap import keep_one_heap  # noqa: PLC0415

    keep_one_heap()  # a stream of months has many threads, and frees in one what another allocates
    in_use = takes_standard_output(loaded.cluster)
    if in_use and as_json:
        raise BadInputError("--json: a sink of cluster.yaml writes to standard output already")
    report = stream(request, progress, loaded=loaded)
    if as_json:
        data = report.as_json()
        if report.problem is not None:
            data |= {"error": report.problem, "exit_code": report.exit_code}
        print_json(data)
    else:
        open_console(stderr=in_use).print(stream_text(report))
    if report.problem is not None:
        print_error("launch", report.problem)
    return report.exit_code


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


def _finish(outcome: Outcome, as_json: bool) -> int:
    from launcher.results import report_text  # noqa: PLC0415
    from launcher.results.report import plan_as_json  # noqa: PLC0415

    plan, report, complete = outcome.plan, outcome.report, outcome.complete
    ran = report or complete
    code, problem = EXIT_FINE, None
    if ran is not None and ran.agreement is not None and not ran.agrees:
        code, found = EXIT_FAILED, ran.agreement
        problem = found.disagreement
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
        report_text.print_report(report, report_text.open_console())
    elif complete is not None:
        report_text.open_console().print(complete.text())
    elif plan is not None:
        report_text.open_console().print(report_text.plan_text(plan, outcome.batch))
    if problem is not None:
        print_error("launch", problem)
    return code


if __name__ == "__main__":
    main()
