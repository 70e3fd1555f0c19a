"""Declares the command line of `launch`, which Typer makes from the class `Request`.

The module imports little, so that `--help` is fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from launcher.console import print_version
from launcher.core.watch import Rebalance
from nodes.protocol.messages import Order

MOST_FRAMES = 1_000_000_000
MOST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Request:
    """Run one ONNX network over the nodes of a cluster.

    Reads the model, spreads its layers over the nodes, proves that the plan
    cannot deadlock, deploys it, streams the frames, and compares the results
    with the whole model's.

    Exit code 0: every frame has a result that agrees. 1: the run failed, or
    a result differs. 2: something given cannot be used, and nothing was
    run. 130: Ctrl-C.
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
        typer.Option(min=1, max=MOST_FRAMES, help="Frames to stream; the inputs are repeated"),
    ] = None
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="Glob of PNG, JPEG, .npy or .npz files, or 'random'; repeatable"
        ),
    ] = None
    output: Annotated[
        Path | None, typer.Option(help="Folder for the results: .npy files, classes.csv")
    ] = None
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread over nodes, such as 'vertical'")
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, max=MOST_SEED, help="Of the search and of random input")
    ] = None
    plan_only: Annotated[
        bool, typer.Option("--plan-only", "--show", help="Print the plan, and run nothing")
    ] = False
    save: Annotated[
        Path | None, typer.Option(help="Save the plan in this folder; launch it again, or edit it")
    ] = None
    order: Annotated[
        Order | None, typer.Option(help="strict: phases frame by frame, for comparison; slower")
    ] = None
    verify: Annotated[
        bool | None, typer.Option("--verify/--no-verify", help="Compare with the whole model")
    ] = None
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Largest relative difference that agrees; by default the network's own"
        ),
    ] = None
    top: Annotated[
        int, typer.Option(min=1, help="Classes per frame in classes.csv, for a classifier")
    ] = 5
    profile: Annotated[
        Path | None,
        typer.Option(help="File of csdf-edge partition profile: measured times for the search"),
    ] = None
    journal: Annotated[
        Path | None, typer.Option(help="Folder that keeps results and progress, for --resume")
    ] = None
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in the journal, or begin it"),
    ] = False
    trace: Annotated[
        Path | None,
        typer.Option(help="File for what every node did and when, which Perfetto opens"),
    ] = None
    rebalance: Annotated[
        Rebalance | None,
        typer.Option(help="Use a node that returns: if it is worth it, if you agree, or never"),
    ] = None
    make_keys: Annotated[
        bool,
        typer.Option(
            "--make-keys", help="Make the keys of the cluster's machines, and run nothing"
        ),
    ] = False
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False
