"""Declares the options of `csdf-edge partition` and `ga`, in a frozen dataclass per command.

Typer makes the command line from a class: an option from each field, and the help from the
docstring. The code of a command is imported only when it is called, so that `--help` answers at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from launcher.quantities import MOST_SEED
from partition.objective import DEFAULT_OBJECTIVE, Objective

MOST_DEVICES = 64
"""The most equal devices in a plan."""

_MODEL = "ONNX file, onnx-wheel:NAME or builtin:NAME"

_WITHIN = (
    "For the objectives both and paper: by how much the period may exceed the shortest, such as 10%"
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else")]


@dataclass(frozen=True)
class SearchOptions:
    """What to search plans for: a model and equal devices, or a cluster."""

    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help=f"{_MODEL}; by default --cluster's")
    ] = None
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DEVICES, help="Number of equal devices, a machine each"),
    ] = None
    cluster: Annotated[
        Path | None, typer.Option(help="cluster.yaml with the devices and the pins")
    ] = None
    strategy: Annotated[
        str | None,
        typer.Option(help="How the network is divided; by default --cluster's strategy, or auto"),
    ] = None
    within: Annotated[str | None, typer.Option(help=_WITHIN)] = None
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Number of frames that a device computes at once; by default --cluster's, or 1. "
            "auto: the fastest number by the profile within --max-latency",
        ),
    ] = None
    max_latency: Annotated[
        str | None,
        typer.Option(
            help="Longest time that a frame may take from its source to its result, such as "
            "200ms; by default --cluster's, or no limit"
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the search; by default --cluster's, or 0")
    ] = None
    memory: Annotated[
        str | None, typer.Option(help="Memory of each of --devices, such as 2GB; default: no limit")
    ] = None
    link: Annotated[
        str | None, typer.Option(help="Rate of each of --devices' links, such as 100Mbit/s")
    ] = None
    cache: Annotated[
        str | None,
        typer.Option(help="Cache for weights of each of --devices, such as 8MiB; default: none"),
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Measured times of --cluster, from csdf-edge partition profile; default: estimates"
        ),
    ] = None


@dataclass(frozen=True)
class SolveOptions(SearchOptions):
    """Find a plan that divides a network over devices, and print its predicted figures.

    Give either --devices N, for N equal devices, or --cluster with a cluster.yaml.

    Exit code 0: a plan was found. 2: an argument cannot be used, or no plan fits.
    """

    objective: Annotated[
        Objective | None,
        typer.Option(help="What to minimise first; by default --cluster's, or both"),
    ] = None
    save: Annotated[
        Path | None, typer.Option(help="Folder to save the plan in; launch runs it from there")
    ] = None
    engine: Annotated[
        Literal["onnxruntime", "tensorrt"] | None,
        typer.Option(
            help="Engine of the devices; by default --cluster's. For tensorrt, an engine is built "
            "from every subnet, but not run"
        ),
    ] = None
    convergence: Annotated[
        Path | None,
        typer.Option(
            help="File for a plot of each generation of a genetic search; its name ends in .svg"
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class FrontOptions(SearchOptions):
    """Find the plans among which speed and memory can be traded, and print a row for each.

    No plan that was found is both faster and smaller than one of these points. With --output, each
    point is saved as a plan, which launch FOLDER/NAME runs, with a picture and the figures. The
    same seed gives the same points and names.

    Give either --devices N, for N equal devices, or --cluster with a cluster.yaml.

    Exit code 0: plans were found. 2: an argument cannot be used, or no plan fits.
    """

    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="New folder for front.svg, front.json and a plan for each point"
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class CompareOptions:
    """Divide one network by many strategies over 2, 3, … devices, and compare them in a table.

    Exit code 0: everything was tried; where a strategy finds no plan, its row says why. 2: an
    argument cannot be used.
    """

    model: Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
    devices: Annotated[str, typer.Option(help="Numbers of equal devices: 2..10 or 2,4,8")] = "2..10"
    strategies: Annotated[
        str | None,
        typer.Option(help="Strategies, separated by commas; default: those that search quickly"),
    ] = None
    objective: Annotated[Objective, typer.Option(help="What to minimise first")] = DEFAULT_OBJECTIVE
    within: Annotated[str | None, typer.Option(help=_WITHIN)] = None
    seed: Annotated[int, typer.Option(min=0, help="Seed of the searches")] = 0
    memory: Annotated[
        str | None, typer.Option(help="Memory of each device, such as 2GB; default: no limit")
    ] = None
    link: Annotated[
        str | None, typer.Option(help="Rate of each device's link, such as 100Mbit/s")
    ] = None
    cache: Annotated[
        str | None,
        typer.Option(help="Cache for weights of each device, such as 8MiB; default: none"),
    ] = None
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file")] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class ShowOptions:
    """Show a saved plan as text, or draw its layers, phases and devices.

    Exit code 0: the plan was shown. 2: the plan or its model cannot be used.
    """

    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The folder of a saved plan")]
    output: Annotated[
        Path | None, typer.Option(help="File for a drawing; its name ends in .svg or .html")
    ] = None
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show all phases and channels")
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class ProfileOptions:
    """Measure layers, subnets and links on the nodes, for solve --profile and launch --profile.

    Earlier measurements are reused. With --batch auto, or batch: auto in cluster.yaml, firings of
    2, 4, 8, … frames are measured too.

    Exit code 0: the profile is complete. 1: a node failed. 2: an argument cannot be used.
    """

    cluster: Annotated[Path, typer.Option(help="cluster.yaml with the nodes to measure")]
    model: Annotated[str | None, typer.Option(help="Model to use instead of cluster.yaml's")] = None
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a saved plan whose subnets to measure; default: the plan of a search"
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(help="File to write; by default cluster.yaml's profile, or profile.json"),
    ] = None
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="Number of frames per measured firing; auto: 2, 4, 8, …; by default --cluster's, "
            "or single frames",
        ),
    ] = None
    again: Annotated[
        bool, typer.Option("--again", help="Measure everything again, including what is known")
    ] = False
    alike: Annotated[
        bool,
        typer.Option(
            "--alike",
            help="Measure only one of several boards with equal processor, engine and threads",
        ),
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True)
class SweepOptions:
    """Tune the parameters of a genetic algorithm for a network and devices, at equal cost.

    The trials are stored as a study. The same command adds trials to it, also from several machines
    at once. Ctrl-C keeps the finished ones. It stops where all trials are equal.

    Exit code 0: the trials were made. 2: an argument cannot be used. 130: Ctrl-C. 143: SIGTERM.
    """

    cluster: Annotated[
        Path, typer.Argument(metavar="CLUSTER", help="cluster.yaml with the devices and the pins")
    ]
    trials: Annotated[int, typer.Option(min=1, help="Number of new sets of parameters to try")]
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model to use instead of cluster.yaml's; give the option several times for "
            "parameters that are good for all of them"
        ),
    ] = None
    strategy: Annotated[
        Literal["vertical", "vertical-paper", "auto", "runs", "hybrid"],
        typer.Option(help="Strategy to tune"),
    ] = "vertical"
    objective: Annotated[
        Objective,
        typer.Option(help="What to minimise first; vertical-paper always minimises Eq. 1"),
    ] = DEFAULT_OBJECTIVE
    front: Annotated[
        bool,
        typer.Option(
            "--front",
            help="Minimise the period and the memory as two objectives, and show their front",
        ),
    ] = False
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run the trials on the workers of the Dask cluster with this scheduler",
        ),
    ] = None
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL_OR_FILE",
            help="SQLite file, or URL of a database that several machines share [default: "
            "ga-sweep.db in the folder of cluster.yaml]",
        ),
    ] = None
    study: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the study [default: the model, the strategy and the objective]",
        ),
    ] = None
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder for sweep.html, which has the plots")
    ] = Path("ga-sweep")
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Searches per trial, each with its own seed")
    ] = 3
    budget: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=100,
            help="Candidate solutions that a search may evaluate, relative to the default",
        ),
    ] = 1.0
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST_SEED,
            help="Seed of the choice of parameters; omit it if several machines share a study "
            "[default: random]",
        ),
    ] = None
    save: Annotated[
        bool,
        typer.Option(
            "--save",
            help="Write the best trial's parameters to the key ga of CLUSTER if their gain holds "
            "on other seeds",
        ),
    ] = False
    as_json: AsJson = False
