"""The options of `partition` and `ga`, a frozen dataclass per command.

Typer makes the command line from a class: an option from each field, the help from the docstring.
What a command does with its options is imported only when the command is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from launcher.run.request import MOST_SEED
from partition.objective import Objective

MOST_DEVICES = 64
"""In one plan for equal devices."""

_MODEL = "ONNX file, onnx-wheel:NAME or builtin:NAME"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else")]


@dataclass(frozen=True)
class SolveOptions:
    """Find a plan: who computes what, how fast that is, and what it holds.

    Exit code 0: a plan was found. 2: something given cannot be used, or no plan fits.
    """

    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help=f"{_MODEL}; by default --cluster's")
    ] = None
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DEVICES, help="This many equal devices, a machine each"),
    ] = None
    cluster: Annotated[
        Path | None, typer.Option(help="cluster.yaml with the devices and the pins")
    ] = None
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread; by default --cluster's, or auto")
    ] = None
    objective: Annotated[
        Objective | None,
        typer.Option(help="What to make small first; by default --cluster's, or period"),
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the search; by default --cluster's, or 0")
    ] = None
    memory: Annotated[
        str | None, typer.Option(help="What each of --devices may hold, such as 2GB")
    ] = None
    link: Annotated[
        str | None, typer.Option(help="The link of each of --devices, such as 100Mbit/s")
    ] = None
    cache: Annotated[
        str | None, typer.Option(help="Room for weights in each of --devices' cache, such as 8MiB")
    ] = None
    save: Annotated[
        Path | None, typer.Option(help="Save the plan in this folder; launch runs it")
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(help="File of csdf-edge partition profile: measured times of --cluster"),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class CompareOptions:
    """Divide one network by many strategies over 2, 3, … devices: a table, and a page with plots.

    Exit code 0: everything was tried; a strategy without a plan has a sentence in its row. 2:
    something given cannot be used.
    """

    model: Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
    devices: Annotated[str, typer.Option(help="Numbers of equal devices: 2..10 or 2,4,8")] = "2..10"
    strategies: Annotated[
        str | None, typer.Option(help="Comma-separated; without it, all that search quickly")
    ] = None
    objective: Annotated[Objective, typer.Option(help="What to make small first")] = "period"
    seed: Annotated[int, typer.Option(min=0, help="Of the searches")] = 0
    memory: Annotated[str | None, typer.Option(help="What each device may hold, such as 2GB")] = (
        None
    )
    link: Annotated[str | None, typer.Option(help="The link of each device, such as 100Mbit/s")] = (
        None
    )
    cache: Annotated[
        str | None, typer.Option(help="Room for weights in each device's cache, such as 8MiB")
    ] = None
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file")] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ShowOptions:
    """Show a saved plan: as text, or drawn as layers in phases on devices.

    Exit code 0: shown. 2: the plan or its model cannot be used.
    """

    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The folder of a saved plan")]
    output: Annotated[
        Path | None, typer.Option(help="Draw it: a file that ends in .svg or .html")
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ProfileOptions:
    """Measure layers, subnets and links on the nodes themselves; solve and launch use the times.

    Exit code 0: measured, or known from earlier. 1: a node failed. 2: something given cannot be
    used.
    """

    cluster: Annotated[Path, typer.Option(help="cluster.yaml with the nodes to measure")]
    model: Annotated[str | None, typer.Option(help="Another model than cluster.yaml names")] = None
    plan: Annotated[
        Path | None,
        typer.Option(help="Folder of a saved plan: measure its subnets, not those of a search"),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write it; by default cluster.yaml's, or profile.json"),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Measure even what was measured before")
    ] = False
    alike: Annotated[
        bool,
        typer.Option(
            "--alike",
            help="Boards of one kind (processor, engine, threads) are alike: measure one of each",
        ),
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class SweepOptions:
    """Tune a genetic algorithm's own parameters for a network and devices, at equal cost.

    The study is kept: the same command adds trials to it, also from other machines at the same
    time. Ctrl-C keeps what is finished. Exit code 0: the trials were made. 2: something given
    cannot be used. 130: interrupted.
    """

    cluster: Annotated[
        Path, typer.Argument(metavar="CLUSTER", help="cluster.yaml with the devices and the pins")
    ]
    trials: Annotated[int, typer.Option(min=1, help="How many new sets of parameters to try")]
    model: Annotated[
        str | None, typer.Option(help="Another model than the cluster's: a file or a name")
    ] = None
    strategy: Annotated[
        Literal["vertical", "vertical-paper"], typer.Option(help="Whose parameters are tuned")
    ] = "vertical"
    objective: Annotated[
        Objective, typer.Option(help="What to make small first; vertical-paper knows only Eq. 1")
    ] = "period"
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL_OR_FILE",
            help="A SQLite file, or the URL of a database that machines share "
            "[default: ga-sweep.db beside the cluster's file]",
        ),
    ] = None
    study: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="[default: of model, strategy and objective]"),
    ] = None
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where sweep.html with the plots is written")
    ] = Path("ga-sweep")
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Searches per trial, with seeds of their own")
    ] = 3
    budget: Annotated[
        float,
        typer.Option(min=0.01, max=100, help="What a search may price, relative to the usual"),
    ] = 1.0
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SEED,
            help="Of the choice of parameters; leave it out where machines share a study "
            "[default: random]",
        ),
    ] = None
    save: Annotated[
        bool,
        typer.Option("--save", help="Put the best trial's parameters into CLUSTER, as its key ga"),
    ] = False
    as_json: AsJson = False
