"""The command `csdf-edge partition`, which makes, compares, shows and measures plans."""

from __future__ import annotations

from typing import Annotated, Any, Protocol, TypeAlias

import typer

from launcher.commands.options import (
    CompareOptions,
    FrontOptions,
    ProfileOptions,
    ShowOptions,
    SolveOptions,
)
from launcher.console import print_json, print_version, run_command

app = typer.Typer(
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

Options: TypeAlias = SolveOptions | FrontOptions | CompareOptions | ShowOptions | ProfileOptions


class Printable(Protocol):
    """The result of a subcommand."""

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data."""
        ...

    def print(self) -> None:
        """Print the result for people, on standard output."""
        ...


@app.callback()
def partition(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version"),
    ] = False,
) -> None:
    """Divide a network over devices, compare strategies, show plans, and measure nodes."""


app.command("solve")(SolveOptions)
app.command("front")(FrontOptions)
app.command("compare")(CompareOptions)
app.command("show")(ShowOptions)
app.command("profile")(ProfileOptions)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `csdf-edge partition`; never returns."""
    run_command(app, "csdf-edge partition", _perform, arguments)


def _perform(options: Options, as_json: bool) -> int:
    found = _performed(options)
    if as_json:
        print_json(found.as_json())
    else:
        found.print()
    return 0


def _performed(options: Options) -> Printable:
    """Import the module of the subcommand, which is slow, and run it; raises `LauncherError`."""
    match options:
        case SolveOptions():
            from launcher.commands.solve import perform as solve  # noqa: PLC0415

            solved = solve(options)
            if options.convergence is not None:
                from launcher.commands.pages import write_convergence  # noqa: PLC0415

                write_convergence(solved.found.solution.generations, options.convergence)
            return solved
        case FrontOptions():
            from launcher.commands.front import PICTURE  # noqa: PLC0415
            from launcher.commands.front import perform as find_front  # noqa: PLC0415

            front = find_front(options)
            if options.output is not None:
                from launcher.commands.pages import write_front  # noqa: PLC0415

                write_front(front, options.output / PICTURE)
            return front
        case CompareOptions():
            from launcher.commands.compare import perform as compare  # noqa: PLC0415

            comparison = compare(options)
            if options.html is not None:
                from launcher.commands.pages import write_comparison  # noqa: PLC0415

                write_comparison(comparison, options.html)
            return comparison
        case ShowOptions():
            from launcher.commands.show import perform as show  # noqa: PLC0415

            return show(options)
        case ProfileOptions():
            from launcher.commands.profile import perform as profile  # noqa: PLC0415

            return profile(options)


if __name__ == "__main__":
    main()
