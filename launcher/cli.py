"""The console command `launch`.

See `launcher.console` for what it prints where. What is slow to import is imported only when there
is something to launch.
"""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from launcher.consent import ignore_consent
from launcher.console import print_error, print_json, print_text, print_version, run_command
from launcher.errors import EXIT_FAILED, EXIT_FINE
from launcher.request import MOST_FRAMES, MOST_SEED, Request

if TYPE_CHECKING:
    from launcher.job import Outcome

_STARTED_S = time.monotonic()

app = typer.Typer(pretty_exceptions_enable=False)


class _Order(str, Enum):
    pipelined = "pipelined"
    strict = "strict"


class _Rebalance(str, Enum):
    auto = "auto"
    ask = "ask"
    never = "never"


@app.command()
def launch(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="CLUSTER_OR_PLAN", help="cluster.yaml, or the folder of a saved plan"
        ),
    ],
    frames: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_FRAMES, help="Frames to stream; the inputs are repeated"),
    ] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="Glob of PNG, JPEG, .npy or .npz files, or 'random'; repeatable"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results: .npy files, classes.csv")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread over nodes, such as 'vertical'")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MOST_SEED, help="Of the search and of random input")
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="Plan, and run nothing")] = False,
    save: Annotated[
        Path | None, typer.Option(help="Save the plan in this folder; launch it again, or edit it")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the plan, and run nothing (like --plan-only)")
    ] = False,
    order: Annotated[
        _Order | None, typer.Option(help="strict: phases frame by frame, for comparison; slower")
    ] = None,
    verify: Annotated[
        bool | None, typer.Option("--verify/--no-verify", help="Compare with the whole model")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Largest relative difference that agrees; by default the network's own"
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(min=1, help="Classes per frame in classes.csv, for a classifier")
    ] = 5,
    profile: Annotated[
        Path | None, typer.Option(help="File of partition profile: measured times for the search")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Folder that keeps results and progress, for --resume")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in the journal, or begin it"),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="File for what every node did and when, which Perfetto opens"),
    ] = None,
    rebalance: Annotated[
        _Rebalance | None,
        typer.Option(help="Use a node that comes back: if worth it, if you say so, or never"),
    ] = None,
    make_keys: Annotated[
        bool,
        typer.Option(
            "--make-keys", help="Make the keys of the cluster's machines, and run nothing"
        ),
    ] = False,
    as_json: Annotated[  # noqa: ARG001 - `run_command` looks for it, errors of use need it too
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> Request:
    """Run one ONNX network over the nodes of a cluster.

    Reads the model, spreads its layers over the nodes, proves that the plan
    cannot deadlock, deploys it, streams the frames, and compares the results
    with the whole model's.

    Exit code 0: every frame came back and agrees. 1: the run failed, or
    a result differs. 2: something given cannot be used, and nothing was
    run. 130: Ctrl-C.
    """
    return Request(
        target=target,
        frames=frames,
        inputs=tuple(input_ or ()),
        output=output,
        strategy=strategy,
        seed=seed,
        plan_only=plan_only or show,
        save=save,
        order=order.value if order is not None else None,
        verify=verify,
        tolerance=tolerance,
        top=top,
        profile=profile,
        trace=trace,
        make_keys=make_keys,
        journal=journal,
        resume=resume,
        rebalance=rebalance.value if rebalance is not None else None,
    )


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `launch`; never returns."""
    ignore_consent()
    stopped = "interrupted; all that was started is stopped"
    run_command(app, "launch", _launch, arguments, stopped)


def _launch(request: Request, as_json: bool) -> int:
    if request.make_keys:
        return _make_keys(request.target, as_json)
    from launcher import job  # noqa: PLC0415 - slow to import
    from launcher.progress import open_progress  # noqa: PLC0415

    with open_progress() as progress:
        outcome = job.launch(request, progress, started_s=_STARTED_S)
    return _finish(outcome, as_json)


def _make_keys(target: Path, as_json: bool) -> int:
    from launcher.config_load import load_cluster  # noqa: PLC0415 - slow to import
    from launcher.make_keys import make_keys  # noqa: PLC0415

    cluster = load_cluster(target)
    nodes = {node.name: node.address for node in cluster.config.nodes}
    made = make_keys(cluster.access.keys, nodes)
    if as_json:
        print_json(made.as_json())
    else:
        print_text(made.text())
    return EXIT_FINE


def _finish(outcome: Outcome, as_json: bool) -> int:
    from launcher import report_text  # noqa: PLC0415 - slow to import
    from launcher.report import plan_as_json  # noqa: PLC0415

    plan, report, complete = outcome.plan, outcome.report, outcome.complete
    ran = report or complete
    code, problem = EXIT_FINE, None
    if ran is not None and ran.agreement is not None and not ran.agrees:
        code, found = EXIT_FAILED, ran.agreement
        problem = (
            f"the results differ from the whole model's, most at output {found.worst_output!r} "
            f"of frame {found.worst_input}, by more than the tolerance of {found.allowed:g} allows"
            + (f"; {found.begins.sentence}" if found.begins is not None else "")
        )
    if as_json:
        data = ran.as_json() if ran is not None else plan_as_json(plan) if plan is not None else {}
        if problem is not None:
            data |= {"error": problem, "exit_code": code}
        print_json(data)
    elif report is not None:
        report_text.print_report(report, report_text.open_console())
    elif complete is not None:
        report_text.open_console().print(complete.text())
    elif plan is not None:
        report_text.open_console().print(report_text.plan_text(plan))
    if problem is not None:
        print_error("launch", problem)
    return code


if __name__ == "__main__":
    main()
