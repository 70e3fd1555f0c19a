"""Declares the command line of `launch`, which Typer makes from the class `Request`.

The module imports little, so that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from launcher.console import print_version
from launcher.core.watch import Rebalance, Start
from launcher.quantities import MOST_FRAMES, MOST_SEED
from nodes.protocol.messages import Order

Search = Literal["again"]


@dataclass(frozen=True)
class Request:
    """Run one ONNX network over the nodes of a cluster.

    Reads the model, spreads its layers over the nodes, proves that the plan
    cannot deadlock, deploys it, streams the frames, and compares the results
    with the whole model's. (launch serve CLUSTER answers the requests of
    other programs instead; see launch serve --help.)

    Exit code 0: every frame has a result that agrees. 1: the run failed, or
    a result differs. 2: something given cannot be used, and nothing was
    run. 130: Ctrl-C. 143: SIGTERM.
    """

    # An option that is None leaves the choice to `cluster.yaml`.
    target: Annotated[
        Path,
        typer.Argument(
            metavar="CLUSTER_OR_PLAN", help="cluster.yaml, or the folder of a saved plan"
        ),
    ]
    frames: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_FRAMES,
            help="Number of frames to stream; the inputs are repeated if there are fewer",
        ),
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Glob of PNG, JPEG, .npy or .npz files, or 'random'; may be given several times. "
            "Or one source: a video, rtsp://…, /dev/video0, or - for standard input",
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results: .npy files, classes.csv of a classifier, and "
            "predictions.jsonl with a task"
        ),
    ] = None
    strategy: Annotated[
        str | None, typer.Option(help="How layers are divided among nodes, such as 'vertical'")
    ] = None
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Number of frames that a node computes at once; auto: the fastest number by the "
            "profile within --max-latency",
        ),
    ] = None
    max_latency: Annotated[
        str | None,
        typer.Option(
            help="Longest time that a frame may take from its source to its result, such as 200ms"
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=MOST_SEED, help="Seed of the search and of random input"),
    ] = None
    plan_only: Annotated[
        bool, typer.Option("--plan-only", "--show", help="Print the plan, and run nothing")
    ] = False
    save: Annotated[
        Path | None,
        typer.Option(help="Folder to save the plan in, where it can be edited and launched again"),
    ] = None
    order: Annotated[
        Order | None,
        typer.Option(help="Order of phases; strict computes frame by frame, which is slower"),
    ] = None
    verify: Annotated[
        bool | None,
        typer.Option("--verify/--no-verify", help="Compare the results with the whole model's"),
    ] = None
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Largest relative difference from the whole model's results; by default it "
            "follows from the precision of the network's numbers",
        ),
    ] = None
    top: Annotated[
        int, typer.Option(min=1, help="Classes per frame in classes.csv, for a classifier")
    ] = 5
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Measured times for the search, from csdf-edge partition profile; by default "
            "estimates"
        ),
    ] = None
    journal: Annotated[
        Path | None, typer.Option(help="Folder that keeps results and progress, for --resume")
    ] = None
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in the journal, or begin one"),
    ] = False
    trace: Annotated[
        Path | None,
        typer.Option(help="File for a trace of what every node did and when, for Perfetto"),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(help="File for an HTML page on the run: plan, schedule, figures over time"),
    ] = None
    rebalance: Annotated[
        Rebalance | None,
        typer.Option(
            help="When to use a node that came back: if that is worth a pause, if you agree, or "
            "only once another node is lost"
        ),
    ] = None
    start: Annotated[
        Start | None,
        typer.Option(
            help="Which nodes to begin with: those that answer, if they suffice, or all of the plan"
        ),
    ] = None
    make_keys: Annotated[
        bool,
        typer.Option(
            "--make-keys", help="Make the keys of all machines of the cluster, and run nothing"
        ),
    ] = False
    log_format: Annotated[
        str,
        typer.Option(
            metavar="text|json", help="json: progress and messages as one JSON object per line"
        ),
    ] = "text"
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False
    search: Annotated[
        Search | None,
        typer.Option(help="again: search for a plan, and ignore those that earlier searches found"),
    ] = None
    annotate: Annotated[
        bool,
        typer.Option("--annotate", help="With --output and a task: also pictures with predictions"),
    ] = False
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print all of the report, or of the plan, and not only a summary",
        ),
    ] = False
