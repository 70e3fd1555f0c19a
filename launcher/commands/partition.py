"""The console command `partition`: divide a network and look at the result, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from launcher.commands.options import AsJson, Objective
from launcher.console import print_json, print_version, run_command

MOST_DEVICES = 64
"""In one plan for equal devices."""

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


class Job(Protocol):
    """What a subcommand was asked to do, to be done after parsing."""

    def perform(self) -> Outcome:
        """Do it; raises `LauncherError`."""
        ...


class Outcome(Protocol):
    """What came out."""

    def as_json(self) -> dict[str, Any]:
        """JSON-like data."""
        ...

    def print(self) -> None:
        """Print it for people, on standard output."""
        ...


_MODEL = "ONNX file, onnx-wheel:NAME or builtin:NAME"
ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]


@dataclass(frozen=True)
class SolveJob:
    """`partition solve`: see its options."""

    model: str | None
    devices: int | None
    cluster: Path | None
    strategy: str | None
    objective: str | None
    seed: int | None
    memory: str | None
    link: str | None
    cache: str | None
    save: Path | None
    profile: Path | None = None

    def perform(self) -> Outcome:
        """See `Job`."""
        from launcher.commands import solve_command  # noqa: PLC0415 - slow to import

        return solve_command.perform(self)


@app.callback()
def partition(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Divide a network over devices, compare strategies, and look at plans."""


@app.command()
def solve(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help=f"{_MODEL}; by default --cluster's")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_DEVICES, help="This many equal devices, a machine each"),
    ] = None,
    cluster: Annotated[
        Path | None, typer.Option(help="cluster.yaml with the devices and the pins")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option(help="How layers are spread; by default --cluster's, or auto")
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(help="What to make small first; by default --cluster's, or period"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the search; by default --cluster's, or 0")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="What each of --devices may hold, such as 2GB")
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="The link of each of --devices, such as 100Mbit/s")
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Room for weights in each of --devices' cache, such as 8MiB")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Save the plan in this folder; launch runs it")
    ] = None,
    profile: Annotated[
        Path | None, typer.Option(help="File of partition profile: measured times of --cluster")
    ] = None,
    as_json: AsJson = False,  # noqa: ARG001 - `run_command` looks for it
) -> SolveJob:
    """Find a plan: who computes what, how fast that is, and what it holds.

    Exit code 0: a plan was found. 2: something given cannot be used, or no plan fits.
    """
    return SolveJob(
        model,
        devices,
        cluster,
        strategy,
        None if objective is None else objective.value,
        seed,
        memory,
        link,
        cache,
        save,
        profile,
    )


@dataclass(frozen=True)
class CompareJob:
    """`partition compare`: see its options."""

    model: str
    devices: str
    strategies: str | None
    objective: str
    seed: int
    memory: str | None
    link: str | None
    cache: str | None
    html: Path | None

    def perform(self) -> Outcome:
        """See `Job`."""
        from launcher.commands import compare  # noqa: PLC0415 - slow to import

        return compare.perform(self)


@app.command()
def compare(
    model: ModelPath,
    devices: Annotated[
        str, typer.Option(help="Numbers of equal devices: 2..10 or 2,4,8")
    ] = "2..10",
    strategies: Annotated[
        str | None, typer.Option(help="Comma-separated; without it, all that search quickly")
    ] = None,
    objective: Annotated[
        Objective, typer.Option(help="What to make small first")
    ] = Objective.period,
    seed: Annotated[int, typer.Option(min=0, help="Of the searches")] = 0,
    memory: Annotated[
        str | None, typer.Option(help="What each device may hold, such as 2GB")
    ] = None,
    link: Annotated[
        str | None, typer.Option(help="The link of each device, such as 100Mbit/s")
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="Room for weights in each device's cache, such as 8MiB")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file")] = None,
    as_json: AsJson = False,  # noqa: ARG001 - `run_command` looks for it
) -> CompareJob:
    """Divide one network by many strategies over 2, 3, … devices: a table, and a page with plots.

    Exit code 0: everything was tried; a strategy without a plan has a sentence in its row. 2:
    something given cannot be used.
    """
    return CompareJob(model, devices, strategies, objective.value, seed, memory, link, cache, html)


@dataclass(frozen=True)
class ShowJob:
    """`partition show`: see its options."""

    plan: Path
    output: Path | None

    def perform(self) -> Outcome:
        """See `Job`."""
        from launcher.commands import show  # noqa: PLC0415 - slow to import

        return show.perform(self)


@app.command()
def show(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The folder of a saved plan")],
    output: Annotated[
        Path | None, typer.Option(help="Draw it: a file that ends in .svg or .html")
    ] = None,
    as_json: AsJson = False,  # noqa: ARG001 - `run_command` looks for it
) -> ShowJob:
    """Show a saved plan: as text, or drawn as layers in phases on devices.

    Exit code 0: shown. 2: the plan or its model cannot be used.
    """
    return ShowJob(plan, output)


@dataclass(frozen=True)
class ProfileJob:
    """`partition profile`: see its options."""

    cluster: Path
    model: str | None
    plan: Path | None
    output: Path | None
    again: bool
    alike: bool

    def perform(self) -> Outcome:
        """See `Job`."""
        from launcher.commands import profile_command  # noqa: PLC0415 - slow to import

        return profile_command.perform(self)


@app.command()
def profile(
    cluster: Annotated[Path, typer.Option(help="cluster.yaml with the nodes to measure")],
    model: Annotated[str | None, typer.Option(help="Another model than cluster.yaml names")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Folder of a saved plan: measure its subnets, not those of a search"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to write it; by default cluster.yaml's, or profile.json"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Measure even what was measured before")
    ] = False,
    alike: Annotated[
        bool,
        typer.Option(
            "--alike",
            help="Boards of one kind (processor, engine, threads) are alike: measure one of each",
        ),
    ] = False,
    as_json: AsJson = False,  # noqa: ARG001 - `run_command` looks for it
) -> ProfileJob:
    """Measure layers, subnets and links on the nodes themselves; solve and launch use the times.

    Exit code 0: measured, or known from earlier. 1: a node failed. 2: something given cannot be
    used.
    """
    return ProfileJob(cluster, model, plan, output, again, alike)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `partition`; never returns."""
    run_command(app, "partition", _perform, arguments)


def _perform(job: Job, as_json: bool) -> int:
    outcome = job.perform()
    if as_json:
        print_json(outcome.as_json())
    else:
        outcome.print()
    return 0


if __name__ == "__main__":
    main()
