"""The console command `ga`: work on the genetic algorithms themselves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from launcher.commands.options import Objective
from launcher.console import EXIT_INTERRUPTED, print_json, print_version, run_command

if TYPE_CHECKING:
    from launcher.commands.sweep import Outcome

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


class _Strategy(str, Enum):
    vertical = "vertical"
    vertical_paper = "vertical-paper"


@dataclass(frozen=True)
class SweepJob:
    """`ga sweep`: see its options."""

    cluster: Path
    trials: int
    model: str | None
    strategy: str
    objective: str
    storage: str | None
    study: str | None
    output: Path
    repeats: int
    budget: float
    seed: int | None
    save: bool

    def perform(self) -> Outcome:
        """Do it; raises `LauncherError`."""
        from launcher.commands import sweep  # noqa: PLC0415 - slow to import

        return sweep.perform(self)


@app.callback()
def ga(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Tune the genetic algorithms that divide networks."""


@app.command()
def sweep(
    cluster: Annotated[
        Path, typer.Argument(metavar="CLUSTER", help="cluster.yaml with the devices and the pins")
    ],
    trials: Annotated[int, typer.Option(min=1, help="How many new sets of parameters to try")],
    model: Annotated[
        str | None, typer.Option(help="Another model than the cluster's: a file or a name")
    ] = None,
    strategy: Annotated[
        _Strategy, typer.Option(help="Whose parameters are tuned")
    ] = _Strategy.vertical,
    objective: Annotated[
        Objective, typer.Option(help="What to make small first; vertical-paper knows only Eq. 1")
    ] = Objective.period,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL_OR_FILE",
            help="A SQLite file, or the URL of a database that machines share "
            "[default: ga-sweep.db beside the cluster's file]",
        ),
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="[default: of model, strategy and objective]"),
    ] = None,
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where sweep.html with the plots is written")
    ] = Path("ga-sweep"),
    repeats: Annotated[
        int, typer.Option(min=1, max=100, help="Searches per trial, with seeds of their own")
    ] = 3,
    budget: Annotated[
        float,
        typer.Option(min=0.01, max=100, help="What a search may price, relative to the usual"),
    ] = 1.0,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**32 - 1,
            help="Of the choice of parameters; leave it out where machines share a study "
            "[default: random]",
        ),
    ] = None,
    save: Annotated[
        bool,
        typer.Option("--save", help="Put the best trial's parameters into CLUSTER, as its key ga"),
    ] = False,
    as_json: Annotated[  # noqa: ARG001 - `run_command` looks for it
        bool, typer.Option("--json", help="Print one JSON object and nothing else")
    ] = False,
) -> SweepJob:
    """Tune a genetic algorithm's own parameters for a network and devices, at equal cost.

    The study is kept: the same command adds trials to it, also from other machines at the same
    time. Ctrl-C keeps what is finished. Exit code 0: the trials were made. 2: something given
    cannot be used. 130: interrupted.
    """
    return SweepJob(
        cluster,
        trials,
        model,
        strategy.value,
        objective.value,
        storage,
        study,
        output,
        repeats,
        budget,
        seed,
        save,
    )


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `ga`; never returns."""
    run_command(app, "ga", _perform, arguments)


def _perform(job: SweepJob, as_json: bool) -> int:
    outcome = job.perform()
    if as_json:
        print_json(outcome.as_json())
    else:
        outcome.print()
    return EXIT_INTERRUPTED if outcome.result.interrupted else 0


if __name__ == "__main__":
    main()
