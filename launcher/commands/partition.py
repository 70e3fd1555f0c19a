"""The command `csdf-edge partition`, which makes, compares, shows and measures plans."""

from __future__ import annotations

from typing import TypeAlias

from launcher.commands.options import (
    CompareOptions,
    FrontOptions,
    ProfileOptions,
    ShowOptions,
    SolveOptions,
)
from launcher.console import CommandResult, command_group, print_result, run_command

app = command_group(
    "Divide a network over devices, compare strategies, show plans, and measure nodes."
)

Options: TypeAlias = SolveOptions | FrontOptions | CompareOptions | ShowOptions | ProfileOptions

app.command("solve")(SolveOptions)
app.command("front")(FrontOptions)
app.command("compare")(CompareOptions)
app.command("show")(ShowOptions)
app.command("profile")(ProfileOptions)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `csdf-edge partition`; never returns."""
    run_command(app, "csdf-edge partition", _perform, arguments)


def _perform(options: Options, as_json: bool) -> int:
    print_result(_performed(options), as_json=as_json)
    return 0


def _performed(options: Options) -> CommandResult:
    """Import the module of the subcommand, which is slow, and run it; raises `LauncherError`.

    Matplotlib, which is missing without the extra `plots`, is imported before minutes are spent.
    """
    match options:
        case SolveOptions():
            from launcher.commands.solve import perform as solve  # noqa: PLC0415

            if options.convergence is None:
                return solve(options)
            from launcher.commands.pages import write_convergence  # noqa: PLC0415

            solved = solve(options)
            write_convergence(solved.found.solution.generations, options.convergence)
            return solved
        case FrontOptions():
            from launcher.commands.front import PICTURE  # noqa: PLC0415
            from launcher.commands.front import perform as find_front  # noqa: PLC0415

            if options.output is None:
                return find_front(options)
            from launcher.commands.pages import write_front  # noqa: PLC0415

            front = find_front(options)
            write_front(front, options.output / PICTURE)
            return front
        case CompareOptions():
            from launcher.commands.compare import perform as compare  # noqa: PLC0415

            if options.html is None:
                return compare(options)
            from launcher.commands.pages import write_comparison  # noqa: PLC0415

            comparison = compare(options)
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
