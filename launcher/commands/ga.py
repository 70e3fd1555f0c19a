"""The console command `ga`, which tunes the genetic algorithms."""

from __future__ import annotations

from typing import Annotated

import typer

from launcher.commands.options import SweepOptions
from launcher.console import EXIT_INTERRUPTED, print_json, print_version, run_command

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


@app.callback()
def ga(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Tune the genetic algorithms that divide networks."""


app.command("sweep")(SweepOptions)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the console script `ga`; never returns."""
    run_command(app, "ga", _perform, arguments)


def _perform(options: SweepOptions, as_json: bool) -> int:
    from launcher.commands.sweep.performing import perform  # noqa: PLC0415 - slow to import

    tuned = perform(options)
    if as_json:
        print_json(tuned.as_json())
    else:
        tuned.print()
    return EXIT_INTERRUPTED if tuned.result.interrupted else 0


if __name__ == "__main__":
    main()
